"""The help of every command fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraft.deploy.cli.app import command_line

COLUMNS_MAX = 80


def helps(command: Any, above: Any = None, name: str = "kraft") -> Iterator[tuple[str, str]]:
    """Yield the help of each command below this one."""
    context = command.context_class(command, info_name=name, parent=above, terminal_width=COLUMNS_MAX)
    yield context.command_path, command.get_help(context)
    for below, one in getattr(command, "commands", {}).items():
        yield from helps(one, context, below)


HELPS = dict(helps(command_line()))


@pytest.mark.parametrize("command", HELPS)
def test_the_help_of_a_command_fits_80_columns(command: str) -> None:
    assert [line for line in HELPS[command].splitlines() if len(line) > COLUMNS_MAX] == []


@pytest.mark.parametrize("command", HELPS)
def test_command_help_lists_subcommands_with_complete_sentences(command: str) -> None:
    cut = [line for line in HELPS[command].splitlines() if line.endswith("...") and not line.startswith("Usage:")]
    assert cut == []
