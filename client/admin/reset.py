"""Reset a group's offsets: one rule per partition, decided before anything is changed.

`decide_offset` is pure; `plan_reset` reads what it needs from a cluster. As in Kafka's tools, offsets are limited to
the log: an offset before its start becomes the start, one after its end becomes the end.
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
    from kraft.client.admin.groups import Groups
    from kraft.client.admin.share_groups import ShareGroups


class ResetTo(Enum):
    """Kind of target of a reset. TIME, SHIFT and OFFSET need a value."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    TIME = "time"
    SHIFT = "shift"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class ResetRule:
    """A rule for one partition. `value` is a time in ms since 1970 for TIME, a number of records (negative: back) for
    SHIFT, and an offset for OFFSET."""

    to: ResetTo
    value: int = 0


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """Offsets of a partition: the first offset, the offset after the last record, and the first offset at or after the
    rule's time."""

    earliest: int
    latest: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedReset:
    """One partition of a plan. `before` is None if the group has no offset. `is_clamped` is true if the
    rule's offset is outside of the log; `after` is then the nearest offset in the log."""

    topic: str
    partition: int
    before: int | None
    after: int
    is_clamped: bool = False

    @property
    def is_change(self) -> bool:
        return self.before != self.after


def decide_offset(rule: ResetRule, committed: int | None, bounds: OffsetBounds) -> int:
    """Return the new offset of a group in one partition, limited to the log."""
    return max(bounds.earliest, min(bounds.latest, wanted_offset(rule, committed, bounds)))


def wanted_offset(rule: ResetRule, committed: int | None, bounds: OffsetBounds) -> int:
    """Return the offset that the rule requires, not limited to the log. A group without a committed offset counts as
    being at the end, which is Kafka's default."""
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
    """Return the plan of a reset, in order of partition, without changing anything. `bounds` has the bounds of the
    partitions if they were requested already."""
    committed = await (await offsets_of(admin, group_id)).offsets(group_id)
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
    """Commit the offsets of a plan, or set the start offsets of a share group. Raise KafkaError if the group has
    members."""
    offsets = {(one.topic, one.partition): one.after for one in plan if one.is_change}
    if offsets:
        await (await offsets_of(admin, group_id)).alter_offsets(group_id, offsets)


async def offsets_of(admin: Admin, group_id: str) -> Groups | ShareGroups:
    """Return the operations on the offsets of this group: those of a share group are not committed ones."""
    return admin.share_groups if await admin.groups.is_share(group_id) else admin.groups


async def find_bounds(admin: Admin, rules: Mapping[TopicPartition, ResetRule]) -> dict[TopicPartition, OffsetBounds]:
    """Request the bounds of each partition. `at_time` is requested only for a partition whose rule is for a time."""
    first = await admin.partitions.offsets(dict.fromkeys(rules, EARLIEST))
    end = await admin.partitions.offsets(dict.fromkeys(rules, LATEST))
    times = {tp: rule.value for tp, rule in rules.items() if rule.to is ResetTo.TIME}
    found = await admin.partitions.offsets(times)
    at_time = {tp: one.offset for tp, one in found.items() if one.offset >= 0}
    return {tp: OffsetBounds(first[tp].offset, end[tp].offset, at_time.get(tp)) for tp in rules}
