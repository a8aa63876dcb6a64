"""`kraft completion`: shell scripts that complete commands, options, names and values."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kraft.deploy.cli.app import COMPLETION_VARIABLE

FUNCTION = "_kraft_completion"
"""Name of the bash function that typer's completion script defines for `kraft`."""
NO_SPACE = f"""
{FUNCTION}_of_settings() {{
    {FUNCTION} "$@"
    [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
    return 0
}}
complete -o default -F {FUNCTION}_of_settings kraft
"""
"""End of the completion script for bash: adds no space after the KEY= of KEY=VALUE. (Fish adds none by itself.)"""


class Shell(Enum):
    """Shell that `kraft completion` supports."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print the completion script of a shell: eval "$(kraft completion bash)" in your start file."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="kraft", complete_var=COMPLETION_VARIABLE, shell=shell.value))
    if shell is Shell.BASH:
        print(NO_SPACE)


def prepare_completion() -> None:
    """Set up completion for all supported shells. Must be called before the arguments are parsed, when a shell requests
    candidates."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
