"""The records of consumer groups in `__consumer_offsets`, encoded byte for byte with Kafka's schemas.

Every value is version 0, in flexible encoding. Topics are written in order of their ids and partitions in ascending
order, so that equal values have equal bytes.
Source: ConsumerGroupMetadataValue, ConsumerGroupMemberMetadataValue, ConsumerGroupTargetAssignmentMetadataValue,
ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupCurrentMemberAssignmentValue,
ConsumerGroupRegularExpressionValue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.requests import NO_PARTITIONS, Partitions
from kraft.seam import WireError
from kraft.wire.messages.tagged import read_tagged, tagged
from kraft.wire.primitives import (
    compact_array_count,
    compact_byte_string,
    compact_string,
    read_bytes,
    read_compact_array_count,
    read_compact_byte_string,
    read_compact_string,
    read_string,
    string,
)
from kraft.wire.varints import skip_tagged_fields

VERSION = 0
NO_TAGS = b"\0"
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_EPOCHS_AND_STATE = struct.Struct(">iib")
_VERSION = _INT16.pack(VERSION)
_UUID_BYTES = 16

HeldPartitions = Mapping[UUID, Mapping[int, int]]
"""Topic id → partition → the assignment epoch in which the member got the partition. Never changed; no mapping in it is
empty."""
NOTHING_HELD: HeldPartitions = MappingProxyType({})


class MemberState(IntEnum):
    """State of a member's reconciliation. Kafka's numbers; any other number is UNKNOWN."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before it moves to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members still hold."""
    UNKNOWN = 127


MEMBER_STATES: Mapping[int, MemberState] = MappingProxyType({state.value: state for state in MemberState})


class ConsumerGroupKey(NamedTuple):
    """The key of a group's epoch."""

    group: str


class ConsumerMemberKey(NamedTuple):
    """The key of a member's metadata."""

    group: str
    member_id: str


class TargetEpochKey(NamedTuple):
    """The key of a group's assignment epoch."""

    group: str


class TargetMemberKey(NamedTuple):
    """The key of a member's target assignment."""

    group: str
    member_id: str


class CurrentMemberKey(NamedTuple):
    """The key of a member's current assignment."""

    group: str
    member_id: str


class RegexKey(NamedTuple):
    """The key of the topics that a regular expression matches."""

    group: str
    regex: str


class ConsumerGroupValue(NamedTuple):
    """A group's epoch, and the hash of its subscribed topics (0 for none)."""

    epoch: int
    metadata_hash: int = 0


class ClassicMemberValue(NamedTuple):
    """What a member with the classic protocol adds: its session timeout in ms, and its (name, metadata) protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMemberValue(NamedTuple):
    """A member's metadata, from its heartbeats. `subscribed_names` is sorted; `classic` is None unless the member uses
    the classic protocol."""

    instance_id: str | None
    rack: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]
    subscribed_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None = None
    classic: ClassicMemberValue | None = None


class TargetEpochValue(NamedTuple):
    """The group epoch of the target assignment, and the wall-clock ms at which it was computed."""

    epoch: int
    timestamp: int = 0


class TargetMemberValue(NamedTuple):
    """The partitions that a member shall have."""

    partitions: Partitions


class CurrentMemberValue(NamedTuple):
    """The partitions that a member has: `assigned` it may use, `revoking` it has been told to revoke and may still
    own. No other member gets either."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: HeldPartitions = NOTHING_HELD
    revoking: HeldPartitions = NOTHING_HELD


class RegexValue(NamedTuple):
    """The topics that a regular expression matched, sorted. `version` is a metadata offset in Kafka, here always 0;
    `timestamp` is in wall-clock ms."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


ConsumerKey = ConsumerGroupKey | ConsumerMemberKey | TargetEpochKey | TargetMemberKey | CurrentMemberKey | RegexKey
ConsumerValue = (
    ConsumerGroupValue | ConsumerMemberValue | TargetEpochValue | TargetMemberValue | CurrentMemberValue | RegexValue
)


class ConsumerLogEntry(NamedTuple):
    """The content of one record of a consumer group. A value of None removes the key."""

    key: ConsumerKey
    value: ConsumerValue | None


KEY_TYPES: Mapping[int, Callable[..., ConsumerKey]] = MappingProxyType(
    {
        3: ConsumerGroupKey,
        5: ConsumerMemberKey,
        6: TargetEpochKey,
        7: TargetMemberKey,
        8: CurrentMemberKey,
        16: RegexKey,
    }
)
"""Type number of a record → its key class."""
TYPE_NUMBERS: Mapping[object, int] = MappingProxyType({kind: number for number, kind in KEY_TYPES.items()})


# writing


def encode_consumer_entry(entry: ConsumerLogEntry) -> tuple[bytes, bytes | None]:
    """Encode the entry as key and value. Raises ValueError if a string is longer than its field allows."""
    key, value = entry
    encoded = _INT16.pack(TYPE_NUMBERS[type(key)]) + b"".join(string(field) for field in key)
    return encoded, None if value is None else _VERSION + _encode_value(value)


def _encode_value(value: ConsumerValue) -> bytes:
    match value:
        case ConsumerGroupValue(epoch, metadata_hash):
            return _INT32.pack(epoch) + _tag(_INT64.pack(metadata_hash) if metadata_hash else None)
        case ConsumerMemberValue():
            return _encode_member(value)
        case TargetEpochValue(epoch, timestamp):
            return _INT32.pack(epoch) + _tag(_INT64.pack(timestamp) if timestamp else None)
        case TargetMemberValue(partitions):
            return _encode_topics(partitions) + NO_TAGS
        case CurrentMemberValue():
            head = _EPOCHS_AND_STATE.pack(value.epoch, value.previous_epoch, value.state)
            return head + _encode_held(value.assigned) + _encode_held(value.revoking) + NO_TAGS
        case RegexValue():
            topics = b"".join(map(compact_string, value.topics))
            times = _INT64.pack(value.version) + _INT64.pack(value.timestamp)
            return compact_array_count(value.topics) + topics + times + NO_TAGS


def _tag(value: bytes | None) -> bytes:
    """Encode the tagged fields of a structure: the one with number 0, if it has a value."""
    return NO_TAGS if value is None else b"\1" + tagged(0, value)


def _encode_member(value: ConsumerMemberValue) -> bytes:
    classic = value.classic
    return b"".join(
        (
            compact_string(value.instance_id),
            compact_string(value.rack),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_array_count(value.subscribed_names),
            *map(compact_string, value.subscribed_names),
            compact_string(value.subscribed_regex),
            _INT32.pack(value.rebalance_timeout_ms),
            compact_string(value.server_assignor),
            _tag(None if classic is None else _encode_classic(classic)),
        )
    )


def _encode_classic(value: ClassicMemberValue) -> bytes:
    """Encode the nullable structure in its tagged field: a byte that says that it is there comes first."""
    protocols = b"".join(
        compact_string(name) + compact_byte_string(metadata) + NO_TAGS for name, metadata in value.protocols
    )
    present = _INT8.pack(1)
    return present + _INT32.pack(value.session_timeout_ms) + compact_array_count(value.protocols) + protocols + NO_TAGS


def _encode_int32s(numbers: list[int]) -> bytes:
    return compact_array_count(numbers) + struct.pack(f">{len(numbers)}i", *numbers)


def _encode_topics(partitions: Partitions) -> bytes:
    rows = [topic_id.bytes + _encode_int32s(sorted(partitions[topic_id])) + NO_TAGS for topic_id in sorted(partitions)]
    return compact_array_count(rows) + b"".join(rows)


def _encode_held(held: HeldPartitions) -> bytes:
    rows = []
    for topic_id in sorted(held):
        epochs = sorted(held[topic_id].items())
        partitions = _encode_int32s([partition for partition, _ in epochs])
        rows.append(topic_id.bytes + partitions + _tag(_encode_int32s([epoch for _, epoch in epochs])))
    return compact_array_count(rows) + b"".join(rows)


# reading


def decode_consumer_entry(kind: int, key: memoryview, value: bytes | None) -> ConsumerLogEntry | None:
    """Decode a record whose key has the type `kind`, one of KEY_TYPES. Return None for a version that this release does
    not know. Raises WireError or struct.error if the bytes do not parse."""
    fields, position = [], 2
    while position < len(key):
        field, position = read_string(key, position)
        fields.append(field or "")
    key_class = KEY_TYPES[kind]
    if len(fields) != len(key_class._fields):  # type: ignore[attr-defined]
        raise WireError(f"a key of type {kind} in the offsets topic has {len(fields)} fields")
    found = key_class(*fields)
    if value is None:
        return ConsumerLogEntry(found, None)
    if value[:2] != _VERSION:
        return None
    return ConsumerLogEntry(found, _ValueReader(memoryview(value)).value(kind))


class _ValueReader:
    """Reads one value, field by field."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = len(_VERSION)

    def value(self, kind: int) -> ConsumerValue:
        found = VALUE_READERS[kind](self)
        if self.position != len(self.data):
            raise WireError(f"{len(self.data) - self.position} unexpected bytes at the end of a record of a group")
        return found

    def _group(self) -> ConsumerGroupValue:
        return ConsumerGroupValue(self._int32(), self._tagged_int64())

    def _member(self) -> ConsumerMemberValue:
        return ConsumerMemberValue(
            self._text(),
            self._text(),
            self._text() or "",
            self._text() or "",
            self._texts(),
            self._text(),
            self._int32(),
            self._text(),
            self._classic(),
        )

    def _classic(self) -> ClassicMemberValue | None:
        field = self._tags().get(0)
        if field is None or not field[0]:
            return None
        inner = _ValueReader(field)
        inner.position = 1
        timeout_ms = inner._int32()
        protocols = []
        for _ in range(inner._count()):
            protocols.append((inner._text() or "", inner._blob()))
            inner._skip_tags()
        return ClassicMemberValue(timeout_ms, tuple(protocols))

    def _target_epoch(self) -> TargetEpochValue:
        return TargetEpochValue(self._int32(), self._tagged_int64())

    def _target(self) -> TargetMemberValue:
        partitions = {}
        for _ in range(self._count()):
            topic_id, numbers = self._topic()
            self._skip_tags()
            if numbers:
                partitions[topic_id] = frozenset(numbers)
        self._skip_tags()
        return TargetMemberValue(partitions or NO_PARTITIONS)

    def _current(self) -> CurrentMemberValue:
        epoch, previous_epoch, state = _EPOCHS_AND_STATE.unpack_from(self.data, self.position)
        self.position += _EPOCHS_AND_STATE.size
        found = MEMBER_STATES.get(state, MemberState.UNKNOWN)
        assigned, revoking = self._held(epoch), self._held(epoch)
        self._skip_tags()
        return CurrentMemberValue(epoch, previous_epoch, found, assigned, revoking)

    def _held(self, member_epoch: int) -> HeldPartitions:
        """Read partitions. Those without an assignment epoch, which Kafka 4.2 wrote, get the member's epoch."""
        held = {}
        for _ in range(self._count()):
            topic_id, numbers = self._topic()
            field = self._tags().get(0)
            epochs = [member_epoch] * len(numbers) if field is None else _ValueReader.int32s_of(field)
            if numbers:
                held[topic_id] = dict(zip(numbers, epochs, strict=False))
        return held or NOTHING_HELD

    def _topic(self) -> tuple[UUID, list[int]]:
        raw, self.position = read_bytes(self.data, self.position, _UUID_BYTES)
        return UUID(bytes=raw), self._int32s()

    @staticmethod
    def int32s_of(field: memoryview) -> list[int]:
        reader = _ValueReader(field)
        reader.position = 0
        return reader._int32s()

    def _regex(self) -> RegexValue:
        found = RegexValue(self._texts(), self._int64(), self._int64())
        self._skip_tags()
        return found

    # fields

    def _int32(self) -> int:
        return self._number(_INT32)

    def _int64(self) -> int:
        return self._number(_INT64)

    def _number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return int(value)

    def _int32s(self) -> list[int]:
        count = self._count()
        numbers = struct.unpack_from(f">{count}i", self.data, self.position)
        self.position += 4 * count
        return list(numbers)

    def _text(self) -> str | None:
        value, self.position = read_compact_string(self.data, self.position)
        return value

    def _texts(self) -> tuple[str, ...]:
        return tuple(self._text() or "" for _ in range(self._count()))

    def _blob(self) -> bytes:
        value, self.position = read_compact_byte_string(self.data, self.position)
        return value or b""

    def _count(self) -> int:
        value, self.position = read_compact_array_count(self.data, self.position)
        return max(value, 0)

    def _tags(self) -> dict[int, memoryview]:
        tags, self.position = read_tagged(self.data, self.position)
        return tags

    def _tagged_int64(self) -> int:
        field: Any = self._tags().get(0)
        return 0 if field is None else int(_INT64.unpack(field)[0])

    def _skip_tags(self) -> None:
        self.position = skip_tagged_fields(self.data, self.position, len(self.data))


VALUE_READERS: Mapping[int, Callable[[_ValueReader], ConsumerValue]] = MappingProxyType(
    {
        3: _ValueReader._group,
        5: _ValueReader._member,
        6: _ValueReader._target_epoch,
        7: _ValueReader._target,
        8: _ValueReader._current,
        16: _ValueReader._regex,
    }
)
"""Type number of a record → the method that reads its value."""
