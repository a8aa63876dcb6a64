"""Control records: transaction markers and the quorum's records.

The quorum's records are leader change, snapshot header and footer, kraft.version, and voters. The key is `version
int16, type int16`. A reader treats a version below 0 as corrupt and a higher one as 0. It skips types that it does not
know (`type` is None). The values of markers have a fixed layout; those of the quorum's records are structs in the
flexible encoding.
Source: KIP-98, KIP-595, KIP-630, KIP-853, Kafka's ControlRecordType.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from uuid import UUID

from kraft.seam import Buffer, WireError
from kraft.wire.primitives import (
    compact_array_count,
    compact_string,
    read_compact_array_count,
    read_compact_string,
    uuid_bytes,
    uuid_or_none,
)
from kraft.wire.records.batch_codec import Record, decode_batch, encode_batch
from kraft.wire.varints import skip_tagged_fields

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_LEADER = struct.Struct(">hi")
_VOTER = struct.Struct(">i16s")
_TIMESTAMP = struct.Struct(">hq")
_INT16 = struct.Struct(">h")
_PORT = struct.Struct(">H")
_LEVELS = struct.Struct(">hh")
_NO_TAGS = b"\0"
_LEADER_CHANGE_VERSION = 1

CONTROL_BATCH_BYTES_MAX = 1024 * 1024
"""Limit of a control batch's decompressed size; markers, voters and snapshot headers are far smaller."""


class ControlRecordType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    VOTERS = 6


_TYPES = MappingProxyType({int(kind): kind for kind in ControlRecordType})


@dataclass(frozen=True, slots=True)
class VoterKey:
    """Identity of a voter: node id and directory id."""

    voter_id: int
    directory_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of a leader's epoch."""

    leader_id: int
    voters: tuple[VoterKey, ...] = ()
    granting_voters: tuple[VoterKey, ...] = ()


@dataclass(frozen=True, slots=True)
class VoterEndpoint:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VoterEntry:
    """A voter in the voter set that applies from this record on."""

    voter_id: int
    directory_id: UUID | None
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """One control record: its type and that type's value; the other fields have their defaults."""

    type: ControlRecordType | None
    offset: int = -1
    coordinator_epoch: int = -1
    leader_change: LeaderChange | None = None
    last_contained_log_timestamp: int = -1
    kraft_version: int = -1
    voters: tuple[VoterEntry, ...] = ()


def encode_control(
    *records: ControlRecord,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp_ms: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytearray:
    """Encode a control batch. A transaction marker is alone in its batch and names its producer."""
    is_marker = records[0].type in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
    items = [Record(0, timestamp_ms, _KEY.pack(0, _type_number(record)), _encode_value(record)) for record in records]
    return encode_batch(
        items,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=is_marker,
        control=True,
    )


def decode_control(buffer: Buffer, position: int = 0) -> ControlRecord:
    """Decode the first record of the control batch at `position`. Raises WireError if it does not parse."""
    records = decode_controls(buffer, position)
    if not records:
        raise WireError("a control batch has no record")
    return records[0]


def decode_controls(buffer: Buffer, position: int = 0) -> list[ControlRecord]:
    """Decode all records of the control batch at `position`. Raises WireError if they do not parse."""
    return [
        decode_control_record(record)
        for record in decode_batch(buffer, position, output_bytes_max=CONTROL_BATCH_BYTES_MAX)
    ]


def decode_control_record(record: Record) -> ControlRecord:
    """Decode one record of a control batch. Raises WireError if it does not parse."""
    try:
        return _decode(record)
    except (struct.error, IndexError):
        raise WireError(f"the control record at offset {record.offset} ends too soon") from None


def _type_number(record: ControlRecord) -> int:
    if record.type is None:
        raise ValueError("a control record without a type cannot be written")
    return record.type


def _encode_value(record: ControlRecord) -> bytes:
    match record.type:
        case ControlRecordType.ABORT | ControlRecordType.COMMIT:
            return _MARKER.pack(0, record.coordinator_epoch)
        case ControlRecordType.LEADER_CHANGE:
            change = record.leader_change or LeaderChange(-1)
            head = _LEADER.pack(_LEADER_CHANGE_VERSION, change.leader_id)
            return head + _encode_keys(change.voters) + _encode_keys(change.granting_voters) + _NO_TAGS
        case ControlRecordType.SNAPSHOT_HEADER:
            return _TIMESTAMP.pack(0, record.last_contained_log_timestamp) + _NO_TAGS
        case ControlRecordType.KRAFT_VERSION:
            return _LEVELS.pack(0, record.kraft_version) + _NO_TAGS
        case ControlRecordType.VOTERS:
            return _INT16.pack(0) + _encode_voters(record.voters) + _NO_TAGS
        case _:
            return _INT16.pack(0) + _NO_TAGS


def _encode_keys(voters: Sequence[VoterKey]) -> bytes:
    packed = [_VOTER.pack(voter.voter_id, uuid_bytes(voter.directory_id)) + _NO_TAGS for voter in voters]
    return compact_array_count(voters) + b"".join(packed)


def _encode_voters(voters: Sequence[VoterEntry]) -> bytes:
    parts = [compact_array_count(voters)]
    for voter in voters:
        parts += _VOTER.pack(voter.voter_id, uuid_bytes(voter.directory_id)), compact_array_count(voter.endpoints)
        for endpoint in voter.endpoints:
            parts += compact_string(endpoint.name), compact_string(endpoint.host), _PORT.pack(endpoint.port), _NO_TAGS
        parts += _LEVELS.pack(voter.kraft_version_min, voter.kraft_version_max), _NO_TAGS, _NO_TAGS
    return b"".join(parts)


def _decode(record: Record) -> ControlRecord:
    if record.key is None:
        raise WireError(f"the control record at offset {record.offset} has no key")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise WireError(f"the control record at offset {record.offset} has version {version}")
    kind = _TYPES.get(number)
    data = memoryview(record.value or b"")
    match kind:
        case ControlRecordType.ABORT | ControlRecordType.COMMIT:
            _, coordinator_epoch = _MARKER.unpack_from(data)
            return ControlRecord(type=kind, offset=record.offset, coordinator_epoch=coordinator_epoch)
        case ControlRecordType.LEADER_CHANGE:
            return ControlRecord(type=kind, offset=record.offset, leader_change=_decode_leader_change(data))
        case ControlRecordType.SNAPSHOT_HEADER:
            _, timestamp = _TIMESTAMP.unpack_from(data)
            return ControlRecord(type=kind, offset=record.offset, last_contained_log_timestamp=timestamp)
        case ControlRecordType.KRAFT_VERSION:
            _, level = _LEVELS.unpack_from(data)
            return ControlRecord(type=kind, offset=record.offset, kraft_version=level)
        case ControlRecordType.VOTERS:
            return ControlRecord(type=kind, offset=record.offset, voters=_decode_voters(data))
    return ControlRecord(type=kind, offset=record.offset)


def _decode_leader_change(data: memoryview) -> LeaderChange:
    version, leader_id = _LEADER.unpack_from(data)
    voters, position = _decode_keys(version, data, _LEADER.size)
    granting, _ = _decode_keys(version, data, position)
    return LeaderChange(leader_id, voters, granting)


def _decode_keys(version: int, data: memoryview, position: int) -> tuple[tuple[VoterKey, ...], int]:
    form = _VOTER if version >= 1 else struct.Struct(">i")
    count, position = read_compact_array_count(data, position)
    voters = []
    for _ in range(count):
        voter_id, *directory = form.unpack_from(data, position)
        position = skip_tagged_fields(data, position + form.size, len(data))
        voters.append(VoterKey(voter_id, uuid_or_none(directory[0]) if directory else None))
    return tuple(voters), position


def _decode_voters(data: memoryview) -> tuple[VoterEntry, ...]:
    count, position = read_compact_array_count(data, _INT16.size)
    voters = []
    for _ in range(count):
        voter_id, directory = _VOTER.unpack_from(data, position)
        endpoint_count, position = read_compact_array_count(data, position + _VOTER.size)
        endpoints = []
        for _ in range(endpoint_count):
            name, position = read_compact_string(data, position)
            host, position = read_compact_string(data, position)
            (port,) = _PORT.unpack_from(data, position)
            position = skip_tagged_fields(data, position + _PORT.size, len(data))
            endpoints.append(VoterEndpoint(name or "", host or "", port))
        low, high = _LEVELS.unpack_from(data, position)
        position = skip_tagged_fields(data, position + _LEVELS.size, len(data))
        position = skip_tagged_fields(data, position, len(data))
        voters.append(VoterEntry(voter_id, uuid_or_none(directory), tuple(endpoints), low, high))
    return tuple(voters)
