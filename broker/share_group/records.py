"""The records of share groups in `__consumer_offsets`, encoded byte for byte with Kafka's schemas.

Every value is version 0, in flexible encoding. TopicsView are written in order of their ids and partitions in ascending
order, so that equal values have equal bytes.
Source: ShareGroupMemberMetadataValue, ShareGroupMetadataValue, ShareGroupTargetAssignmentMetadataValue,
ShareGroupTargetAssignmentMemberValue, ShareGroupCurrentMemberAssignmentValue, ShareGroupStatePartitionMetadataValue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.requests import NO_PARTITIONS, Partitions
from kraft.seam import WireError
from kraft.wire.messages.tagged import read_tagged, tagged
from kraft.wire.primitives import (
    compact_array_count,
    compact_string,
    read_compact_array_count,
    read_compact_string,
    read_string,
    string,
)
from kraft.wire.varints import skip_tagged_fields

NO_TAGS = b"\0"
STABLE = 0
"""The only state of a member's assignment: nothing has to be revoked in a share group."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_EPOCH_AND_HASH = struct.Struct(">iq")
_EPOCHS_AND_STATE = struct.Struct(">iib")
_VERSION = _INT16.pack(0)
_UUID_BYTES = 16


class ShareMemberKey(NamedTuple):
    """The key of a member's metadata."""

    group: str
    member_id: str


class ShareGroupKey(NamedTuple):
    """The key of a group's epoch."""

    group: str


class ShareTargetEpochKey(NamedTuple):
    """The key of a group's assignment epoch."""

    group: str


class ShareTargetKey(NamedTuple):
    """The key of a member's target assignment."""

    group: str
    member_id: str


class ShareCurrentKey(NamedTuple):
    """The key of a member's current assignment."""

    group: str
    member_id: str


class ShareStatesKey(NamedTuple):
    """The key of the share partitions whose delivery state is persisted."""

    group: str


class ShareMemberValue(NamedTuple):
    rack: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]


class ShareGroupValue(NamedTuple):
    """A group's epoch, and the hash of its subscribed topics."""

    epoch: int
    metadata_hash: int = 0


class ShareTargetEpochValue(NamedTuple):
    """The group epoch of the target assignment, and the wall-clock ms at which it was computed."""

    epoch: int
    timestamp: int = 0


class ShareTargetValue(NamedTuple):
    """The partitions that a member shall have."""

    partitions: Partitions


class ShareCurrentValue(NamedTuple):
    """The partitions that a member has."""

    epoch: int
    previous_epoch: int
    assigned: Partitions = NO_PARTITIONS


class TopicStates(NamedTuple):
    """The share partitions of one topic."""

    name: str
    partitions: frozenset[int]


class ShareStatesValue(NamedTuple):
    """The share partitions by topic id whose delivery state is being initialized or is initialized, and the names of
    the topics whose states are being deleted."""

    initializing: Mapping[UUID, TopicStates] = MappingProxyType({})
    initialized: Mapping[UUID, TopicStates] = MappingProxyType({})
    deleting: Mapping[UUID, str] = MappingProxyType({})

    def topics(self) -> dict[UUID, str]:
        """Return the names of all topics, by id."""
        named = {**self.initializing, **self.initialized}
        return {**{topic_id: one.name for topic_id, one in named.items()}, **self.deleting}


ShareGroupLogKey = (
    ShareMemberKey | ShareGroupKey | ShareTargetEpochKey | ShareTargetKey | ShareCurrentKey | ShareStatesKey
)
ShareGroupLogValue = (
    ShareMemberValue | ShareGroupValue | ShareTargetEpochValue | ShareTargetValue | ShareCurrentValue | ShareStatesValue
)


class ShareGroupLogEntry(NamedTuple):
    """The content of one record of a share group. A value of None removes the key."""

    key: ShareGroupLogKey
    value: ShareGroupLogValue | None


SHARE_KEY_TYPES: Mapping[int, Callable[..., ShareGroupLogKey]] = MappingProxyType(
    {
        10: ShareMemberKey,
        11: ShareGroupKey,
        12: ShareTargetEpochKey,
        13: ShareTargetKey,
        14: ShareCurrentKey,
        15: ShareStatesKey,
    }
)
"""Type number of a record → its key class."""
SHARE_TYPE_NUMBERS: Mapping[object, int] = MappingProxyType({kind: number for number, kind in SHARE_KEY_TYPES.items()})


# writing


def encode_share_group_entry(entry: ShareGroupLogEntry) -> tuple[bytes, bytes | None]:
    """Encode the entry as key and value. Raises ValueError if a string is longer than its field allows."""
    key, value = entry
    encoded = _INT16.pack(SHARE_TYPE_NUMBERS[type(key)]) + b"".join(string(field) for field in key)
    return encoded, None if value is None else _VERSION + _encode_value(value)


def _encode_value(value: ShareGroupLogValue) -> bytes:
    match value:
        case ShareMemberValue(rack, client_id, client_host, names):
            texts = b"".join(map(compact_string, (rack, client_id, client_host)))
            return texts + compact_array_count(names) + b"".join(map(compact_string, names)) + NO_TAGS
        case ShareGroupValue(epoch, metadata_hash):
            return _EPOCH_AND_HASH.pack(epoch, metadata_hash) + NO_TAGS
        case ShareTargetEpochValue(epoch, timestamp):
            tags = b"\1" + tagged(0, _INT64.pack(timestamp)) if timestamp else NO_TAGS
            return _INT32.pack(epoch) + tags
        case ShareTargetValue(partitions):
            return _encode_partitions(partitions) + NO_TAGS
        case ShareCurrentValue(epoch, previous_epoch, assigned):
            head = _EPOCHS_AND_STATE.pack(epoch, previous_epoch, STABLE)
            return head + _encode_partitions(assigned) + NO_TAGS
    deleting = [topic_id.bytes + compact_string(name) + NO_TAGS for topic_id, name in sorted(value.deleting.items())]
    states = _encode_states(value.initializing) + _encode_states(value.initialized)
    return states + compact_array_count(deleting) + b"".join(deleting) + NO_TAGS


def _encode_numbers(partitions: Iterable[int]) -> bytes:
    numbers = sorted(partitions)
    return compact_array_count(numbers) + struct.pack(f">{len(numbers)}i", *numbers) + NO_TAGS


def _encode_partitions(partitions: Partitions) -> bytes:
    rows = [topic_id.bytes + _encode_numbers(numbers) for topic_id, numbers in sorted(partitions.items())]
    return compact_array_count(rows) + b"".join(rows)


def _encode_states(states: Mapping[UUID, TopicStates]) -> bytes:
    rows = [
        topic_id.bytes + compact_string(topic.name) + _encode_numbers(topic.partitions)
        for topic_id, topic in sorted(states.items())
    ]
    return compact_array_count(rows) + b"".join(rows)


# reading


def decode_share_group_entry(kind: int, key: memoryview, value: bytes | None) -> ShareGroupLogEntry | None:
    """Decode a record whose key has the type `kind`, one of SHARE_KEY_TYPES. Return None for a version that this
    release does not know. Raises WireError or struct.error if the bytes do not parse."""
    fields, position = [], 2
    while position < len(key):
        field, position = read_string(key, position)
        fields.append(field or "")
    key_class = SHARE_KEY_TYPES[kind]
    if len(fields) != len(key_class._fields):  # type: ignore[attr-defined]
        raise WireError(f"a key of type {kind} in the offsets topic has {len(fields)} fields")
    found = key_class(*fields)
    if value is None:
        return ShareGroupLogEntry(found, None)
    if value[:2] != _VERSION:
        return None
    return ShareGroupLogEntry(found, _ShareValueReader(memoryview(value)).value(kind))


class _ShareValueReader:
    """Reads one value, field by field."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = len(_VERSION)

    def value(self, kind: int) -> ShareGroupLogValue:
        read: dict[int, Callable[[], ShareGroupLogValue]] = {
            10: self._member,
            11: self._group,
            12: self._target_epoch,
            13: lambda: ShareTargetValue(self._partitions()),
            14: self._current,
            15: self._states_of_group,
        }
        found = read[kind]()
        if kind != 12:
            self._skip_tags()
        if self.position != len(self.data):
            raise WireError(f"{len(self.data) - self.position} unexpected bytes at the end of a record of a group")
        return found

    def _member(self) -> ShareMemberValue:
        rack, client_id, client_host = self._text(), self._text() or "", self._text() or ""
        return ShareMemberValue(rack, client_id, client_host, tuple(self._text() or "" for _ in range(self._count())))

    def _group(self) -> ShareGroupValue:
        return ShareGroupValue(*self._unpack(_EPOCH_AND_HASH))

    def _target_epoch(self) -> ShareTargetEpochValue:
        (epoch,) = self._unpack(_INT32)
        tags, self.position = read_tagged(self.data, self.position)
        return ShareTargetEpochValue(epoch, _INT64.unpack(tags[0])[0] if 0 in tags else 0)

    def _current(self) -> ShareCurrentValue:
        epoch, previous_epoch, _ = self._unpack(_EPOCHS_AND_STATE)
        return ShareCurrentValue(epoch, previous_epoch, self._partitions())

    def _states_of_group(self) -> ShareStatesValue:
        initializing, initialized, deleting = self._states(), self._states(), {}
        for _ in range(self._count()):
            topic_id = self._uuid()
            deleting[topic_id] = self._text() or ""
            self._skip_tags()
        return ShareStatesValue(initializing, initialized, deleting)

    def _states(self) -> Mapping[UUID, TopicStates]:
        states = {}
        for _ in range(self._count()):
            topic_id, name = self._uuid(), self._text() or ""
            states[topic_id] = TopicStates(name, self._numbers())
        return states

    def _partitions(self) -> Partitions:
        partitions = {}
        for _ in range(self._count()):
            topic_id = self._uuid()
            numbers = self._numbers()
            if numbers:
                partitions[topic_id] = numbers
        return partitions or NO_PARTITIONS

    # fields

    def _unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def _uuid(self) -> UUID:
        end = self.position + _UUID_BYTES
        if end > len(self.data):
            raise WireError("a record of a share group ends too early")
        found = UUID(bytes=bytes(self.data[self.position : end]))
        self.position = end
        return found

    def _numbers(self) -> frozenset[int]:
        """Read the partitions that end a structure, and its tagged fields."""
        count = self._count()
        numbers = struct.unpack_from(f">{count}i", self.data, self.position)
        self.position += 4 * count
        self._skip_tags()
        return frozenset(numbers)

    def _text(self) -> str | None:
        value, self.position = read_compact_string(self.data, self.position)
        return value

    def _count(self) -> int:
        value, self.position = read_compact_array_count(self.data, self.position)
        return max(value, 0)

    def _skip_tags(self) -> None:
        self.position = skip_tagged_fields(self.data, self.position, len(self.data))
