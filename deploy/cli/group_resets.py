"""`kraft groups reset-offsets`: show what a reset would do to many groups and topics; do it with --execute.

A plan can be written to a file (`--export`) and carried out later or changed by hand (`--from-file`): CSV as Kafka's
tool writes it, one `[group,]topic,partition,offset` per line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_group, complete_topic
from kraft.deploy.cli.connection import Connection, over_network
from kraft.deploy.cli.output import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    plural,
    print_json,
    print_table,
    progress,
)
from kraft.deploy.cli.times import parse_time_ms, time_before_ms

if TYPE_CHECKING:
    from kraft.client.admin import Admin
    from kraft.client.admin.reset import PlannedReset, ResetRule
    from kraft.client.core.records import TopicPartition

Plans = dict[str, tuple["PlannedReset", ...]]
Row = tuple[str | None, str, int, int]
"""(group, topic, partition, offset) of a file; without a group the row is for each."""

_TARGETS = (
    "--to-earliest, --to-latest, --to-current, --to-datetime, --by-duration, --shift-by, --to-offset or --from-file"
)


@over_network
def reset_offsets(
    connection: Connection,
    group: Annotated[
        list[str], typer.Argument(metavar="GROUP…", autocompletion=complete_group, help="They must have no members.")
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:0,2-4]", help="May be repeated.", autocompletion=complete_topic),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has committed for.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Where it stands, but within what the log holds.")
    ] = False,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="2026-11-21T10:00:00, ms since 1970, or -1h.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="DURATION", help="To so long ago: PT1H30M or 1h30m.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="So many records on; negative: back.")
    ] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="OFFSET", min=0)] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="CSV", help="Lines of [group,]topic,partition,offset.")
    ] = None,
    export: Annotated[Path | None, typer.Option("--export", metavar="CSV", help="Write the plan to a file.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this, the plan is only shown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Set the committed offsets of groups; shows the plan, and does nothing without --execute."""
    if not all(group):
        raise CommandFailed("a group's name is empty; see kraft groups list", code=EXIT_USAGE)
    if from_file is not None and (topic or all_topics):
        raise CommandFailed(
            "--from-file names the partitions itself: leave out --topic and --all-topics", code=EXIT_USAGE
        )
    rows = None if from_file is None else read_plan(from_file)
    for name in group if rows is not None else ():
        if not _rules_of_rows(rows or (), name):
            raise CommandFailed(f"{from_file}: no line is for group {name}", code=EXIT_USAGE)
    flags = {"earliest": to_earliest, "latest": to_latest, "current": to_current}
    times = _times(to_datetime, by_duration)
    rule = _rule([name for name, on in flags.items() if on], times, shift_by, to_offset, rows is not None)
    if rows is None and bool(topic) == all_topics:
        raise CommandFailed("which topics? give either --topic TOPIC[:0,2-4] or --all-topics", code=EXIT_USAGE)

    async def work(admin: Admin) -> Plans:
        from kraft.client.admin.reset import carry_out, plan_reset

        plans: Plans = {}
        with progress("planning", len(group)) as advance:
            for name in group:
                rules = _rules_of_rows(rows, name) if rows is not None else await _rules(admin, name, topic, rule)
                plans[name] = await plan_reset(admin, name, rules)
                advance(1)
        if export is not None:
            write_plan(export, plans)
        if execute:
            for name in group:
                await _require_empty(admin, name)
            with progress("committing", len(group)) as advance:
                for name, plan in plans.items():
                    await carry_out(admin, name, plan)
                    advance(1)
        return plans

    plans = connection.run(work)
    _show(plans, execute, as_json)


async def _require_empty(admin: Admin, group: str) -> None:
    """CommandFailed if a group has members: asked of all groups before any is changed."""
    from kraft.client import KafkaError
    from kraft.wire.error_codes import ErrorCode

    try:
        described = await admin.groups.describe(group)
    except KafkaError as problem:
        if problem.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if described.members:
        raise CommandFailed(
            f"group {group} has active members ({len(described.members)}): stop them first; nothing was changed"
        )


def read_plan(path: Path) -> list[Row]:
    """The rows of a CSV file. CommandFailed names the line that is wrong."""
    try:
        text = path.read_text()
    except OSError as problem:
        raise CommandFailed(f"{path}: {problem.strerror}", code=EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path}: this is no text, and so no plan", code=EXIT_USAGE) from None
    rows: list[Row] = []
    for number, fields in enumerate(csv.reader(text.splitlines()), 1):
        if not fields or fields[0].startswith("#"):
            continue
        try:
            *group, topic, partition, offset = (field.strip() for field in fields)
            if len(group) > 1:
                raise ValueError
            if int(offset) < 0:
                raise ValueError
            rows.append((group[0] if group else None, topic, int(partition), int(offset)))
        except ValueError:
            raise CommandFailed(
                f"{path}, line {number}: expected [group,]topic,partition,offset, not {','.join(fields)}",
                code=EXIT_USAGE,
            ) from None
    if not rows:
        raise CommandFailed(f"{path}: the file holds no line of [group,]topic,partition,offset", code=EXIT_USAGE)
    return rows


def write_plan(path: Path, plans: Plans) -> None:
    """Write plans so that `read_plan` reads them. CommandFailed if the file cannot be written."""
    try:
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for group, plan in plans.items():
                writer.writerows((group, one.topic, one.partition, one.after) for one in plan)
    except OSError as problem:
        raise CommandFailed(f"--export {path}: {problem.strerror}; nothing was changed", code=EXIT_USAGE) from None


def _times(to_datetime: str | None, by_duration: str | None) -> list[int]:
    import time

    now_ms = int(time.time() * 1000)
    found = [] if to_datetime is None else [parse_time_ms(to_datetime, now_ms)]
    return found if by_duration is None else [*found, time_before_ms(by_duration, now_ms)]


def _rule(
    flags: Sequence[str], times: Sequence[int], shift_by: int | None, to_offset: int | None, is_from_file: bool
) -> ResetRule | None:
    """The one rule that was asked for; None for a file. CommandFailed for none or several."""
    from kraft.client.admin.reset import ResetRule, ResetTo

    rules: list[ResetRule | None] = [ResetRule(ResetTo(flag)) for flag in flags]
    rules += [ResetRule(ResetTo.TIME, value) for value in times]
    rules += [] if shift_by is None else [ResetRule(ResetTo.SHIFT, shift_by)]
    rules += [] if to_offset is None else [ResetRule(ResetTo.OFFSET, to_offset)]
    rules += [None] if is_from_file else []
    if len(rules) != 1:
        raise CommandFailed(f"where to? give one of {_TARGETS}", code=EXIT_USAGE)
    return rules[0]


async def _rules(
    admin: Admin, group: str, topics: list[str] | None, rule: ResetRule | None
) -> dict[TopicPartition, ResetRule]:
    from kraft.deploy.cli.topics import choose_partitions

    assert rule is not None
    if topics:
        return dict.fromkeys(await choose_partitions(admin, topics), rule)
    committed = await admin.groups.offsets(group)
    if not committed:
        raise CommandFailed(f"group {group} has committed nothing; name topics with --topic", code=EXIT_NOT_FOUND)
    return dict.fromkeys(sorted(committed), rule)


def _rules_of_rows(rows: Iterable[Row], group: str) -> dict[TopicPartition, ResetRule]:
    from kraft.client.admin.reset import ResetRule, ResetTo

    return {
        (topic, partition): ResetRule(ResetTo.OFFSET, offset)
        for owner, topic, partition, offset in rows
        if owner in (None, group)
    }


def _show(plans: Plans, executed: bool, as_json: bool) -> None:
    changes = sum(one.is_change for plan in plans.values() for one in plan)
    if as_json:
        rows = [
            {
                "group": group,
                "topic": one.topic,
                "partition": one.partition,
                "before": one.before,
                "after": one.after,
                "clamped": one.is_clamped,
            }
            for group, plan in plans.items()
            for one in plan
        ]
        print_json({"executed": executed, "changes": changes, "partitions": rows})
        return
    print_table(
        ["group", "topic", "partition", "before", "after", "change"],
        [
            (group, one.topic, one.partition, one.before, one.after, _change(one))
            for group, plan in plans.items()
            for one in plan
        ],
    )
    if executed:
        print(f"{plural(changes, 'offset')} changed")
    else:
        print(f"{plural(changes, 'offset')} would change; give --execute to do it")


def _change(one: PlannedReset) -> str:
    what = "none"
    if one.is_change:
        what = "new" if one.before is None else f"{one.after - one.before:+d}"
    return f"{what} (clamped)" if one.is_clamped else what
