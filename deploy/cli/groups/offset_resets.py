"""`kraft groups reset-offsets`: show what a reset would change in many groups and topics; do it with --execute.

A plan can be written to a file (`--export`), edited, and executed later (`--from-file`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_group, complete_topic
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.groups.reset_file import Plan, PlanRow, Plans, read_plan, write_plan
from kraft.deploy.cli.output import (
    EXIT_NOT_FOUND,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    plural,
    print_json,
    print_table,
    progress,
    warn,
)
from kraft.deploy.cli.several import NameResult, attempt_each, exit_code
from kraft.deploy.cli.times import parse_time_ms, time_before_ms

if TYPE_CHECKING:
    from kraft.client.admin import Admin
    from kraft.client.admin.reset import PlannedReset, ResetRule
    from kraft.client.core.records import TopicPartition

CONSUMER_TYPES = ("Classic", "Consumer")
CONSUMER_PROTOCOLS = ("consumer", "")
"""Protocol types of groups that a consumer can join. The empty type: no member has ever joined, the group has only
offsets."""

_TARGETS = (
    "--to-earliest, --to-latest, --to-current, --to-datetime, --by-duration, --shift-by, --to-offset or --from-file"
)


GroupsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP…]", autocompletion=complete_group, help="Groups without members."),
]
AllGroupsOption = Annotated[bool, typer.Option("--all-groups", help="All consumer groups, instead of names.")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:0,2-4]", help="May be repeated.", autocompletion=complete_topic),
]
AllTopicsOption = Annotated[bool, typer.Option("--all-topics", help="All partitions that the group has committed for.")]
EarliestOption = Annotated[bool, typer.Option("--to-earliest", help="Move to the first record.")]
LatestOption = Annotated[bool, typer.Option("--to-latest", help="Move to the end.")]
CurrentOption = Annotated[bool, typer.Option("--to-current", help="Keep the offset, but within the log.")]
DatetimeOption = Annotated[
    str | None, typer.Option("--to-datetime", metavar="TIME", help="2026-11-21T10:00:00, ms since 1970, or -1h.")
]
DurationOption = Annotated[
    str | None, typer.Option("--by-duration", metavar="DURATION", help="Move to this long ago: PT1H30M or 1h30m.")
]
ShiftOption = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="Move forward by N records; negative: back.")
]
OffsetOption = Annotated[int | None, typer.Option("--to-offset", metavar="OFFSET", min=0)]
FromFileOption = Annotated[
    Path | None, typer.Option("--from-file", metavar="CSV", help="Lines of [group,]topic,partition,offset.")
]
ExportOption = Annotated[Path | None, typer.Option("--export", metavar="CSV", help="Write the plan to a file.")]
ExecuteOption = Annotated[bool, typer.Option("--execute", help="Do it; without this, the plan is only shown.")]


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """A reset as the user requested it: which groups (None: all that exist), and to which offsets.

    The offsets are given either by one `rule` for the partitions of `topics` (None: every partition for which the group
    has committed an offset), or by the `rows` of a file."""

    groups: tuple[str, ...] | None
    topics: list[str] | None = None
    rule: ResetRule | None = None
    rows: list[PlanRow] | None = None


@over_network
def reset_offsets(
    connection: ClusterConnection,
    group: GroupsArgument = None,
    all_groups: AllGroupsOption = False,
    topic: TopicsOption = None,
    all_topics: AllTopicsOption = False,
    to_earliest: EarliestOption = False,
    to_latest: LatestOption = False,
    to_current: CurrentOption = False,
    to_datetime: DatetimeOption = None,
    by_duration: DurationOption = None,
    shift_by: ShiftOption = None,
    to_offset: OffsetOption = None,
    from_file: FromFileOption = None,
    export: ExportOption = None,
    execute: ExecuteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set the committed offsets of groups, or the start offsets of share groups. Without --execute, only show the
    plan."""
    groups = _chosen_groups(group or [], all_groups)
    _require_topics(topic, all_topics, from_file)
    rows = None if from_file is None else _rows_for(groups, from_file)
    flags = {"earliest": to_earliest, "latest": to_latest, "current": to_current}
    times = _times(to_datetime, by_duration)
    rule = _rule([name for name, on in flags.items() if on], times, shift_by, to_offset, rows is not None)
    wanted = ResetRequest(groups, topic or None, rule, rows)

    async def work(admin: Admin) -> tuple[Plans, list[NameResult[Plan]]]:
        plans = await make_plans(admin, wanted)
        if export is not None:
            write_plan(export, plans)
        if not execute:
            return plans, []
        await require_empty(admin, plans)
        return plans, await carry_out_plans(admin, plans)

    plans, outcomes = connection.run(work)
    if execute:
        show_outcomes(outcomes, as_json)
    else:
        _show(plans, as_json)


def _chosen_groups(names: list[str], all_groups: bool) -> tuple[str, ...] | None:
    """Return the names of the chosen groups; None if all groups are chosen. Raise CommandFailed if the options name
    neither groups nor all of them, or both, or if a name is empty."""
    if bool(names) == all_groups:
        raise CommandFailed("which groups? give either GROUP… or --all-groups", code=EXIT_USAGE)
    if not all(names):
        raise CommandFailed("a group's name is empty; see kraft groups list", code=EXIT_USAGE)
    return None if all_groups else tuple(dict.fromkeys(names))


def _require_topics(topics: list[str] | None, all_topics: bool, from_file: Path | None) -> None:
    """Raise CommandFailed unless exactly one source names the partitions: `--topic`, `--all-topics` or the file."""
    if from_file is not None and (topics or all_topics):
        raise CommandFailed(
            "--from-file names the partitions itself: leave out --topic and --all-topics", code=EXIT_USAGE
        )
    if from_file is None and bool(topics) == all_topics:
        raise CommandFailed("which topics? give either --topic TOPIC[:0,2-4] or --all-topics", code=EXIT_USAGE)


def _rows_for(groups: Iterable[str] | None, path: Path) -> list[PlanRow]:
    """Return the rows of a plan file. Raise CommandFailed if a named group has no row in the file."""
    rows = read_plan(path)
    for name in groups or ():
        if not _rules_of_rows(rows, name):
            raise CommandFailed(f"{path}: no line is for group {name}", code=EXIT_USAGE)
    return rows


async def make_plans(admin: Admin, wanted: ResetRequest) -> Plans:
    """Return the planned resets of each affected group; change nothing."""
    from kraft.client.admin.reset import find_bounds, plan_reset

    groups = await _groups_there(admin, wanted.rows or ()) if wanted.groups is None else wanted.groups
    shared = await _shared_rules(admin, wanted)
    bounds = None if shared is None else await find_bounds(admin, shared)
    plans: Plans = {}
    with progress("planning", len(groups)) as advance:
        for name in groups:
            rules = await _rules(admin, name, wanted) if shared is None else shared
            if rules:
                plans[name] = await plan_reset(admin, name, rules, bounds)
            advance(1)
    return plans


async def _groups_there(admin: Admin, rows: Iterable[PlanRow]) -> tuple[str, ...]:
    """Return the existing consumer groups. Raise CommandFailed if a row names a group that does not exist.

    Share groups and the groups of Connect's workers are left out, because they have no such offsets. The group with the
    empty name is left out too, because offsets cannot be committed for it."""
    there = tuple(
        one.group_id
        for one in await admin.groups.list()
        if one.group_id and one.type in CONSUMER_TYPES and one.protocol_type in CONSUMER_PROTOCOLS
    )
    missing = sorted({owner for owner, *_ in rows if owner is not None and owner not in there})
    if missing:
        raise CommandFailed(
            f"--from-file has lines for groups that are not there: {', '.join(missing)}; name groups instead of "
            "--all-groups to make them",
            code=EXIT_NOT_FOUND,
        )
    return there


async def _shared_rules(admin: Admin, wanted: ResetRequest) -> dict[TopicPartition, ResetRule] | None:
    """Return the rule of each partition of the named topics, the same for every group; None if no topics are named."""
    if wanted.topics is None:
        return None
    from kraft.deploy.cli.topics import choose_partitions

    assert wanted.rule is not None
    return dict.fromkeys(await choose_partitions(admin, wanted.topics), wanted.rule)


async def _rules(admin: Admin, group: str, wanted: ResetRequest) -> dict[TopicPartition, ResetRule]:
    """Return the rule of each partition of one group, for a reset that names no topics. The result is empty only with
    --all-groups, if the group has nothing to reset. Raise CommandFailed if a named group has committed nothing."""
    if wanted.rows is not None:
        return _rules_of_rows(wanted.rows, group)
    assert wanted.rule is not None
    from kraft.client.admin.reset import offsets_of

    committed = await (await offsets_of(admin, group)).offsets(group)
    if not committed and wanted.groups is not None:
        raise CommandFailed(f"group {group} has committed nothing; name topics with --topic", code=EXIT_NOT_FOUND)
    return dict.fromkeys(sorted(committed), wanted.rule)


async def require_empty(admin: Admin, groups: Iterable[str]) -> None:
    """Raise CommandFailed with the names of all groups that have members. Every group is checked before any is
    changed."""
    counts = {name: await _member_count(admin, name) for name in groups}
    busy = [f"{name} ({count})" for name, count in counts.items() if count]
    if busy:
        subject = f"group {busy[0]} has" if len(busy) == 1 else f"groups {', '.join(busy)} have"
        raise CommandFailed(f"{subject} active members: stop them first; nothing was changed")


async def _member_count(admin: Admin, group: str) -> int:
    """Return the number of members of a group; 0 also for a group that does not exist yet."""
    from kraft.client import KafkaError
    from kraft.wire.error_codes import ErrorCode

    try:
        return len((await admin.groups.describe(group)).members)
    except KafkaError as problem:
        if problem.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return 0
        raise


async def carry_out_plans(admin: Admin, plans: Plans) -> list[NameResult[Plan]]:
    """Commit the planned offsets, one group after the other. Return per group either its plan or the reason why it
    failed."""
    from kraft.client.admin.reset import carry_out
    from kraft.client.cluster import ClusterUnreachable
    from kraft.client.connections import CONNECTION_FAILURES

    async def carry_out_one(name: str) -> Plan:
        try:
            await carry_out(admin, name, plans[name])
        except (ClusterUnreachable, *CONNECTION_FAILURES) as silence:
            text = f"group {name}: {silence}; kraft groups describe shows whether its offsets have changed"
            raise CommandFailed(text, code=EXIT_UNREACHABLE) from None
        finally:
            advance(1)
        return plans[name]

    with progress("committing", len(plans)) as advance:
        return await attempt_each(list(plans), carry_out_one)


def _times(to_datetime: str | None, by_duration: str | None) -> list[int]:
    import time

    now_ms = int(time.time() * 1000)
    found = [] if to_datetime is None else [parse_time_ms(to_datetime, now_ms)]
    return found if by_duration is None else [*found, time_before_ms(by_duration, now_ms)]


def _rule(
    flags: Sequence[str], times: Sequence[int], shift_by: int | None, to_offset: int | None, is_from_file: bool
) -> ResetRule | None:
    """Return the one rule that the options give; None if the offsets come from a file. Raise CommandFailed for no rule
    or several."""
    from kraft.client.admin.reset import ResetRule, ResetTo

    rules: list[ResetRule | None] = [ResetRule(ResetTo(flag)) for flag in flags]
    rules += [ResetRule(ResetTo.TIME, value) for value in times]
    rules += [] if shift_by is None else [ResetRule(ResetTo.SHIFT, shift_by)]
    rules += [] if to_offset is None else [ResetRule(ResetTo.OFFSET, to_offset)]
    rules += [None] if is_from_file else []
    if len(rules) != 1:
        raise CommandFailed(f"where to? give {'only ' if rules else ''}one of {_TARGETS}", code=EXIT_USAGE)
    return rules[0]


def _rules_of_rows(rows: Iterable[PlanRow], group: str) -> dict[TopicPartition, ResetRule]:
    from kraft.client.admin.reset import ResetRule, ResetTo

    return {
        (topic, partition): ResetRule(ResetTo.OFFSET, offset)
        for owner, topic, partition, offset in rows
        if owner in (None, group)
    }


def _show(plans: Plans, as_json: bool) -> None:
    """Print what the reset would change."""
    if as_json:
        print_json({"executed": False, "changes": _changes(plans), "partitions": _json_rows(plans)})
        return
    _print_plans(plans)
    print(f"{plural(_changes(plans), 'offset')} would change; give --execute to do it")


def show_outcomes(outcomes: Sequence[NameResult[Plan]], as_json: bool) -> None:
    """Print what was changed, and on standard error the groups that failed; then exit with the code of the failures, if
    any. Raise CommandFailed if there was only one group and it failed."""
    failed = [one.problem for one in outcomes if one.problem is not None]
    if failed and len(outcomes) == 1:
        raise failed[0]
    done = {one.name: one.value for one in outcomes if one.value is not None}
    if as_json:
        failures = [{"group": one.name, "error": str(one.problem)} for one in outcomes if one.problem is not None]
        shown = {"executed": True, "changes": _changes(done), "partitions": _json_rows(done), "failures": failures}
        print_json(shown)
    else:
        _print_plans(done)
        print(f"{plural(_changes(done), 'offset')} changed")
    for problem in failed:
        warn(f"kraft: {problem}")
    if failed:
        raise typer.Exit(exit_code(failed))


def _changes(plans: Plans) -> int:
    return sum(one.is_change for plan in plans.values() for one in plan)


def _json_rows(plans: Plans) -> list[dict[str, object]]:
    return [
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


def _print_plans(plans: Plans) -> None:
    print_table(
        ["group", "topic", "partition", "before", "after", "change"],
        [
            (group, one.topic, one.partition, one.before, one.after, _change(one))
            for group, plan in plans.items()
            for one in plan
        ],
    )


def _change(one: PlannedReset) -> str:
    what = "none"
    if one.is_change:
        what = "new" if one.before is None else f"{one.after - one.before:+d}"
    return f"{what} (clamped)" if one.is_clamped else what
