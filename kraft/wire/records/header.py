"""Record batch v2: reading the header without copying, and patching it in place.

Invariants: all integers are big-endian. baseOffset and partitionLeaderEpoch are outside the CRC and are the only fields
that `patch` writes. End offsets are exclusive (`next_offset`).
Source: KIP-98, message format v2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from kraft.seam import Buffer, WireError
from kraft.wire.records.compression import Compression

BATCH_HEADER_BYTES = 61
BATCH_PREFIX_BYTES = 12
"""Size of baseOffset and batchLength, which batchLength itself does not count."""
CRC_START = 21
"""Position in a batch of the first byte that the CRC covers (the attributes); the CRC covers everything from there on.
"""
MAGIC = 2

ATTRIBUTE_CODEC_MASK = 0x07
ATTRIBUTE_LOG_APPEND_TIME = 0x08
ATTRIBUTE_TRANSACTIONAL = 0x10
ATTRIBUTE_CONTROL = 0x20
ATTRIBUTE_DELETE_HORIZON = 0x40

SEQUENCE_MASK = 0x7FFFFFFF
"""Mask that wraps sequence numbers: the sequence after 2^31 - 1 is 0."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")


class BatchHeader(NamedTuple):
    """Header of a batch: the 61 bytes before the records."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return self.batch_length + BATCH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """The last offset that the batch spans, even if records were removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last offset."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Attribute bits 0-2 as a number; 5 to 7 are not codecs."""
        return self.attributes & ATTRIBUTE_CODEC_MASK

    @property
    def compression(self) -> Compression:
        """The codec. Raises WireError if the number is not a codec."""
        return Compression.of(self.attributes & ATTRIBUTE_CODEC_MASK)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & ATTRIBUTE_TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & ATTRIBUTE_CONTROL != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & ATTRIBUTE_LOG_APPEND_TIME != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the delete horizon, the time from which tombstones may be removed."""
        return self.attributes & ATTRIBUTE_DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping after 2^31 - 1; -1 if the batch has no sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK


_make_header = BatchHeader._make
_unpack_header = _HEADER.unpack_from


def header_at(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position` without any check. Raises struct.error if fewer than 61 bytes are there."""
    return _make_header(_unpack_header(buffer, position))


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`. Raises WireError if fewer than 61 bytes are there, magic is not 2 or the length
    is invalid."""
    try:
        header = _make_header(_unpack_header(buffer, position))
    except struct.error:
        raise WireError(
            f"a batch header needs {BATCH_HEADER_BYTES} bytes, {len(buffer) - position} are there"
        ) from None
    if header.magic != MAGIC:
        raise WireError(f"the batch at byte {position} has magic {header.magic}, expected {MAGIC}")
    if header.batch_length < BATCH_HEADER_BYTES - BATCH_PREFIX_BYTES:
        raise WireError(
            f"the batch at byte {position} announces {header.batch_length} bytes, fewer than its header has"
        )
    return header


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch; stop at an incomplete one. Raises WireError for a wrong magic or
    length."""
    end = len(buffer)
    while end - position >= BATCH_HEADER_BYTES:
        header = read_header(buffer, position)
        size = header.batch_length + BATCH_PREFIX_BYTES
        if size > end - position:
            return
        yield position, header
        position += size


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the batch's CRC is right. `buffer` must hold the whole batch."""
    end = position + header.batch_length + BATCH_PREFIX_BYTES
    if len(buffer) < end:
        return False
    return bool(crc32c(memoryview(buffer)[position + CRC_START : end]) == header.crc)


def patch(buffer: bytearray | memoryview, position: int, *, base_offset: int, partition_leader_epoch: int) -> None:
    """Write the two fields outside the CRC, in place."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + 12, partition_leader_epoch)


def patch_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Stamp the batch with the append time: set the attribute bit and maxTimestamp, and write the new CRC."""
    (attributes,) = _INT16.unpack_from(buffer, position + 21)
    _INT16.pack_into(buffer, position + 21, attributes | ATTRIBUTE_LOG_APPEND_TIME)
    _OFFSET.pack_into(buffer, position + 35, timestamp_ms)
    write_crc(buffer, position)


def patch_create_time(buffer: bytearray | memoryview, position: int, max_timestamp: int) -> None:
    """Change the batch to create times, with this latest one: clear the log-append-time bit that a client should not
    have set, and write maxTimestamp and the new CRC."""
    (attributes,) = _INT16.unpack_from(buffer, position + 21)
    _INT16.pack_into(buffer, position + 21, attributes & ~ATTRIBUTE_LOG_APPEND_TIME)
    _OFFSET.pack_into(buffer, position + 35, max_timestamp)
    write_crc(buffer, position)


def write_crc(buffer: bytearray | memoryview, position: int) -> None:
    """Compute the CRC of the batch at `position` and write it into its header."""
    (batch_length,) = _INT32.unpack_from(buffer, position + 8)
    with (
        memoryview(buffer) as view,
        view[position + CRC_START : position + batch_length + BATCH_PREFIX_BYTES] as covered,
    ):
        crc = crc32c(covered)
    _UINT32.pack_into(buffer, position + 17, crc)


def pack_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write all 61 bytes of `header`, with its `crc` unchanged."""
    _HEADER.pack_into(buffer, position, *header)
