"""What every verb prints: tables for people, one JSON value with `--json`; and how it ends.

Exit codes: 0 done · 1 refused or failed · 2 wrong arguments or configuration · 3 no cluster answered · 4 what was named
is not there · 70 a fault of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_NOT_FOUND = 4
EXIT_FAULT = 70

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]
DataOption = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Folder of the cluster; default: the one started last.")
]
BootstrapOption = Annotated[
    str | None,
    typer.Option("--bootstrap", metavar="HOST:PORT,…", help="Brokers to ask; default: the cluster started last."),
]


class CommandFailed(Exception):
    """A verb ends with this text on standard error and this exit code."""

    def __init__(self, message: str, *, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


def print_json(value: Any) -> None:
    """One JSON value, one line."""
    print(json.dumps(value, default=_plain, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Left-aligned columns with a header; numbers to the right. Plain text, so that it can be piped."""
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in texts)]) for at, name in enumerate(columns)]
    numeric = [bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    print(line([name.upper() for name in columns]))
    for row in texts:
        print(line(row))


def show(as_json: bool, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """The same rows as a table, or as a JSON list of objects."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def warn(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(str(item) for item in value) or "-"
    return str(value)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
