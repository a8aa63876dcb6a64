"""`kraft metadata`: show the cluster's metadata at any offset, compare two offsets, follow changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.client.metadata_log.errors import BeginsInSnapshot, LogRefused, MetadataLogError, NotInLog
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import EXIT_NOT_FOUND, EXIT_USAGE, CommandFailed, JsonOption, plural, print_json
from kraft.deploy.cli.times import format_time, parse_time_ms
from kraft.storage.log_names import METADATA_TOPIC

if TYPE_CHECKING:
    from kraft.client.metadata_log.entries import Entry
    from kraft.client.metadata_log.history import History

app = typer.Typer(help="Show the cluster's metadata and its history.", no_args_is_help=True, rich_markup_mode=None)

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Read from the files in or below this folder, not from the cluster."),
]
WHEN = "an offset, or a time: 2026-11-21T10:00:00, -1h"


@contextmanager
def _as_command_failed() -> Iterator[None]:
    """Turn errors of the metadata log into CommandFailed, with advice on what to do."""
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
@_as_command_failed()
def show(
    connection: ClusterConnection,
    path: Annotated[
        str, typer.Argument(metavar="[PATH]", help="For example topics/orders, brokers/1 or configs/topic/orders.")
    ] = "",
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHEN", help=f"State at {WHEN}. Default: the current state.")
    ] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all or part of the metadata, as it is now or as it was."""
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


@app.command(context_settings={"ignore_unknown_options": True})  # makes -5m a time instead of an option
@over_network
@_as_command_failed()
def diff(
    connection: ClusterConnection,
    before: Annotated[str, typer.Argument(metavar="FROM", help=f"{WHEN}.")],
    after: Annotated[str | None, typer.Argument(metavar="[TO]", help=f"{WHEN}. Default: the current state.")] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the differences between two points of the history."""
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
@_as_command_failed()
def events(
    connection: ClusterConnection,
    start: Annotated[str | None, typer.Option("--from", metavar="WHEN", help=f"{WHEN}.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="WHEN", help=f"{WHEN}; exclusive.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new events until ctrl-C; older ones only with --from.")
    ] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the events that produced the metadata; with --json one object per line."""
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


def _load(connection: ClusterConnection, folder: Path | None) -> History:
    if folder is not None:
        from kraft.client.metadata_log.folder import find_folder, load_folder

        return load_folder(find_folder(folder))
    from kraft.client.metadata_log.cluster import load_cluster

    return connection.run_async(lambda: load_cluster(connection.admin(), connection.consumer_settings()))


def _offset(history: History, when: str | None) -> int | None:
    """Return the offset that the user's text denotes; None for the end of the log."""
    import time

    if when is None:
        return None
    return int(when) if when.isdecimal() else history.offset_at(parse_time_ms(when, int(time.time() * 1000)))


def _bounds(history: History, start: str | None, end: str | None) -> tuple[int, int]:
    """Return the first offset and the end offset (exclusive) that the user's options denote. Raise CommandFailed if no
    event can lie between them."""
    first = history.base.offset if start is None else _offset(history, start) or 0
    last = history.end_offset if end is None else _offset(history, end) or 0
    if first > history.end_offset:
        raise history.no_offset(first)
    if start is not None and (last < first or start == end):
        raise CommandFailed(f"no event is from {start} on and before {end}: --to must be later", code=EXIT_USAGE)
    return first, last


def _too_early(history: History, when: str | None, offset: int | None) -> str:
    """Return the remark that the history begins later than the given point, if no event precedes this offset; else an
    empty text."""
    first = next(iter(history.entries), None)
    if when is None or offset is None or first is None or offset > first.offset:
        return ""
    if history.base.offset > 0 and when.isdecimal():
        return ""
    return f"; the history begins later, at {format_time(first.timestamp_ms)} (offset {first.offset})"


def _follow(connection: ClusterConnection, folder: Path | None, start: int, as_json: bool) -> None:
    from kraft.client.metadata_log.cluster import follow_cluster, follow_folder
    from kraft.client.metadata_log.folder import find_folder

    def print_entry(entry: Entry) -> None:
        _print(entry, as_json)

    async def work() -> None:
        if folder is None:
            await follow_cluster(connection.consumer_settings(), start, None, print_entry)
        else:
            await follow_folder(find_folder(folder), start, print_entry)

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
