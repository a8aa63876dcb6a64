"""Output of all commands: tables for people, one JSON value with `--json`, and exit codes.

Tables are plain text when they are piped; on a terminal their header is bold (`NO_COLOR` turns that off).

Exit codes: 0 done · 1 refused or failed · 2 wrong arguments or configuration · 3 no cluster responded · 4 the named
thing does not exist · 70 a bug in this program.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Protocol, TextIO
from uuid import UUID

import typer

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_NOT_FOUND = 4
EXIT_FAULT = 70

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Folder of the cluster; default: the running one started last."),
]


YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class CommandFailed(Exception):
    """Failure of a command: prints this text on standard error and ends the command with this exit code."""

    def __init__(self, message: str, *, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


def print_json(value: Any) -> None:
    """Print a JSON value on one line; in ASCII if the output cannot encode all characters."""
    takes_all = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(plain(value), ensure_ascii=not takes_all))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on standard output."""
    print(table(columns, rows), flush=True)  # a plan must be seen before the wait that follows it, also in a pipe


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the lines of a table: left-aligned columns with a header, numbers to the right. Plain text, so that it can
    be piped."""
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in texts)]) for at, name in enumerate(columns)]
    numeric = [_is_numeric([row[at] for row in rows]) for at in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    header = emphasized(line([name.upper().replace("_", " ") for name in columns]))
    return "\n".join([header, *(line(row) for row in texts)])


def show(as_json: bool, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows either as a table or as a JSON list of objects."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def warn(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr)


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask for confirmation on a terminal, unless `--yes` was given. Without a terminal, `--yes` is required. Raise
    CommandFailed if the answer is no."""
    if is_confirmed:
        return
    if not is_terminal(sys.stdin):
        raise CommandFailed(f"{question} give --yes to say so", code=EXIT_USAGE)
    warn(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was done")


def emphasized(text: str) -> str:
    """Return the text in bold if standard output is a terminal."""
    return f"\x1b[1m{text}\x1b[0m" if is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") else text


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: `1 record`, `2 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: int | None) -> str | None:
    """Return a number of bytes in readable form: 1.5 MiB."""
    if count is None:
        return None
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


class Advance(Protocol):
    """Function that advances a progress bar by `count`. If `label` is given, the bar shows this text from then on."""

    def __call__(self, count: int, label: str | None = None) -> None: ...


@contextmanager
def progress(label: str, total: int | None, *, is_shown: bool = True) -> Iterator[Advance]:
    """Show a progress bar on standard error, if that is a terminal and `is_shown` is true."""
    if not is_shown or not is_terminal(sys.stderr):
        yield lambda count, label=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # While the bar is shown, output to the terminal is printed above it. Redirected output is not affected.
    with Progress(*columns, console=console, transient=True, redirect_stdout=is_terminal(sys.stdout)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count, label=None: bar.update(task, advance=count, description=label)


def plain(value: Any) -> Any:
    """Convert a value to JSON's types: a dataclass to an object, an enum to its name, bytes to text, and an id to
    base64 as in Kafka."""
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, UUID):
        from kraft.seam.ids import encode_uuid

        return encode_uuid(value)
    return str(value)


def _is_numeric(values: Sequence[object]) -> bool:
    given = [value for value in values if value is not None]
    return bool(given) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(str(item) for item in value) or "-"
    return str(value)
