"""The records of `__share_group_state`, encoded byte for byte with Kafka's schemas.

A key is a 16-bit type, a group, a topic id and a partition. A ShareSnapshot has the whole state of a share partition, a
ShareUpdate what changed after it. A snapshot without a value deletes the state. Records of unknown types and versions
are skipped, so that a downgraded broker can load the log.
Source: ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from kraft.broker.share_partition.states import StateBatch
from kraft.seam import WireError
from kraft.seam.ids import encode_uuid
from kraft.wire.messages.tagged import read_tagged
from kraft.wire.primitives import compact_array_count, read_compact_array_count, read_string, string
from kraft.wire.varints import encode_unsigned, skip_tagged_fields

SNAPSHOT_TYPE, UPDATE_TYPE = 0, 1
VERSION = 0
COMPLETE_COUNT_TAG = 0

NO_EPOCH = -1
NO_OFFSET = -1
NO_COUNT = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_KEY_TAIL = struct.Struct(">16si")
_SNAPSHOT_HEAD = struct.Struct(">iiiqqq")
_UPDATE_HEAD = struct.Struct(">iiq")
_BATCH = struct.Struct(">qqbh")


class ShareKey(NamedTuple):
    """A share partition: one partition of a topic, for one share group."""

    group: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """Return the key by which Kafka finds the coordinator: the group, the topic id in base64, and the partition."""
        return share_coordinator_key(self.group, self.topic_id, self.partition)


class ShareSnapshot(NamedTuple):
    """The whole state of a share partition. Timestamps are wall-clock ms; `delivery_complete_count` is -1 if it is not
    known."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int
    write_ms: int
    batches: tuple[StateBatch, ...] = ()


class ShareUpdate(NamedTuple):
    """What changed in a share partition since its last snapshot. A field that is -1 has not changed."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


class ShareStateEntry(NamedTuple):
    """One record: a share partition and the value. The value None removes the state of the share partition."""

    key: ShareKey
    value: ShareSnapshot | ShareUpdate | None


class ShareStateRecord(NamedTuple):
    """An encoded record to append. If `value` is None, the record deletes the key."""

    key: bytes
    value: bytes | None


def share_coordinator_key(group: str, topic_id: UUID, partition: int) -> str:
    """Return the key that places a share partition in a partition of `__share_group_state`."""
    return f"{group}:{encode_uuid(topic_id)}:{partition}"


def encode_entry(entry: ShareStateEntry) -> ShareStateRecord:
    """Return the entry as a record. Raises ValueError if a string or a number is too large for its field."""
    value = entry.value
    kind = UPDATE_TYPE if isinstance(value, ShareUpdate) else SNAPSHOT_TYPE
    try:
        tail = _KEY_TAIL.pack(entry.key.topic_id.bytes, entry.key.partition)
        key = _INT16.pack(kind) + string(entry.key.group) + tail
        return ShareStateRecord(key, None if value is None else _encode_value(value))
    except struct.error as error:
        raise ValueError(f"a number in the state of a share partition is too large for its field: {error}") from None


def _encode_value(value: ShareSnapshot | ShareUpdate) -> bytes:
    if isinstance(value, ShareSnapshot):
        head = _SNAPSHOT_HEAD.pack(
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.create_ms,
            value.write_ms,
        )
    else:
        head = _UPDATE_HEAD.pack(value.snapshot_epoch, value.leader_epoch, value.start_offset)
    batches = b"".join(_BATCH.pack(*batch) + b"\0" for batch in value.batches)
    tags = _encode_tags(value.delivery_complete_count)
    return b"".join((_INT16.pack(VERSION), head, compact_array_count(value.batches), batches, tags))


def _encode_tags(delivery_complete_count: int) -> bytes:
    if delivery_complete_count == NO_COUNT:
        return encode_unsigned(0)
    data = _INT32.pack(delivery_complete_count)
    return encode_unsigned(1) + encode_unsigned(COMPLETE_COUNT_TAG) + encode_unsigned(len(data)) + data


def decode_entry(key: bytes | None, value: bytes | None) -> ShareStateEntry | None:
    """Return the entry of a record, or None for an unknown type or version. Raises WireError if the bytes do not
    parse."""
    try:
        return _decode_entry(key, value)
    except struct.error:
        raise WireError("a record of share group state ends too early") from None


def _decode_entry(key: bytes | None, value: bytes | None) -> ShareStateEntry | None:
    if key is None:
        raise WireError("a record of share group state has no key")
    data = memoryview(key)
    (kind,) = _INT16.unpack_from(data)
    if kind not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        return None
    group, position = read_string(data, 2)
    topic_id, partition = _KEY_TAIL.unpack_from(data, position)
    _check_end(data, position + _KEY_TAIL.size)
    share_key = ShareKey(group or "", UUID(bytes=topic_id), partition)
    if value is None:
        return ShareStateEntry(share_key, None)
    body = memoryview(value)
    (version,) = _INT16.unpack_from(body)
    if version != VERSION:
        return None
    return ShareStateEntry(share_key, _read_snapshot(body) if kind == SNAPSHOT_TYPE else _read_update(body))


def _read_snapshot(data: memoryview) -> ShareSnapshot:
    snapshot_epoch, state_epoch, leader_epoch, start, create_ms, write_ms = _SNAPSHOT_HEAD.unpack_from(data, 2)
    batches, count = _read_tail(data, 2 + _SNAPSHOT_HEAD.size)
    return ShareSnapshot(snapshot_epoch, state_epoch, leader_epoch, start, count, create_ms, write_ms, batches)


def _read_update(data: memoryview) -> ShareUpdate:
    snapshot_epoch, leader_epoch, start = _UPDATE_HEAD.unpack_from(data, 2)
    batches, count = _read_tail(data, 2 + _UPDATE_HEAD.size)
    return ShareUpdate(snapshot_epoch, leader_epoch, start, count, batches)


def _read_tail(data: memoryview, position: int) -> tuple[tuple[StateBatch, ...], int]:
    """Return the batches, and the count of complete offsets in the tagged fields."""
    number, position = read_compact_array_count(data, position)
    batches: list[StateBatch] = []
    for _ in range(max(number, 0)):
        batches.append(StateBatch(*_BATCH.unpack_from(data, position)))
        position = skip_tagged_fields(data, position + _BATCH.size, len(data))
    tags, position = read_tagged(data, position)
    count = NO_COUNT
    if COMPLETE_COUNT_TAG in tags:
        (count,) = _INT32.unpack(tags[COMPLETE_COUNT_TAG])
    _check_end(data, position)
    return tuple(batches), count


def _check_end(data: Sequence[int] | memoryview, position: int) -> None:
    if position != len(data):
        raise WireError(f"a record of share group state has {len(data) - position} bytes too many")
