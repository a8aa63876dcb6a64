"""`kraft log`: inspect the files of a data folder, whether the node is running or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kraft.deploy.cli.output import EXIT_NOT_FOUND, EXIT_USAGE, CommandFailed, JsonOption, plural, print_json

app = typer.Typer(help="Inspect the files of a data folder.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def log() -> None:
    """Inspect the files of a data folder."""


@app.command()
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Files, or folders of partitions.")],
    batches_only: Annotated[
        bool, typer.Option("--batches-only", help="Show batches only, without records and events.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show segments, indexes, snapshots, checkpoints and metadata events; with --json one object per line. Fails if
    anything is damaged."""
    from kraft.deploy.cli.log_dump import dump_files

    damaged = 0
    for path in paths:
        if not path.exists():
            raise CommandFailed(f"there is no {path}", code=EXIT_NOT_FOUND)
        try:
            damaged += sum(_dump(file, batches_only, as_json) for file in dump_files(path))
        except ValueError as problem:
            raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    if damaged:
        raise CommandFailed(f"{plural(damaged, 'place')} of what was shown cannot be read: damage, or a wrong checksum")


def _dump(file: Path, batches_only: bool, as_json: bool) -> int:
    """Print one file and return the number of damaged places."""
    from kraft.deploy.cli.log_dump import dump_file

    damaged = 0
    rows = dump_file(file, with_records=not batches_only)
    if not as_json:
        print(f"# {file}")
    for row in rows:
        print_json({"file": str(file), **row}) if as_json else print(_line(row))
        damaged += row["kind"] == "damage" or row.get("crc_ok") is False
    return damaged


def _line(row: dict[str, Any]) -> str:
    fields = dict(row)
    kind = fields.pop("kind")
    if kind == "line":
        return f"{fields['number']:6} {fields['text']}"
    indent = "  " if kind in ("record", "event", "control") else ""
    if kind == "event":
        kind = fields.pop("type")
    shown = (f"{name}={value}" for name, value in fields.items() if value not in (None, [], ""))
    return f"{indent}{kind} {' '.join(shown)}"
