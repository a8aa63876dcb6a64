"""A share group as an immutable value, computed from its records alone.

Invariant: the value depends only on the records applied, in their order. A removal of something unknown has no effect,
because compaction may run while the log is read (KAFKA-19862).
Source: KIP-932, Kafka's ShareGroup.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from rpds import HashTrieMap

from kraft.broker.consumer_group.requests import NO_PARTITIONS, Partitions
from kraft.broker.share_group.records import (
    ShareCurrentKey,
    ShareCurrentValue,
    ShareGroupKey,
    ShareGroupLogEntry,
    ShareGroupLogKey,
    ShareGroupLogValue,
    ShareGroupValue,
    ShareMemberKey,
    ShareMemberValue,
    ShareStatesKey,
    ShareStatesValue,
    ShareTargetEpochKey,
    ShareTargetEpochValue,
    ShareTargetKey,
    ShareTargetValue,
)

NEW_SHARE_MEMBER = ShareCurrentValue(0, -1)
"""The current assignment of a member that has none yet."""
NO_STATES = ShareStatesValue()


class ShareGroupState(Enum):
    """State of a share group; the value is the name that clients see."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup(NamedTuple):
    """One group. `targets` and `current` have the assignments by member id."""

    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: HashTrieMap[str, ShareMemberValue] = HashTrieMap()
    targets: HashTrieMap[str, Partitions] = HashTrieMap()
    current: HashTrieMap[str, ShareCurrentValue] = HashTrieMap()
    states: ShareStatesValue = NO_STATES
    assigned_ms: int = 0
    """Wall-clock time in ms at which the target assignment was computed; 0 if the next one need not wait."""

    def assignment_of(self, member_id: str) -> ShareCurrentValue:
        """Return the member's current assignment."""
        return self.current.get(member_id, NEW_SHARE_MEMBER)

    def target_of(self, member_id: str) -> Partitions:
        """Return the member's target assignment."""
        return self.targets.get(member_id, NO_PARTITIONS)

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def with_entry(self, key: ShareGroupLogKey, value: ShareGroupLogValue | None) -> ShareGroup | None:
        """Return the group after one more record; None after the record that removes the group."""
        match key:
            case ShareGroupKey():
                if not isinstance(value, ShareGroupValue):
                    return None
                return self._replace(epoch=value.epoch, metadata_hash=value.metadata_hash)
            case ShareMemberKey(_, member_id):
                if not isinstance(value, ShareMemberValue):
                    return self._replace(members=self.members.discard(member_id))
                return self._replace(members=self.members.insert(member_id, value))
            case ShareTargetEpochKey():
                if not isinstance(value, ShareTargetEpochValue):
                    return self._replace(assignment_epoch=0, assigned_ms=0)
                return self._replace(assignment_epoch=value.epoch, assigned_ms=value.timestamp)
            case ShareTargetKey(_, member_id):
                if not isinstance(value, ShareTargetValue):
                    return self._replace(targets=self.targets.discard(member_id))
                return self._replace(targets=self.targets.insert(member_id, value.partitions))
            case ShareCurrentKey(_, member_id):
                if not isinstance(value, ShareCurrentValue):
                    return self._replace(current=self.current.discard(member_id))
                return self._replace(current=self.current.insert(member_id, value))
            case ShareStatesKey():
                return self._replace(states=value if isinstance(value, ShareStatesValue) else NO_STATES)


EMPTY_SHARE_GROUP = ShareGroup()


class ShareDraft:
    """The group while one operation changes it: the entries to write, and the group as it will be after them."""

    __slots__ = ("entries", "group", "group_id")

    def __init__(self, group_id: str, group: ShareGroup) -> None:
        self.group_id = group_id
        self.group = group
        self.entries: list[ShareGroupLogEntry] = []

    def write(self, key: ShareGroupLogKey, value: ShareGroupLogValue | None) -> None:
        """Add an entry, and apply it."""
        self.entries.append(ShareGroupLogEntry(key, value))
        self.group = self.group.with_entry(key, value) or EMPTY_SHARE_GROUP

    def bump(self, metadata_hash: int) -> None:
        """Begin a new epoch of the group."""
        self.write(ShareGroupKey(self.group_id), ShareGroupValue(self.group.epoch + 1, metadata_hash))


def share_group_removal(group_id: str, group: ShareGroup) -> list[ShareGroupLogEntry]:
    """Return the entries that remove a group with all that it has."""
    keys: tuple[ShareGroupLogKey, ...] = (
        *(ShareCurrentKey(group_id, member_id) for member_id in sorted(group.current)),
        *(ShareTargetKey(group_id, member_id) for member_id in sorted(group.targets)),
        ShareTargetEpochKey(group_id),
        *(ShareMemberKey(group_id, member_id) for member_id in sorted(group.members)),
        ShareStatesKey(group_id),
        ShareGroupKey(group_id),
    )
    return [ShareGroupLogEntry(key, None) for key in keys]
