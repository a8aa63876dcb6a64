"""The bytes of a producer snapshot, `<20-digit offset>.snapshot`: the last batch of each producer at that offset.

`version int16 (1) · crc uint32 (CRC-32C of bytes 6..end) · count int32 · count x 46 bytes`.
Source: Kafka's ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

VERSION = 1
_HEADER = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
NO_OFFSET = -1


class SnapshotEntry(NamedTuple):
    """One producer in a producer snapshot. -1 means none in every field; `offset_delta` is the batch's last offset
    minus its first."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode(entries: Iterable[SnapshotEntry]) -> bytes:
    rows = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[SnapshotEntry] | None:
    """Return the entries, or None if the bytes are not a whole snapshot of this version."""
    if len(data) < _HEADER.size + _COUNT.size:
        return None
    version, crc = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    (count,) = _COUNT.unpack_from(body)
    if version != VERSION or crc32c(body) != crc or len(body) != _COUNT.size + count * _ENTRY.size:
        return None
    return [SnapshotEntry(*row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]
