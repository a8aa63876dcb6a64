"""Online migration: a classic group of consumers becomes a consumer group, and the reverse.

A classic group is upgraded by the first heartbeat of the new protocol. Its members go on with the classic protocol
(`classic_members`) until they are restarted with the new one. When the last member of the new protocol has left a group
of classic members, the group is downgraded.

Invariants: all records of a conversion are one atomic write. A partition that a client may own has a holder before and
after it. In an upgrade a member holds its last assignment. A member that waits for an assignment holds what it said it
owned when it joined, because its last assignment is forgotten. In a downgrade a member keeps what it has to revoke too:
its client may still own it, and the group could be upgraded again at once.
Source: KIP-848, Kafka's GroupMetadataManager, ConsumerGroup and ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.embedded_protocol import (
    EmbeddedAssignment,
    EmbeddedSubscription,
    NamedPartitions,
    decode_assignment,
    decode_subscription,
)
from kraft.broker.consumer_group.records import (
    ClassicMemberValue,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    HeldPartitions,
    MemberState,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from kraft.broker.consumer_group.settings import ConsumerGroupSettings
from kraft.broker.consumer_group.state import ConsumerGroup, Draft, partitions_of
from kraft.broker.consumer_group.topics import TopicsView
from kraft.seam import WireError


class ClassicMember(NamedTuple):
    """A member of a classic group. `protocols` are its (name, metadata) in order of preference, `metadata` is that of
    the protocol that the group has chosen, and `assignment` is empty if the member waits for one."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    metadata: bytes
    assignment: bytes


class CannotUpgrade(Exception):
    """The members of a classic group cannot become members of a consumer group; the text says why."""


class _Read(NamedTuple):
    """A classic member with its bytes decoded."""

    member: ClassicMember
    subscription: EmbeddedSubscription
    assignment: EmbeddedAssignment


def upgrade(draft: Draft, generation: int, members: Sequence[ClassicMember], topics: TopicsView, wall_ms: int) -> None:
    """Write the records of a classic group's members to the draft of a new consumer group. Every member has the epoch
    `generation`, and what it holds is its target. What it may still read besides that, it must revoke first. Raises
    CannotUpgrade."""
    rows = [_read(member) for member in members]
    held = _held(rows, generation, topics)
    revoking = _still_read(rows, held, generation, topics)
    group_id = draft.group_id
    for row in rows:
        draft.write(ConsumerMemberKey(group_id, row.member.member_id), _consumer_member(row))
    draft.write(ConsumerGroupKey(group_id), ConsumerGroupValue(generation))
    for member_id, partitions in held.items():
        draft.write(TargetMemberKey(group_id, member_id), TargetMemberValue(partitions_of(partitions)))
    draft.write(TargetEpochKey(group_id), TargetEpochValue(generation, wall_ms))
    for member_id, partitions in held.items():
        left = revoking[member_id]
        state = MemberState.UNREVOKED_PARTITIONS if left else MemberState.STABLE
        current = CurrentMemberValue(generation, generation, state, partitions, left)
        draft.write(CurrentMemberKey(group_id, member_id), current)


def _read(member: ClassicMember) -> _Read:
    try:
        subscription, assignment = decode_subscription(member.metadata), decode_assignment(member.assignment)
    except WireError as error:
        raise CannotUpgrade(
            f"the embedded consumer protocol of member {member.member_id} is malformed: {error}"
        ) from None
    if assignment.user_data:
        raise CannotUpgrade(
            f"the assignor of member {member.member_id} is a custom one that adds user data to assignments, "
            "which would be lost"
        )
    return _Read(member, subscription, assignment)


def _consumer_member(row: _Read) -> ConsumerMemberValue:
    member = row.member
    return ConsumerMemberValue(
        member.instance_id,
        row.subscription.rack or None,
        member.client_id,
        member.client_host,
        tuple(sorted(set(row.subscription.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicMemberValue(member.session_timeout_ms, member.protocols),
    )


def _held(rows: Sequence[_Read], generation: int, topics: TopicsView) -> dict[str, HeldPartitions]:
    """Return the partitions that each member holds. If two members name one, it goes to the one with the assignment,
    then to the one that got it in the newer generation."""
    held: dict[str, dict[UUID, dict[int, int]]] = {row.member.member_id: {} for row in rows}
    taken: set[tuple[UUID, int]] = set()
    for row in sorted(rows, key=lambda row: (not row.member.assignment, -row.subscription.generation)):
        named = row.assignment.partitions if row.member.assignment else row.subscription.owned
        for topic_id, partition in _existing(named, topics):
            if (topic_id, partition) not in taken:
                taken.add((topic_id, partition))
                held[row.member.member_id].setdefault(topic_id, {})[partition] = generation
    return dict(held.items())


def _still_read(
    rows: Sequence[_Read], held: Mapping[str, HeldPartitions], generation: int, topics: TopicsView
) -> dict[str, HeldPartitions]:
    """Return the partitions that a member owned when it joined, and that the newest generation gives to nobody. A
    member with a cooperative assignor reads them until it has fetched its assignment."""
    taken = {(topic_id, number) for one in held.values() for topic_id, numbers in one.items() for number in numbers}
    left: dict[str, dict[UUID, dict[int, int]]] = {row.member.member_id: {} for row in rows}
    for row in sorted(rows, key=lambda row: -row.subscription.generation):
        for topic_id, number in _existing(row.subscription.owned, topics):
            if (topic_id, number) not in taken:
                taken.add((topic_id, number))
                left[row.member.member_id].setdefault(topic_id, {})[number] = generation
    return dict(left.items())


def _existing(named: NamedPartitions, topics: TopicsView) -> Iterator[tuple[UUID, int]]:
    """Return the partitions of those topics that exist."""
    for name in sorted(named):
        topic = topics.get(name)
        if topic is not None:
            yield from ((topic.topic_id, partition) for partition in sorted(named[name]))


def may_downgrade(
    group: ConsumerGroup, leaving: str | None, settings: ConsumerGroupSettings, classic_members_max: int
) -> bool:
    """Return whether the group becomes a classic one when this member leaves (None: a member has just been replaced by
    a classic one): the others are all classic, there are some, and there is room for them in a classic group."""
    if leaving is not None and (leaving not in group.members or group.members[leaving].classic is not None):
        return False
    others = len(group.members) - (leaving is not None)
    return settings.migration_policy.downgrades and 0 < others <= classic_members_max and group.classic_count == others


def classic_members(
    group: ConsumerGroup, leaving: str | None, topics: TopicsView
) -> list[tuple[ClassicMember, NamedPartitions]]:
    """Return all members but `leaving` as members of a classic group, each with the partitions that it holds. Their
    `metadata` and `assignment` are left empty, because they depend on the protocol that the group chooses."""
    rows = []
    for member_id, member in sorted(group.members.items()):
        if member_id == leaving or member.classic is None:
            continue
        row = ClassicMember(
            member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.classic.session_timeout_ms,
            member.classic.protocols,
            b"",
            b"",
        )
        current = group.assignment_of(member_id)
        rows.append((row, named_partitions(topics, current.assigned, current.revoking)))
    return rows


def named_partitions(topics: TopicsView, *parts: HeldPartitions) -> NamedPartitions:
    """Return all these partitions by topic name. Topics that no longer exist have none."""
    found: dict[str, frozenset[int]] = {}
    for held in parts:
        for topic_id, partitions in held.items():
            name = topics.name_of(topic_id)
            if name is not None:
                found[name] = found.get(name, frozenset()).union(partitions)
    return found
