"""`kraft completion`: what a shell needs to complete verbs, options, names and values."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kraft.deploy.cli.app import COMPLETION_VARIABLE

FUNCTION = "_kraft_completion"
"""What typer's script for bash calls its function for `kraft`."""
NO_SPACE = f"""
{FUNCTION}_of_settings() {{
    {FUNCTION} "$@"
    [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
    return 0
}}
complete -o default -F {FUNCTION}_of_settings kraft
"""
"""For bash: behind the beginning of KEY=VALUE comes no space. (Fish knows that by itself.)"""


class Shell(Enum):
    """The shells that can be helped."""

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
    """Before the command line is read, when a shell asks for completions: know how to answer each kind of shell."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
