"""A group's lag in each partition that it reads or has committed offsets for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.client.admin.groups import SHARE
from kraft.client.admin.partitions import LATEST
from kraft.client.admin.values import ShareOffset

if TYPE_CHECKING:
    from kraft.client.admin.admin import Admin
    from kraft.client.admin.values import FoundOffset, GroupDescription, GroupMember
    from kraft.client.core.records import CommittedOffset


NOT_BEGUN = ShareOffset(None, None)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's lag in one partition. `end_offset` is None if the partition has no leader that could report it."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed)


@dataclass(frozen=True, slots=True)
class SharePartitionLag:
    """A share group's progress in one partition, which may have several readers; the numbers are those of
    `ShareOffset`."""

    topic: str
    partition: int
    start_offset: int | None
    lag: int | None
    members: tuple[GroupMember, ...]


async def find_share_lags(
    admin: Admin, group: GroupDescription, topics: Collection[str] | None = None
) -> list[SharePartitionLag]:
    """Return the progress of a share group in each partition, as `find_lags` does."""
    offsets = await admin.share_groups.offsets(group.group_id)
    readers: dict[tuple[str, int], list[GroupMember]] = {}
    for member in group.members:
        for tp in member.assignment:
            readers.setdefault(tp, []).append(member)
    rows = []
    for tp in sorted(offsets.keys() | readers.keys()):
        if not topics or tp[0] in topics:
            known = offsets.get(tp, NOT_BEGUN)
            rows.append(SharePartitionLag(*tp, known.offset, known.lag, tuple(readers.get(tp, ()))))
    return rows


async def find_progress(
    admin: Admin, group: GroupDescription, topics: Collection[str] | None = None
) -> Sequence[PartitionLag | SharePartitionLag]:
    """Return the progress of a group of any type in each partition."""
    if group.type == SHARE:
        return await find_share_lags(admin, group, topics)
    return await find_lags(admin, group, topics)


async def find_lags(admin: Admin, group: GroupDescription, topics: Collection[str] | None = None) -> list[PartitionLag]:
    """Return the lag in each partition, by topic and partition number. If `topics` are given, return only their
    partitions."""
    committed = await admin.groups.offsets(group.group_id)
    readers = {tp: member for member in group.members for tp in member.assignment}
    wanted = sorted(tp for tp in committed.keys() | readers.keys() if not topics or tp[0] in topics)
    there = {
        (part.topic, part.index)
        for topic in await admin.topics.describe({tp[0] for tp in wanted}, skip_unknown=True)
        for part in topic.partitions
        if part.leader is not None
    }
    ends = await admin.partitions.offsets({tp: LATEST for tp in wanted if tp in there})
    return [_lag(tp, committed.get(tp), ends.get(tp), readers.get(tp)) for tp in wanted]


def _lag(
    tp: tuple[str, int], committed: CommittedOffset | None, end: FoundOffset | None, member: GroupMember | None
) -> PartitionLag:
    return PartitionLag(
        *tp, None if committed is None else committed.offset, None if end is None else end.offset, member
    )


def total_lag(lags: Sequence[PartitionLag | SharePartitionLag]) -> int | None:
    """Return the sum of the known lags; None if no lag is known. Without committed offsets the lag is unknown, not
    0."""
    known = [one.lag for one in lags if one.lag is not None]
    return sum(known) if known else None
