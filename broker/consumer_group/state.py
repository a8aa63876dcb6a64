"""A consumer group as an immutable value, computed from its records alone.

Invariants: the value depends only on the records applied, in their order. `holders` names one member for each partition
that some member has or still revokes. It is the only thing that decides whether a partition is free, and only records
change it. So two members never hold one partition, also after a failover.

Records of a group may be missing when compaction runs while the log is read (KAFKA-19862). A removal of something
unknown therefore has no effect, and a member frees only partitions of which it is the holder.
Source: KIP-848, Kafka's ConsumerGroup and GroupMetadataManager.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from uuid import UUID

from rpds import HashTrieMap

from kraft.broker.consumer_group.records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerKey,
    ConsumerLogEntry,
    ConsumerMemberKey,
    ConsumerMemberValue,
    ConsumerValue,
    CurrentMemberKey,
    CurrentMemberValue,
    HeldPartitions,
    MemberState,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from kraft.broker.consumer_group.requests import NO_PARTITIONS, Partitions

NEW_MEMBER = CurrentMemberValue(0, -1, MemberState.STABLE)
"""The current assignment of a member that has none yet."""


Subscription = tuple[tuple[str, ...], str | None]
"""The topic names and the regular expression to which a member subscribes."""


class ConsumerGroupState(Enum):
    """State of a group; the value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup(NamedTuple):
    """One group. `targets` and `current` have the assignments by member id, `static_members` the member ids by instance
    id, and `regexes` the topics of each resolved regular expression. `subscriptions` has how many members have each
    subscription, and `classic_count` is how many use the classic protocol."""

    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: HashTrieMap[str, ConsumerMemberValue] = HashTrieMap()
    targets: HashTrieMap[str, Partitions] = HashTrieMap()
    current: HashTrieMap[str, CurrentMemberValue] = HashTrieMap()
    holders: HashTrieMap[tuple[UUID, int], str] = HashTrieMap()
    static_members: HashTrieMap[str, str] = HashTrieMap()
    regexes: HashTrieMap[str, RegexValue] = HashTrieMap()
    subscriptions: HashTrieMap[Subscription, int] = HashTrieMap()
    classic_count: int = 0
    assigned_ms: int = 0
    """Wall-clock time in ms at which the target assignment was computed; 0 if the next one need not wait."""

    # reading

    def assignment_of(self, member_id: str) -> CurrentMemberValue:
        """Return the member's current assignment."""
        return self.current.get(member_id, NEW_MEMBER)

    def target_of(self, member_id: str) -> Partitions:
        """Return the member's target assignment."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_free_for(self, member_id: str, topic_id: UUID, partition: int) -> bool:
        """Return whether no other member holds the partition."""
        return self.holders.get((topic_id, partition), member_id) == member_id

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(is_reconciled(self.assignment_of(member), self.assignment_epoch) for member in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    # records

    def with_entry(self, key: ConsumerKey, value: ConsumerValue | None) -> ConsumerGroup | None:
        """Return the group after one more record; None after the record that removes the group."""
        match key:
            case ConsumerGroupKey():
                if not isinstance(value, ConsumerGroupValue):
                    return None
                return self._replace(epoch=value.epoch, metadata_hash=value.metadata_hash)
            case ConsumerMemberKey(_, member_id):
                return self._with_member(member_id, value if isinstance(value, ConsumerMemberValue) else None)
            case TargetEpochKey():
                if not isinstance(value, TargetEpochValue):
                    return self._replace(assignment_epoch=0, assigned_ms=0)
                return self._replace(assignment_epoch=value.epoch, assigned_ms=value.timestamp)
            case TargetMemberKey(_, member_id):
                if not isinstance(value, TargetMemberValue):
                    return self._replace(targets=self.targets.discard(member_id))
                return self._replace(targets=self.targets.insert(member_id, value.partitions))
            case CurrentMemberKey(_, member_id):
                return self._with_current(member_id, value if isinstance(value, CurrentMemberValue) else None)
            case RegexKey(_, regex):
                if not isinstance(value, RegexValue):
                    return self._replace(regexes=self.regexes.discard(regex))
                return self._replace(regexes=self.regexes.insert(regex, value))

    def _with_member(self, member_id: str, value: ConsumerMemberValue | None) -> ConsumerGroup:
        members, static = self.members, self.static_members
        subscriptions, classic_count = self.subscriptions, self.classic_count
        old = members.get(member_id)
        if old is not None:
            members = members.remove(member_id)
            subscriptions = _with_count(subscriptions, subscription_of(old), -1)
            classic_count -= old.classic is not None
            if old.instance_id is not None and static.get(old.instance_id) == member_id:
                static = static.remove(old.instance_id)
        if value is not None:
            members = members.insert(member_id, value)
            subscriptions = _with_count(subscriptions, subscription_of(value), 1)
            classic_count += value.classic is not None
            if value.instance_id is not None:
                static = static.insert(value.instance_id, member_id)
        return self._replace(
            members=members, static_members=static, subscriptions=subscriptions, classic_count=classic_count
        )

    def _with_current(self, member_id: str, value: CurrentMemberValue | None) -> ConsumerGroup:
        old, holders = self.current.get(member_id), self.holders
        if old is not None:
            for place in _places(old):
                if holders.get(place) == member_id:
                    holders = holders.remove(place)
        if value is None:
            return self._replace(current=self.current.discard(member_id), holders=holders)
        for place in _places(value):
            holders = holders.insert(place, member_id)
        return self._replace(current=self.current.insert(member_id, value), holders=holders)


EMPTY_GROUP = ConsumerGroup()


def subscription_of(member: ConsumerMemberValue) -> Subscription:
    """Return the member's subscription."""
    return member.subscribed_names, member.subscribed_regex


def _with_count(
    counts: HashTrieMap[Subscription, int], subscription: Subscription, change: int
) -> HashTrieMap[Subscription, int]:
    """Return the counts with one more or one fewer member of this subscription."""
    count = counts.get(subscription, 0) + change
    return counts.insert(subscription, count) if count else counts.remove(subscription)


def is_reconciled(current: CurrentMemberValue, assignment_epoch: int) -> bool:
    """Return whether the member has the target assignment of this epoch."""
    return current.state is MemberState.STABLE and current.epoch == assignment_epoch


def _places(value: CurrentMemberValue) -> list[tuple[UUID, int]]:
    """Return all partitions that the member holds."""
    return [
        (topic_id, partition)
        for held in (value.assigned, value.revoking)
        for topic_id, partitions in held.items()
        for partition in partitions
    ]


def partitions_of(held: HeldPartitions) -> Partitions:
    """Return the partitions without their assignment epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}


class Draft:
    """The group while one operation changes it: the entries to write, and the group as it will be after them."""

    __slots__ = ("entries", "group", "group_id")

    def __init__(self, group_id: str, group: ConsumerGroup) -> None:
        self.group_id = group_id
        self.group = group
        self.entries: list[ConsumerLogEntry] = []

    def write(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Add an entry, and apply it."""
        self.entries.append(ConsumerLogEntry(key, value))
        self.group = self.group.with_entry(key, value) or EMPTY_GROUP
