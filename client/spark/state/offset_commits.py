"""Pure: decode the commits in records of `__consumer_offsets`, as rows of table `offset_commits`.

A record key is a 16-bit type, then fields. A record value is a 16-bit version, then fields, flexible from version 4 on.
Records of other types (groups), and of unknown versions, are not commits. Source: OffsetCommitKey, OffsetCommitValue.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from kraft.client.spark.state.cells import known, time_of
from kraft.client.spark.state.request import Moment, StateRequest, make_rows
from kraft.seam import WireError
from kraft.wire.primitives import read_compact_string, read_string

KEY_TYPES = (0, 1)
NEWEST_VERSION = 4
FIRST_WITH_LEADER_EPOCH = 3
FIRST_FLEXIBLE = 4

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

Record = tuple[bytes | None, bytes | None, int, int, datetime | None]
"""Type: (key, value, partition, offset, time) of a record."""
RECORD_COLUMNS = ("key", "value", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset commit, or the deletion of one, whose `offset`, `leader_epoch` and `metadata` are None."""

    group_id: str
    topic: str
    partition: int
    offset: int | None
    leader_epoch: int | None
    metadata: str | None
    committed: datetime | None
    log_partition: int
    log_offset: int

    @property
    def is_tombstone(self) -> bool:
        return self.offset is None


GETTERS = MappingProxyType(
    {
        name: attrgetter(name)
        for name in (
            "group_id",
            "topic",
            "partition",
            "offset",
            "leader_epoch",
            "metadata",
            "committed",
            "is_tombstone",
            "log_partition",
            "log_offset",
        )
    }
)


def commit_rows(request: StateRequest, records: Iterable[Record], moment: Moment) -> Iterable[tuple[Any, ...]]:
    """Yield a row for each record that is a commit. Raises WireError for a commit that does not parse."""
    return make_rows(request, GETTERS, commits(records), moment, lambda _name: lambda _source: None)


def commits(records: Iterable[Record]) -> Iterator[Commit]:
    """Yield the commits among these records. Raises WireError for a commit that does not parse."""
    for key, value, partition, offset, timestamp in records:
        try:
            found = decode_commit(key, value, partition, offset, timestamp)
        except (struct.error, WireError) as problem:
            raise WireError(f"record {offset} of __consumer_offsets-{partition} cannot be read: {problem}") from None
        if found is not None:
            yield found


def decode_commit(
    key: bytes | None, value: bytes | None, log_partition: int, log_offset: int, timestamp: datetime | None
) -> Commit | None:
    """Return the commit that a record contains; None if the record is of another type. Raises struct.error or WireError
    if the record does not parse."""
    if key is None:
        return None
    data = memoryview(key)
    (kind,) = _INT16.unpack_from(data)
    if kind not in KEY_TYPES:
        return None
    group, position = read_string(data, _INT16.size)
    topic, position = read_string(data, position)
    (partition,) = _INT32.unpack_from(data, position)
    if value is None:
        return Commit(group or "", topic or "", partition, None, None, None, timestamp, log_partition, log_offset)
    body = memoryview(value)
    (version,) = _INT16.unpack_from(body)
    if not 0 <= version <= NEWEST_VERSION:
        return None
    offset, epoch, metadata, committed = _decode_value(body, version)
    return Commit(group or "", topic or "", partition, offset, epoch, metadata, committed, log_partition, log_offset)


def _decode_value(body: memoryview, version: int) -> tuple[int, int | None, str, datetime | None]:
    """Return (offset, leader epoch, metadata, time) of a record value. The fields after them (an expiry, the topic's
    id) are ignored."""
    position = _INT16.size
    (offset,) = _INT64.unpack_from(body, position)
    position += _INT64.size
    leader_epoch = -1
    if version >= FIRST_WITH_LEADER_EPOCH:
        (leader_epoch,) = _INT32.unpack_from(body, position)
        position += _INT32.size
    read = read_compact_string if version >= FIRST_FLEXIBLE else read_string
    metadata, position = read(body, position)
    (committed_ms,) = _INT64.unpack_from(body, position)
    return offset, known(leader_epoch), metadata or "", time_of(committed_ms)
