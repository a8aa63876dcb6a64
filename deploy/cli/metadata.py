"""`kraft metadata`: browse the cluster's metadata as of any offset, compare two offsets, see changes as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.client.metadata_log.errors import BeginsInSnapshot, LogRefused, MetadataLogError, NotInLog
from kraft.deploy.cli.connection import Connection, over_network
from kraft.deploy.cli.output import EXIT_NOT_FOUND, EXIT_USAGE, CommandFailed, JsonOption, plural, print_json
from kraft.deploy.cli.times import format_time, parse_time_ms
from kraft.storage.log_names import METADATA_TOPIC

if TYPE_CHECKING:
    from kraft.client.metadata_log.entries import Entry
    from kraft.client.metadata_log.history import History

app = typer.Typer(help="Browse the cluster's metadata and its history.", no_args_is_help=True, rich_markup_mode=None)

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="DIR", help="Read from the files in or below this folder in place of asking the cluster."
    ),
]
WHEN = "an offset, or a time: 2026-11-21T10:00:00, -1h"


@contextmanager
def _explaining() -> Iterator[None]:
    """Errors of the metadata log become CommandFailed, with what to do."""
    try:
        yield
    except LogRefused as problem:
        raise CommandFailed(
            f"{problem}; give --folder with the data folder of a node or of the whole cluster"
        ) from None
    except BeginsInSnapshot as problem:
        raise CommandFailed(f"{problem}; give --folder with the {METADATA_TOPIC}-0 folder of a node") from None
    except NotInLog as problem:
        raise CommandFailed(str(problem), code=EXIT_NOT_FOUND) from None
    except MetadataLogError as problem:
        raise CommandFailed(str(problem)) from None


@app.command()
@over_network
@_explaining()
def show(
    connection: Connection,
    path: Annotated[
        str, typer.Argument(metavar="[PATH]", help="For example topics/orders, brokers/1 or configs/topic/orders.")
    ] = "",
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHEN", help=f"As it was then: {WHEN}. Default: as it is.")
    ] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the metadata, or a part of it, as it is or as it was."""
    from kraft.client.metadata_log.tree import PathNotFound, find, render, tree_of

    history = _load(connection, folder)
    offset = _offset(history, at)
    if too_early := _too_early(history, at, offset):
        raise CommandFailed(f"--at {at} is before the beginning{too_early}", code=EXIT_NOT_FOUND)
    try:
        found = find(tree_of(history.image_at(offset)), path)
    except PathNotFound as problem:
        raise CommandFailed(str(problem), code=EXIT_NOT_FOUND) from None
    if as_json:
        print_json(found)
    else:
        print("\n".join(render(found)))


@app.command(context_settings={"ignore_unknown_options": True})  # -5m is a time here
@over_network
@_explaining()
def diff(
    connection: Connection,
    before: Annotated[str, typer.Argument(metavar="FROM", help=f"{WHEN}.")],
    after: Annotated[str | None, typer.Argument(metavar="[TO]", help=f"{WHEN}. Default: as it is.")] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between two points of the history."""
    from kraft.client.metadata_log.tree import differences, render_change, tree_of

    history = _load(connection, folder)
    old, new = history.image_at(_offset(history, before)), history.image_at(_offset(history, after))
    changes = [one for one in differences(tree_of(old), tree_of(new)) if not one.path.startswith("cluster/")]
    if as_json:
        print_json({"from": old.offset, "to": new.offset, "changes": changes})
        return
    print(f"from offset {old.offset} to {new.offset}: {plural(len(changes), 'change')}")
    for change in changes:
        print(render_change(change))


@app.command()
@over_network
@_explaining()
def events(
    connection: Connection,
    start: Annotated[str | None, typer.Option("--from", metavar="WHEN", help=f"{WHEN}.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="WHEN", help=f"{WHEN}; exclusive.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show those that come, until ctrl-C; older ones with --from only.")
    ] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the events that made the metadata what it is; with --json one object per line."""
    if follow and end is not None:
        raise CommandFailed("--follow has no end: leave out --to", code=EXIT_USAGE)
    history = _load(connection, folder)
    first, last = _bounds(history, start, end)
    if follow and start is None:
        first = history.end_offset
    for entry in history.entries:
        if first <= entry.offset < last:
            _print(entry, as_json)
    if follow:
        _follow(connection, folder, history.end_offset, as_json)


def _load(connection: Connection, folder: Path | None) -> History:
    if folder is not None:
        from kraft.client.metadata_log.folder import find_folder, load_folder

        return load_folder(find_folder(folder))
    from kraft.client.metadata_log.cluster import load_cluster

    return connection.run_async(lambda: load_cluster(connection.admin(), connection.consumer_settings()))


def _offset(history: History, when: str | None) -> int | None:
    """The offset that was meant; None for the end."""
    import time

    if when is None:
        return None
    return int(when) if when.isdecimal() else history.offset_at(parse_time_ms(when, int(time.time() * 1000)))


def _bounds(history: History, start: str | None, end: str | None) -> tuple[int, int]:
    """The offsets that were meant, `end` exclusive. CommandFailed where no event can be between them."""
    first = history.base.offset if start is None else _offset(history, start) or 0
    last = history.end_offset if end is None else _offset(history, end) or 0
    if first > history.end_offset:
        raise history.no_offset(first)
    if start is not None and (last < first or start == end):
        raise CommandFailed(f"no event is from {start} on and before {end}: --to must be later", code=EXIT_USAGE)
    return first, last


def _too_early(history: History, when: str | None, offset: int | None) -> str:
    """That the history begins later, where nothing of it is before this offset, or its snapshot is of a later time."""
    first = next(iter(history.entries), None)
    if when is None or offset is None or first is None or offset > first.offset:
        return ""
    if history.base.offset > 0 and when.isdecimal():
        return ""
    return f"; the history begins later, at {format_time(first.timestamp_ms)} (offset {first.offset})"


def _follow(connection: Connection, folder: Path | None, start: int, as_json: bool) -> None:
    from kraft.client.metadata_log.cluster import follow_cluster, follow_folder
    from kraft.client.metadata_log.folder import find_folder

    def tell(entry: Entry) -> None:
        _print(entry, as_json)

    async def work() -> None:
        if folder is None:
            await follow_cluster(connection.consumer_settings(), start, None, tell)
        else:
            await follow_folder(find_folder(folder), start, tell)

    connection.run_async(work)


def _print(entry: Entry, as_json: bool) -> None:
    from kraft.client.metadata_log.event_fields import event_fields

    fields = event_fields(entry.event)
    if as_json:
        head = {"offset": entry.offset, "epoch": entry.epoch, "timestamp_ms": entry.timestamp_ms}
        print_json({**head, **fields})
        sys.stdout.flush()
        return
    kind = fields.pop("type")
    shown = " ".join(f"{name}={value}" for name, value in fields.items() if value not in (None, [], ""))
    print(f"{entry.offset:8} {format_time(entry.timestamp_ms)} {kind} {shown}", flush=True)
