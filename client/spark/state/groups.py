"""Async: the tables `groups`, `group_members` and `group_offsets`.

The requests go to the groups' coordinators. If a live broker does not respond, an error names it, because its groups
would be missing. A group that is deleted while the table is read is left out. If a partition has no leader, its end
offset and lag are NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from kraft.client.admin import CommittedOffset, GroupDescription, GroupListing, GroupMember
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.spark.state.cells import known, partition_structs
from kraft.client.spark.state.lag_time import request_lag_times
from kraft.client.spark.state.live import Ends, request_ends
from kraft.client.spark.state.table_query import Family, TableQuery, require_answers
from kraft.wire.error_codes import ErrorCode

NOT_DESCRIBED = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST})
"""Error codes for which a group has no description: it was deleted, or DescribeGroups does not support its type."""

Commits = Mapping[TopicPartition, CommittedOffset]


async def request_group_listings(query: TableQuery) -> dict[str, GroupListing | None]:
    """Return the listings of the groups that the filters select, by group id. A listing is None if the filters name the
    group, because then no list is requested."""
    wanted = query.wanted("group_id")
    if wanted is not None:
        return dict.fromkeys(wanted)
    listed = await query.admin.groups.list(brokers=await query.live_brokers())
    return {group.group_id: group for group in listed}


async def request_group_descriptions(query: TableQuery, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
    """Return the description of each group that can be described."""
    outcomes = await query.each("group", group_ids, query.admin.groups.describe)
    kept = {
        group_id: outcome
        for group_id, outcome in outcomes.items()
        if not (isinstance(outcome, KafkaError) and outcome.code in NOT_DESCRIBED)
    }
    return require_answers(kept)


async def request_commits(query: TableQuery, group_ids: Iterable[str]) -> dict[str, Commits]:
    """Return the committed offsets of each of these groups."""
    return require_answers(await query.each("group", group_ids, query.admin.groups.offsets))


async def request_ends_of_led_partitions(
    query: TableQuery, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Ends]:
    """Return the end offsets of the partitions, without those that do not exist or have no leader."""
    if not query.reads("start_offset", "end_offset", "lag", "lag_time_ms", "is_expired"):
        return {}
    wanted = set(partitions)
    topics = await query.admin.topics.describe(sorted({topic for topic, _ in wanted}), skip_unknown=True)
    with_leader = [(topic.name, part.index) for topic in topics for part in topic.partitions if part.leader is not None]
    also = ("start_offset", "end_offset") if query.reads("lag_time_ms") else ()
    return await request_ends(query, [tp for tp in with_leader if tp in wanted], also)


# groups


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as listed or described, and its committed offsets. A field is None if it was not requested, or is not
    available."""

    group: GroupListing | GroupDescription
    described: GroupDescription | None
    commits: Commits | None
    ends: Mapping[TopicPartition, Ends]

    @property
    def topics(self) -> list[str] | None:
        """Topics for which the group has committed, or of which its members have partitions."""
        if self.commits is None:
            return None
        members = self.described.members if self.described is not None else ()
        names = {topic for topic, _ in self.commits} | {topic for one in members for topic, _ in one.assignment}
        return sorted(names)

    @property
    def lag(self) -> int | None:
        """Sum of the known lags of the group's partitions; None if no lag is known."""
        lags = [_lag(offset, self.ends.get(tp)) for tp, offset in (self.commits or {}).items()]
        found = [lag for lag in lags if lag is not None]
        return sum(found) if found else None


async def request_groups(query: TableQuery) -> list[GroupRow]:
    listed = await request_group_listings(query)
    described: Mapping[str, GroupDescription] = {}
    if None in listed.values() or query.reads("assignor", "members", "epoch", "assignment_epoch", "topics"):
        described = await request_group_descriptions(query, listed)
    groups = [(listed[group_id] or described.get(group_id)) for group_id in listed]
    there = [group for group in groups if group is not None]
    commits: Mapping[str, Commits] = {}
    if query.reads("topics", "lag"):
        commits = await request_commits(query, [group.group_id for group in there])
    ends = await request_ends_of_led_partitions(query, {tp for offsets in commits.values() for tp in offsets})
    return [GroupRow(group, described.get(group.group_id), commits.get(group.group_id), ends) for group in there]


# group_members


class MemberRow(NamedTuple):
    """A member of a group."""

    group_id: str
    member: GroupMember


async def request_members(query: TableQuery) -> list[MemberRow]:
    described = await request_group_descriptions(query, await request_group_listings(query))
    return [MemberRow(group_id, member) for group_id, group in described.items() for member in group.members]


def _target(row: MemberRow) -> list[tuple[str, int]] | None:
    return None if row.member.target is None else partition_structs(row.member.target)


def _subscribed(row: MemberRow) -> list[str] | None:
    return None if row.member.subscribed is None else list(row.member.subscribed)


# group_offsets


class OffsetRow(NamedTuple):
    """A partition for which a group has a committed offset, or that is assigned to a member of the group."""

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


async def request_group_offsets(query: TableQuery) -> list[OffsetRow]:
    listed = await request_group_listings(query)
    described = await request_group_descriptions(query, listed)
    commits = await request_commits(query, listed)
    rows = [
        row for group_id in listed for row in _offset_rows(query, group_id, described.get(group_id), commits[group_id])
    ]
    ends = await request_ends_of_led_partitions(query, {(row.topic, row.partition) for row in rows})
    rows = [row._replace(ends=ends.get((row.topic, row.partition))) for row in rows]
    if not (query.settings.with_lag_time and query.reads("lag_time_ms")):
        return rows
    places = {
        (row.topic, row.partition, row.commit.offset): row.ends
        for row in rows
        if row.commit is not None and row.ends is not None
    }
    times = await request_lag_times(query, places)
    return [
        row._replace(lag_time_ms=times.get((row.topic, row.partition, row.commit.offset)))
        if row.commit is not None
        else row
        for row in rows
    ]


def _offset_rows(
    query: TableQuery, group_id: str, described: GroupDescription | None, commits: Commits
) -> Iterator[OffsetRow]:
    members = {tp: one for one in (described.members if described is not None else ()) for tp in one.assignment}
    topics, partitions = query.bounds.values("topic"), query.bounds.values("partition")
    for topic, index in sorted(commits.keys() | members.keys()):
        if (topics is None or topic in topics) and (partitions is None or index in partitions):
            tp = topic, index
            yield OffsetRow(group_id, topic, index, commits.get(tp), members.get(tp), None, None)


def _lag(commit: CommittedOffset | None, ends: Ends | None) -> int | None:
    """Return the lag of a partition; None without a committed offset or end offset."""
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
            request_groups,
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
            request_members,
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
            request_group_offsets,
        ),
    }
)
