"""Where a group's offsets are set to: one rule for many partitions, decided before anything is changed.

`decide_offset` is pure; `plan_reset` asks a cluster for what it needs. Offsets stay within what the log holds, as
Kafka's tools do it: an offset before the log's start becomes the start, one behind its end the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kraft.client.admin.partitions import EARLIEST, LATEST
from kraft.client.core.records import TopicPartition

if TYPE_CHECKING:
    from kraft.client.admin.admin import Admin


class ResetTo(Enum):
    """What a reset aims at; TIME, SHIFT and OFFSET take a value."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    TIME = "time"
    SHIFT = "shift"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class ResetRule:
    """`value`: ms since 1970 for TIME, a number of records (negative: back) for SHIFT, an offset for OFFSET."""

    to: ResetTo
    value: int = 0


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """What a partition holds: its first offset, the one after its last, and the first at or after the rule's time."""

    earliest: int
    latest: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedReset:
    """One partition of a plan. `before` is None where the group has not committed; `is_clamped`: the rule leads out of
    the log, and `after` is the nearest offset in it."""

    topic: str
    partition: int
    before: int | None
    after: int
    is_clamped: bool = False

    @property
    def is_change(self) -> bool:
        return self.before != self.after


def decide_offset(rule: ResetRule, committed: int | None, bounds: OffsetBounds) -> int:
    """The new offset, within what the log holds."""
    return max(bounds.earliest, min(bounds.latest, wanted_offset(rule, committed, bounds)))


def wanted_offset(rule: ResetRule, committed: int | None, bounds: OffsetBounds) -> int:
    """Where a rule leads. A group that has not committed is taken to stand at the end, which is Kafka's default."""
    current = bounds.latest if committed is None else committed
    match rule.to:
        case ResetTo.EARLIEST:
            return bounds.earliest
        case ResetTo.LATEST:
            return bounds.latest
        case ResetTo.CURRENT:
            return current
        case ResetTo.TIME:
            return bounds.latest if bounds.at_time is None else bounds.at_time
        case ResetTo.SHIFT:
            return current + rule.value
        case ResetTo.OFFSET:
            return rule.value


async def plan_reset(
    admin: Admin,
    group_id: str,
    rules: Mapping[TopicPartition, ResetRule],
    bounds: Mapping[TopicPartition, OffsetBounds] | None = None,
) -> tuple[PlannedReset, ...]:
    """What a reset would do, in order; nothing is changed. `bounds`: of the partitions, if they are known already."""
    committed = await admin.groups.offsets(group_id)
    if bounds is None:
        bounds = await find_bounds(admin, rules)
    plan = []
    for tp in sorted(rules):
        known = committed.get(tp)
        before = None if known is None else known.offset
        after = decide_offset(rules[tp], before, bounds[tp])
        plan.append(PlannedReset(*tp, before, after, after != wanted_offset(rules[tp], before, bounds[tp])))
    return tuple(plan)


async def carry_out(admin: Admin, group_id: str, plan: Iterable[PlannedReset]) -> None:
    """Commit what a plan says. KafkaError if the group has members."""
    offsets = {(one.topic, one.partition): one.after for one in plan if one.is_change}
    if offsets:
        await admin.groups.alter_offsets(group_id, offsets)


async def find_bounds(admin: Admin, rules: Mapping[TopicPartition, ResetRule]) -> dict[TopicPartition, OffsetBounds]:
    """What each partition holds now; its `at_time` if its rule is for a time."""
    first = await admin.partitions.offsets(dict.fromkeys(rules, EARLIEST))
    end = await admin.partitions.offsets(dict.fromkeys(rules, LATEST))
    times = {tp: rule.value for tp, rule in rules.items() if rule.to is ResetTo.TIME}
    found = await admin.partitions.offsets(times)
    at_time = {tp: one.offset for tp, one in found.items() if one.offset >= 0}
    return {tp: OffsetBounds(first[tp].offset, end[tp].offset, at_time.get(tp)) for tp in rules}
