"""Groups and offsets as a sequence of records of `__consumer_offsets` has them.

The model is independent of the coordinator's: it stores values by key, and computes the rest when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kraft.broker.consumer_group.records import (
    ConsumerGroupKey,
    ConsumerMemberKey,
    CurrentMemberKey,
    CurrentMemberValue,
    RegexKey,
    TargetEpochKey,
    TargetMemberKey,
)
from kraft.broker.group.records import GroupKey, OffsetKey
from kraft.sim.check.observations import LoggedGroupEntry, TopicPartition

LEAVE_STATIC_EPOCH = -2
Place = tuple[UUID, int]
"""A partition: (topic id, index)."""


@dataclass(slots=True)
class RecordedGroup:
    """One group. A group of the classic protocol has only `classic`, the value of its record."""

    epoch: int | None = None
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, Any] = field(default_factory=dict)
    targets: dict[str, Mapping[UUID, frozenset[int]]] = field(default_factory=dict)
    current: dict[str, CurrentMemberValue] = field(default_factory=dict)
    regexes: dict[str, Any] = field(default_factory=dict)
    classic: Any = None

    @property
    def is_consumer_group(self) -> bool:
        return self.epoch is not None

    @property
    def member_ids(self) -> frozenset[str]:
        """Ids of the members, in either protocol."""
        classic = () if self.classic is None else (member.member_id for member in self.classic.members)
        return frozenset((*self.members, *classic))

    @property
    def present_ids(self) -> frozenset[str]:
        """Ids of the members that have not left, not even for a while as a static member can."""
        away = {member_id for member_id, value in self.current.items() if value.epoch == LEAVE_STATIC_EPOCH}
        return self.member_ids - away

    def holders(self) -> dict[Place, list[str]]:
        """Return the members that have each partition, or still have to revoke it."""
        found: dict[Place, list[str]] = {}
        for member_id, value in self.current.items():
            for place in {*places_of(value.assigned), *places_of(value.revoking)}:
                found.setdefault(place, []).append(member_id)
        return found

    def facts(self) -> dict[str, object]:
        """Return what a coordinator must remember of a consumer group, by name; nothing of a classic group."""
        if not self.is_consumer_group:
            return {}
        return {
            "epoch": self.epoch,
            "metadata hash": self.metadata_hash,
            "assignment epoch": self.assignment_epoch,
            "members": dict(self.members),
            "targets": {member_id: dict(target) for member_id, target in self.targets.items()},
            "current": dict(self.current),
            "regexes": dict(self.regexes),
            "holders": {place: held[0] for place, held in self.holders().items()},
        }


def places_of(held: Mapping[UUID, Iterable[int]]) -> frozenset[Place]:
    """Return these partitions one by one."""
    return frozenset((topic_id, index) for topic_id, indexes in held.items() for index in indexes)


@dataclass(slots=True)
class GroupLedger:
    """All groups and offsets after a sequence of records."""

    groups: dict[str, RecordedGroup] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)

    def add(self, entry: LoggedGroupEntry) -> None:
        """Apply one record."""
        key, value = entry
        if isinstance(key, OffsetKey):
            known = self.offsets.setdefault(key.group, {})
            known.pop((key.topic, key.partition), None)
            if value is not None:
                known[key.topic, key.partition] = value.offset
            return
        group = self.groups.setdefault(key.group, RecordedGroup())
        if isinstance(key, GroupKey):
            group.classic = value
        elif isinstance(key, ConsumerGroupKey):
            group.epoch, group.metadata_hash = (None, 0) if value is None else (value.epoch, value.metadata_hash)
        elif isinstance(key, TargetEpochKey):
            group.assignment_epoch = 0 if value is None else value.epoch
        else:
            _put(group, key, value)

    def group(self, group_id: str) -> RecordedGroup:
        """Return a group, which has nothing if there is none."""
        return self.groups.get(group_id) or RecordedGroup()


def _put(group: RecordedGroup, key: Any, value: Any) -> None:
    if isinstance(key, TargetMemberKey):
        _set(group.targets, key.member_id, None if value is None else value.partitions)
    elif isinstance(key, ConsumerMemberKey):
        _set(group.members, key.member_id, value)
    elif isinstance(key, CurrentMemberKey):
        _set(group.current, key.member_id, value)
    elif isinstance(key, RegexKey):
        _set(group.regexes, key.regex, value)


def _set(known: dict[str, Any], name: str, value: Any) -> None:
    known.pop(name, None)
    if value is not None:
        known[name] = value
