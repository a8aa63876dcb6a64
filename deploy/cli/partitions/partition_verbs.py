"""`kraft partitions`: show offsets, leaders and producers of partitions; delete old records, elect leaders, move
replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.deploy.cli.completing import complete_broker, complete_topic, one_of
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import (
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    CommandFailed,
    JsonOption,
    YesOption,
    confirm,
    print_json,
    print_table,
    show,
    warn,
)
from kraft.deploy.cli.partitions import reassign
from kraft.deploy.cli.partitions.producers import producers
from kraft.deploy.cli.times import format_time, parse_time_ms

if TYPE_CHECKING:
    from kraft.client.admin import Admin, FoundOffset, PartitionDescription

app = typer.Typer(
    help="Show partitions, delete old records, elect leaders, move replicas.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(reassign.app, name="reassign")

PartitionsArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC[:0,2-4]…", autocompletion=complete_topic, help="All partitions, or these.")
]


@dataclass(frozen=True, slots=True)
class FoundOffsets:
    """Offsets of partitions, and the errors of partitions whose offset could not be found. A partition in neither has
    no record at or after the requested time."""

    offsets: Mapping[tuple[str, int], FoundOffset]
    problems: Mapping[tuple[str, int], str]


@app.command("list")
@over_network
def list_partitions(connection: ClusterConnection, topic: PartitionsArgument, as_json: JsonOption = False) -> None:
    """Show partitions: leader, in-sync replicas, first and next offset, number of offsets between them. A partition
    without a leader has no offsets. If a leader does not respond, its partitions have an `error` in JSON, and the exit
    code is 1."""

    async def work(admin: Admin) -> tuple[list[PartitionDescription], FoundOffsets, FoundOffsets]:
        from kraft.client.admin import EARLIEST, LATEST
        from kraft.deploy.cli.topics import choose_described

        parts = await choose_described(admin, topic)
        # the leader column shows which partitions have none; they have no offsets
        led = {tp: part for tp, part in parts.items() if part.leader is not None}
        first = await _find_offsets(admin, led, EARLIEST)
        end = await _find_offsets(admin, {tp: led[tp] for tp in first.offsets}, LATEST)
        return list(parts.values()), first, end

    parts, first, end = connection.run(work)
    rows = []
    for part in parts:
        tp = (part.topic, part.index)
        bounds = [None if tp not in one.offsets else one.offsets[tp].offset for one in (first, end)]
        count = None if bounds[0] is None or bounds[1] is None else bounds[1] - bounds[0]
        rows.append((*tp, part.leader, part.replicas, part.isr, *bounds, count))
    columns = ["topic", "partition", "leader", "replicas", "isr", "first_offset", "end_offset", "offsets"]
    _show(as_json, columns, rows, {**first.problems, **end.problems})


@app.command()
@over_network
def offsets(
    connection: ClusterConnection,
    topic: PartitionsArgument,
    at: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="earliest, latest, newest (the record with the largest timestamp), or a time: 2026-11-21T10:00, -1h.",
            autocompletion=one_of("earliest", "latest", "newest"),
        ),
    ] = "latest",
    as_json: JsonOption = False,
) -> None:
    """Show the offset of each partition at a point in time. A partition that has no leader, or whose leader does not
    respond, has an `error` in JSON, and the exit code is 1."""
    from kraft.client.admin import EARLIEST, LATEST, MAX_TIMESTAMP

    named = {"earliest": EARLIEST, "latest": LATEST, "newest": MAX_TIMESTAMP}
    when = named[at] if at in named else parse_time_ms(at, _now_ms())

    async def work(admin: Admin) -> tuple[list[tuple[str, int]], FoundOffsets]:
        from kraft.deploy.cli.topics import choose_described

        parts = await choose_described(admin, topic)
        return list(parts), await _find_offsets(admin, parts, when)

    chosen, found = connection.run(work)
    rows = []
    for tp in chosen:
        one = found.offsets.get(tp)
        rows.append((*tp, None, None) if one is None else (*tp, one.offset, format_time(one.timestamp_ms)))
    _show(as_json, ["topic", "partition", "offset", "timestamp"], rows, found.problems)


@app.command("delete-records")
@over_network
def delete_records(
    connection: ClusterConnection,
    topic: PartitionsArgument,
    before: Annotated[
        str, typer.Option(metavar="OFFSET", help="The first offset to keep; a number, a time, or latest: delete all.")
    ],
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the records before an offset, for all consumers."""
    time_ms = None if before == "latest" or before.isdecimal() else parse_time_ms(before, _now_ms())
    confirm(f"delete all records of {', '.join(topic)} before {before}?", is_confirmed=yes)

    async def work(admin: Admin) -> list[tuple[str, int, int]]:
        from kraft.client.admin import LATEST
        from kraft.deploy.cli.topics import choose_partitions, offsets_at_time

        chosen = await choose_partitions(admin, topic)
        found = await admin.partitions.offsets(dict.fromkeys(chosen, LATEST))
        wanted = {tp: found[tp].offset for tp in chosen}
        if time_ms is not None:
            wanted = await offsets_at_time(admin, time_ms, wanted)
        elif before != "latest":
            _require_within(int(before), wanted)
            wanted = dict.fromkeys(chosen, int(before))
        first = await admin.partitions.delete_records(wanted)
        return [(*tp, offset) for tp, offset in sorted(first.items())]

    show(as_json, ["topic", "partition", "first_offset"], connection.run(work))


def _require_within(before: int, ends: Mapping[tuple[str, int], int]) -> None:
    """Raise CommandFailed if an offset is beyond the end of its partition. Called before any record is deleted."""
    short = next((tp for tp in ends if before > ends[tp]), None)
    if short is not None:
        raise CommandFailed(
            f"--before {before}: {short[0]}-{short[1]} ends at {ends[short]}; nothing was deleted (--before latest "
            "deletes all, and TOPIC:0,2 names partitions)",
            code=EXIT_NOT_FOUND,
        )


@app.command()
@over_network
def elect(
    connection: ClusterConnection,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:0,2-4]…]", help="Default: all.", autocompletion=complete_topic),
    ] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Elect any live replica where there is no leader. Records may be lost.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Elect the preferred replicas as leaders; with --unclean, elect any live replica."""
    confirm("an unclean election may lose acknowledged records; continue?", is_confirmed=yes or not unclean)

    async def work(admin: Admin) -> list[tuple[str, int, str]]:
        from kraft.client.admin import ElectionType
        from kraft.deploy.cli.topics import choose_partitions
        from kraft.wire.error_codes import ErrorCode

        chosen = await choose_partitions(admin, topic) if topic else None
        election = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        results = await admin.partitions.elect_leaders(election, chosen)
        rows = []
        for tp, problem in sorted(results.items()):
            if problem is None:
                rows.append((*tp, "elected"))
            elif problem.code is ErrorCode.ELECTION_NOT_NEEDED:
                rows.append((*tp, "not needed"))
            else:
                rows.append((*tp, str(problem)))
        return rows

    rows = connection.run(work)
    if rows or as_json:
        show(as_json, ["topic", "partition", "result"], rows)
    else:
        print("nothing to do: the preferred replicas are leaders already")
    if any(result not in ("elected", "not needed") for _, _, result in rows):
        raise typer.Exit(EXIT_FAILED)


@app.command("move-to-dir")
@over_network
def move_to_directory(
    connection: ClusterConnection,
    topic: PartitionsArgument,
    broker: Annotated[
        int, typer.Option(metavar="ID", help="The broker whose replicas move.", autocompletion=complete_broker)
    ],
    to: Annotated[str, typer.Option(metavar="PATH", help="One of its log directories, as kraft logdirs shows them.")],
    as_json: JsonOption = False,
) -> None:
    """Move a broker's replicas into another of its log directories. Naming the directory where they are now cancels a
    move. `kraft logdirs --replicas` shows the progress."""

    async def work(admin: Admin) -> list[tuple[object, ...]]:
        from kraft.deploy.cli.topics import choose_partitions

        chosen = await choose_partitions(admin, topic)
        results = await admin.nodes.move_replicas(broker, dict.fromkeys(chosen, to))
        return [(*tp, "begun" if problem is None else str(problem)) for tp, problem in sorted(results.items())]

    rows = connection.run(work)
    show(as_json, ["topic", "partition", "result"], rows)
    if any(row[-1] != "begun" for row in rows):
        raise typer.Exit(EXIT_FAILED)


app.command()(producers)


async def _find_offsets(admin: Admin, parts: Mapping[tuple[str, int], PartitionDescription], when: int) -> FoundOffsets:
    """Return the offsets of partitions. Partitions that have no leader according to the metadata are not requested, so
    the command does not wait for them."""
    from kraft.client import KafkaError
    from kraft.deploy.cli.admin import sentence
    from kraft.wire.error_codes import ErrorCode

    outcomes: dict[tuple[str, int], FoundOffset | KafkaError] = {
        tp: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp[0]}-{tp[1]} has no leader now")
        for tp, part in parts.items()
        if part.leader is None
    }
    outcomes |= await admin.partitions.offsets_of_each({tp: when for tp in parts if tp not in outcomes})
    found, problems = {}, {}
    for tp, outcome in sorted(outcomes.items()):
        if isinstance(outcome, KafkaError):
            problems[tp] = sentence(outcome)
        elif outcome.offset >= 0:
            found[tp] = outcome
    return FoundOffsets(found, problems)


def _show(
    as_json: bool,
    columns: list[str],
    rows: list[tuple[Any, ...]],
    problems: Mapping[tuple[str, int], str],
) -> None:
    """Print rows, each beginning with a topic and a partition. Then print on standard error the partitions without a
    result, and exit with code 1 if there are any."""
    if as_json:
        errors = {tp: {"error": problem} for tp, problem in problems.items()}
        print_json([{**dict(zip(columns, row, strict=True)), **errors.get(row[:2], {})} for row in rows])
    else:
        print_table(columns, rows)
    for problem in problems.values():
        warn(f"kraft: {problem}")
    if problems:
        raise typer.Exit(EXIT_FAILED)


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)
