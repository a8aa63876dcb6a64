"""Async: the tables `groups`, `group_members` and `group_offsets`.

Coordinators are asked: a broker that is up and does not answer is an error that names it, for its groups would be
missing. A group that is deleted meanwhile is left out. Offsets of a partition without a leader are NULL, and so is its
lag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from kraft.client.admin import CommittedOffset, GroupDescription, GroupListing, GroupMember
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.spark.state.asking import Asking, Family, require_answers
from kraft.client.spark.state.cells import known, partition_structs
from kraft.client.spark.state.lag_time import ask_lag_times
from kraft.client.spark.state.live import Ends, ask_ends
from kraft.wire.error_codes import ErrorCode

NOT_DESCRIBED = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST})
"""Of groups that are gone, and of types that DescribeGroups does not know."""

Commits = Mapping[TopicPartition, CommittedOffset]


async def ask_listed(asking: Asking) -> dict[str, GroupListing | None]:
    """The groups that are wanted, by id; None: named by the bounds, and not listed."""
    wanted = asking.wanted("group_id")
    if wanted is not None:
        return dict.fromkeys(wanted)
    listed = await asking.admin.groups.list(brokers=await asking.live_brokers())
    return {group.group_id: group for group in listed}


async def ask_described(asking: Asking, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
    """Each group that can be described."""
    outcomes = await asking.each("group", group_ids, asking.admin.groups.describe)
    kept = {
        group_id: outcome
        for group_id, outcome in outcomes.items()
        if not (isinstance(outcome, KafkaError) and outcome.code in NOT_DESCRIBED)
    }
    return require_answers(kept)


async def ask_commits(asking: Asking, group_ids: Iterable[str]) -> dict[str, Commits]:
    """What each group has committed."""
    return require_answers(await asking.each("group", group_ids, asking.admin.groups.offsets))


async def ask_led_ends(asking: Asking, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Ends]:
    """The ends of those of the partitions that exist and have a leader."""
    if not asking.reads("start_offset", "end_offset", "lag", "lag_time_ms", "is_expired"):
        return {}
    wanted = set(partitions)
    topics = await asking.admin.topics.describe(sorted({topic for topic, _ in wanted}), skip_unknown=True)
    led = [(topic.name, part.index) for topic in topics for part in topic.partitions if part.leader is not None]
    also = ("start_offset", "end_offset") if asking.reads("lag_time_ms") else ()
    return await ask_ends(asking, [tp for tp in led if tp in wanted], also)


# groups


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group: as listed or described, and what it has committed. None: not asked for, or it cannot be had."""

    group: GroupListing | GroupDescription
    described: GroupDescription | None
    commits: Commits | None
    ends: Mapping[TopicPartition, Ends]

    @property
    def topics(self) -> list[str] | None:
        """Of its commits and of its members' partitions."""
        if self.commits is None:
            return None
        members = self.described.members if self.described is not None else ()
        names = {topic for topic, _ in self.commits} | {topic for one in members for topic, _ in one.assignment}
        return sorted(names)

    @property
    def lag(self) -> int | None:
        """The sum of the lags that are known; None if none is."""
        lags = [_lag(offset, self.ends.get(tp)) for tp, offset in (self.commits or {}).items()]
        found = [lag for lag in lags if lag is not None]
        return sum(found) if found else None


async def ask_groups(asking: Asking) -> list[GroupRow]:
    listed = await ask_listed(asking)
    described: Mapping[str, GroupDescription] = {}
    if None in listed.values() or asking.reads("assignor", "members", "epoch", "assignment_epoch", "topics"):
        described = await ask_described(asking, listed)
    groups = [(listed[group_id] or described.get(group_id)) for group_id in listed]
    there = [group for group in groups if group is not None]
    commits: Mapping[str, Commits] = {}
    if asking.reads("topics", "lag"):
        commits = await ask_commits(asking, [group.group_id for group in there])
    ends = await ask_led_ends(asking, {tp for offsets in commits.values() for tp in offsets})
    return [GroupRow(group, described.get(group.group_id), commits.get(group.group_id), ends) for group in there]


# group_members


class MemberRow(NamedTuple):
    """A member of a group."""

    group_id: str
    member: GroupMember


async def ask_members(asking: Asking) -> list[MemberRow]:
    described = await ask_described(asking, await ask_listed(asking))
    return [MemberRow(group_id, member) for group_id, group in described.items() for member in group.members]


def _target(row: MemberRow) -> list[tuple[str, int]] | None:
    return None if row.member.target is None else partition_structs(row.member.target)


def _subscribed(row: MemberRow) -> list[str] | None:
    return None if row.member.subscribed is None else list(row.member.subscribed)


# group_offsets


class OffsetRow(NamedTuple):
    """A partition that a group has committed for, or that a member has."""

    group_id: str
    topic: str
    partition: int
    commit: CommittedOffset | None
    member: GroupMember | None
    ends: Ends | None
    lag_time_ms: int | None

    @property
    def lag(self) -> int | None:
        return _lag(self.commit, self.ends)

    @property
    def is_expired(self) -> bool | None:
        if self.commit is None or self.ends is None or self.ends.start is None:
            return None
        return self.commit.offset < self.ends.start


async def ask_group_offsets(asking: Asking) -> list[OffsetRow]:
    listed = await ask_listed(asking)
    described = await ask_described(asking, listed)
    commits = await ask_commits(asking, listed)
    rows = [
        row for group_id in listed for row in _offset_rows(asking, group_id, described.get(group_id), commits[group_id])
    ]
    ends = await ask_led_ends(asking, {(row.topic, row.partition) for row in rows})
    rows = [row._replace(ends=ends.get((row.topic, row.partition))) for row in rows]
    if not (asking.settings.with_lag_time and asking.reads("lag_time_ms")):
        return rows
    places = {
        (row.topic, row.partition, row.commit.offset): row.ends
        for row in rows
        if row.commit is not None and row.ends is not None
    }
    times = await ask_lag_times(asking, places)
    return [
        row._replace(lag_time_ms=times.get((row.topic, row.partition, row.commit.offset)))
        if row.commit is not None
        else row
        for row in rows
    ]


def _offset_rows(
    asking: Asking, group_id: str, described: GroupDescription | None, commits: Commits
) -> Iterator[OffsetRow]:
    members = {tp: one for one in (described.members if described is not None else ()) for tp in one.assignment}
    topics, partitions = asking.bounds.values("topic"), asking.bounds.values("partition")
    for topic, index in sorted(commits.keys() | members.keys()):
        if (topics is None or topic in topics) and (partitions is None or index in partitions):
            tp = topic, index
            yield OffsetRow(group_id, topic, index, commits.get(tp), members.get(tp), None, None)


def _lag(commit: CommittedOffset | None, ends: Ends | None) -> int | None:
    """None without a commit, or without an end."""
    return None if commit is None or ends is None or ends.end is None else ends.end - commit.offset


FAMILIES = MappingProxyType(
    {
        "groups": Family(
            {
                "group_id": attrgetter("group.group_id"),
                "state": attrgetter("group.state"),
                "type": attrgetter("group.type"),
                "protocol_type": attrgetter("group.protocol_type"),
                "assignor": lambda row: row.described and row.described.assignor,
                "coordinator": attrgetter("group.coordinator"),
                "members": lambda row: None if row.described is None else len(row.described.members),
                "epoch": lambda row: row.described and row.described.epoch,
                "assignment_epoch": lambda row: row.described and row.described.assignment_epoch,
                "topics": attrgetter("topics"),
                "lag": attrgetter("lag"),
            },
            ask_groups,
        ),
        "group_members": Family(
            {
                "group_id": attrgetter("group_id"),
                "member_id": attrgetter("member.member_id"),
                "instance_id": attrgetter("member.instance_id"),
                "client_id": attrgetter("member.client_id"),
                "host": attrgetter("member.host"),
                "rack": attrgetter("member.rack"),
                "epoch": attrgetter("member.epoch"),
                "assigned": lambda row: partition_structs(row.member.assignment),
                "target": _target,
                "subscribed": _subscribed,
            },
            ask_members,
        ),
        "group_offsets": Family(
            {
                "group_id": attrgetter("group_id"),
                "topic": attrgetter("topic"),
                "partition": attrgetter("partition"),
                "offset": lambda row: None if row.commit is None else row.commit.offset,
                "leader_epoch": lambda row: None if row.commit is None else known(row.commit.leader_epoch),
                "metadata": lambda row: None if row.commit is None else row.commit.metadata,
                "start_offset": lambda row: None if row.ends is None else row.ends.start,
                "end_offset": lambda row: None if row.ends is None else row.ends.end,
                "lag": attrgetter("lag"),
                "lag_time_ms": attrgetter("lag_time_ms"),
                "is_expired": attrgetter("is_expired"),
                "member_id": lambda row: None if row.member is None else row.member.member_id,
                "client_id": lambda row: None if row.member is None else row.member.client_id,
                "host": lambda row: None if row.member is None else row.member.host,
            },
            ask_group_offsets,
        ),
    }
)
