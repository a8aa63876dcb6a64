"""`kraft completion`: what a shell needs to complete verbs, options, names and values."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kraft.deploy.cli.app import COMPLETION_VARIABLE


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


def prepare_completion() -> None:
    """Before the command line is read, when a shell asks for completions: know how to answer each kind of shell."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
