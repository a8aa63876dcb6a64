"""The records of `__consumer_offsets`, encoded byte for byte with Kafka's schemas.

A key is a 16-bit type followed by non-flexible fields. A value is a 16-bit version followed by fields, in flexible
encoding from the version in which the schema became flexible. The encoding of keys must never change, because
compaction would then keep two records of the same key. Record types and versions of another release are skipped, so
that loading also works after a downgrade. The records of consumer groups are in
`kraft.broker.consumer_group.records`.
Source: OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue, KIP-915.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.records import (
    KEY_TYPES,
    ConsumerLogEntry,
    decode_consumer_entry,
    encode_consumer_entry,
)
from kraft.broker.share_group.records import (
    SHARE_KEY_TYPES,
    ShareGroupLogEntry,
    decode_share_group_entry,
    encode_share_group_entry,
)
from kraft.seam import WireError
from kraft.wire.messages.tagged import read_tagged
from kraft.wire.primitives import (
    array_count,
    byte_string,
    read_array_count,
    read_byte_string,
    read_compact_array_count,
    read_compact_byte_string,
    read_compact_string,
    read_string,
    string,
    uuid_or_none,
)
from kraft.wire.varints import encode_unsigned, skip_tagged_fields

OFFSET_TYPES = (0, 1)
OFFSET_TYPE = 1
GROUP_TYPE = 2

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
GROUP_VERSION = 3
NEWEST_READABLE_VERSION = 4
FIRST_FLEXIBLE_VERSION = 4

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_AND_EPOCH = struct.Struct(">qi")
_TWO_INT64 = struct.Struct(">qq")
_TOPIC_ID_TAG = 0


class LogRecord(NamedTuple):
    """An encoded record to append. If `value` is None, the record deletes the key."""

    key: bytes
    value: bytes | None


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a classic group."""

    group: str


class OffsetValue(NamedTuple):
    """A committed offset. Timestamps are wall-clock ms. `expire_timestamp` is -1 unless the client requested a
    retention time. With a requested retention, leader epoch and topic id are not stored, because that schema has no
    field for them. `topic_id` is None if it is not known."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: UUID | None = None


class MemberValue(NamedTuple):
    """A member of a classic group in its last stored generation. Timeouts in ms."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A classic group in its last stored generation."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    members: tuple[MemberValue, ...]


Key = OffsetKey | GroupKey
Value = OffsetValue | GroupValue


class GroupLogEntry(NamedTuple):
    """The content of one record: a key and its new value. A value of None removes the key."""

    key: Key
    value: Value | None


# writing


def encode_entry(entry: GroupLogEntry | ConsumerLogEntry | ShareGroupLogEntry) -> LogRecord:
    """Encode the entry as a record. Raises ValueError if a string is longer than its field allows."""
    if isinstance(entry, ConsumerLogEntry):
        return LogRecord(*encode_consumer_entry(entry))
    if isinstance(entry, ShareGroupLogEntry):
        return LogRecord(*encode_share_group_entry(entry))
    key, value = entry
    if isinstance(key, GroupKey):
        return LogRecord(
            _INT16.pack(GROUP_TYPE) + string(key.group),
            _encode_group(value) if isinstance(value, GroupValue) else None,
        )
    return LogRecord(
        _INT16.pack(OFFSET_TYPE) + string(key.group) + string(key.topic) + _INT32.pack(key.partition),
        _encode_offset(value) if isinstance(value, OffsetValue) else None,
    )


def _encode_offset(value: OffsetValue) -> bytes:
    if value.expire_timestamp != NO_TIMESTAMP:
        return (
            _INT16.pack(OFFSET_VERSION_WITH_EXPIRY)
            + _INT64.pack(value.offset)
            + string(value.metadata)
            + _TWO_INT64.pack(value.commit_timestamp, value.expire_timestamp)
        )
    metadata = value.metadata.encode()
    return b"".join(
        (
            _INT16.pack(OFFSET_VERSION),
            _OFFSET_AND_EPOCH.pack(value.offset, value.leader_epoch),
            encode_unsigned(len(metadata) + 1),
            metadata,
            _INT64.pack(value.commit_timestamp),
            b"\0" if value.topic_id is None else b"\1\0\x10" + value.topic_id.bytes,
        )
    )


def _encode_group(value: GroupValue) -> bytes:
    parts = [
        _INT16.pack(GROUP_VERSION),
        string(value.protocol_type),
        _INT32.pack(value.generation),
        string(value.protocol),
        string(value.leader),
        _INT64.pack(value.state_timestamp),
        array_count(value.members),
    ]
    for member in value.members:
        parts += (
            string(member.member_id),
            string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            byte_string(member.subscription),
            byte_string(member.assignment),
        )
    return b"".join(parts)


# reading


def decode_entry(
    key: bytes | None, value: bytes | None
) -> GroupLogEntry | ConsumerLogEntry | ShareGroupLogEntry | None:
    """Decode a record. Return None for a type or version that this release does not know. Raises WireError if the bytes
    do not parse."""
    try:
        return _decode_entry(key, value)
    except struct.error:
        raise WireError("a record of the offsets topic ends too soon") from None


def _decode_entry(
    key: bytes | None, value: bytes | None
) -> GroupLogEntry | ConsumerLogEntry | ShareGroupLogEntry | None:
    if key is None:
        raise WireError("a record of the offsets topic has no key")
    data = memoryview(key)
    (kind,) = _INT16.unpack_from(data)
    found: Key
    if kind in OFFSET_TYPES:
        found = _read_offset_key(data)
    elif kind == GROUP_TYPE:
        group, end = read_string(data, 2)
        _check_end(data, end)
        found = GroupKey(group or "")
    elif kind in KEY_TYPES:
        return decode_consumer_entry(kind, data, value)
    elif kind in SHARE_KEY_TYPES:
        return decode_share_group_entry(kind, data, value)
    else:
        return None
    if value is None:
        return GroupLogEntry(found, None)
    body = memoryview(value)
    (version,) = _INT16.unpack_from(body)
    if not 0 <= version <= NEWEST_READABLE_VERSION:
        return None
    reader = _FieldReader(body, version)
    return GroupLogEntry(found, reader.offset() if isinstance(found, OffsetKey) else reader.group())


def _read_offset_key(data: memoryview) -> OffsetKey:
    group, position = read_string(data, 2)
    topic, position = read_string(data, position)
    (partition,) = _INT32.unpack_from(data, position)
    _check_end(data, position + 4)
    return OffsetKey(group or "", topic or "", partition)


def _check_end(data: memoryview, position: int) -> None:
    if position != len(data):
        raise WireError(f"{len(data) - position} unexpected bytes at the end of a record of the offsets topic")


class _FieldReader:
    """Reads one value, field by field, in the version of the value."""

    def __init__(self, data: memoryview, version: int) -> None:
        self.data = data
        self.version = version
        self.is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self.position = 2

    def offset(self) -> OffsetValue:
        offset = self.int64()
        leader_epoch = self.int32() if self.version >= 3 else NO_LEADER_EPOCH
        metadata = self.text() or ""
        commit_timestamp = self.int64()
        expire_timestamp = self.int64() if self.version == OFFSET_VERSION_WITH_EXPIRY else NO_TIMESTAMP
        topic_id = None
        if self.is_flexible:
            tags, self.position = read_tagged(self.data, self.position)
            if _TOPIC_ID_TAG in tags:
                topic_id = uuid_or_none(bytes(tags[_TOPIC_ID_TAG]))
        _check_end(self.data, self.position)
        return OffsetValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id)

    def group(self) -> GroupValue:
        protocol_type = self.text() or ""
        generation = self.int32()
        protocol, leader = self.text(), self.text()
        state_timestamp = self.int64() if self.version >= 2 else NO_TIMESTAMP
        members = tuple(self.member() for _ in range(self.count()))
        self.tags()
        _check_end(self.data, self.position)
        return GroupValue(protocol_type, generation, protocol, leader, state_timestamp, members)

    def member(self) -> MemberValue:
        member_id = self.text() or ""
        instance_id = self.text() if self.version >= 3 else None
        client_id, client_host = self.text() or "", self.text() or ""
        rebalance_timeout_ms = self.int32() if self.version >= 1 else -1
        session_timeout_ms = self.int32()
        subscription, assignment = self.blob(), self.blob()
        self.tags()
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = session_timeout_ms
        return MemberValue(
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        )

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self.data, self.position)
        self.position += 4
        return int(value)

    def int64(self) -> int:
        (value,) = _INT64.unpack_from(self.data, self.position)
        self.position += 8
        return int(value)

    def text(self) -> str | None:
        read = read_compact_string if self.is_flexible else read_string
        value, self.position = read(self.data, self.position)
        return value

    def blob(self) -> bytes:
        read = read_compact_byte_string if self.is_flexible else read_byte_string
        value, self.position = read(self.data, self.position)
        return value or b""

    def count(self) -> int:
        read = read_compact_array_count if self.is_flexible else read_array_count
        value, self.position = read(self.data, self.position)
        return max(value, 0)

    def tags(self) -> None:
        if self.is_flexible:
            self.position = skip_tagged_fields(self.data, self.position, len(self.data))
