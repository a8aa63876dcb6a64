"""Walk the batch headers of one partition's Fetch response, the first step of decoding.

Invariants: no record is read. The next offset follows from the headers' last offsets and never from counting records,
because compaction and transaction markers leave gaps. Control batches, aborted batches and batches outside the range
are left out. An incomplete batch at the response's end is ignored.
Source: KIP-98 (message format v2, aborted transactions of a Fetch response).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraft.seam import Buffer, WireError
from kraft.wire.records import BATCH_HEADER_BYTES, BatchHeader, Compression, check_crc, iter_headers
from kraft.wire.records.control_records import ControlRecordType, decode_control

_RECORD_BYTES_MIN = 7
"""Minimum bytes of a record: one each for length, attributes, two deltas, two sizes, and the number of headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """The batches of one Fetch response that have records of the range [`start`, `end`). `batches`: (position in
    `records`, batch header) of each."""

    topic: str
    partition: int
    start: int
    end: int
    records: memoryview = field(repr=False)
    batches: Sequence[tuple[int, BatchHeader]] = field(repr=False)
    next_offset: int
    """Offset at which the next fetch begins: the last offset of the last walked batch + 1. It is `end` if a batch after
    the range was seen, and may be beyond `end`."""
    record_count: int
    """Number of records that the headers of `batches` give. The first and last batch may have records outside of the
    range."""
    byte_count: int
    """Size of `batches` in bytes, as stored (possibly compressed)."""
    whole_batches: int
    """Number of complete batches in the response, including those left out. If it is 0, fetching the same bytes again
    would make no progress."""

    @property
    def reached_end(self) -> bool:
        """Whether these batches reach the end of the range."""
        return self.next_offset >= self.end


def walk(
    records: Buffer,
    *,
    topic: str,
    partition: int,
    start: int,
    end: int,
    aborted: Sequence[tuple[int, int]] | None,
    check_crcs: bool,
) -> Walked:
    """Return the batches in `records` that have offsets in [`start`, `end`).

    `aborted`: (producer id, first offset) of each aborted transaction of this response, in any order, for
    read_committed; None for read_uncommitted. Raises WireError if a header or a CRC is wrong or batches overlap."""
    visible = _Visible(aborted or ())
    batches: list[tuple[int, BatchHeader]] = []
    next_offset, whole_batches, previous_end = start, 0, 0
    record_count = byte_count = 0
    view = memoryview(records)
    try:
        for position, header in iter_headers(view):
            whole_batches += 1
            if header.base_offset >= end:
                next_offset = max(next_offset, end)
                break
            _check(header, previous_end)
            if check_crcs and not check_crc(view, position, header):
                raise WireError(f"the batch at offset {header.base_offset} fails its CRC-32C")
            previous_end = header.next_offset
            if visible.admits(view, position, header) and previous_end > start and header.record_count:
                batches.append((position, header))
                record_count += header.record_count
                byte_count += header.size_bytes
            next_offset = max(next_offset, previous_end)
    except WireError as error:
        raise damaged(topic, partition, next_offset, str(error)) from None
    return Walked(
        topic=topic,
        partition=partition,
        start=start,
        end=end,
        records=view,
        batches=batches,
        next_offset=next_offset,
        record_count=record_count,
        byte_count=byte_count,
        whole_batches=whole_batches,
    )


def damaged(topic: str, partition: int, offset: int, text: str) -> WireError:
    """Return the WireError for bytes that cannot be read. `offset`: the offset at which reading stopped."""
    return WireError(f"topic {topic}, partition {partition}, from offset {offset} on: {text}")


def check_count(header: BatchHeader, block_bytes: int) -> None:
    """Raise WireError if a block of this size is too small for the number of records that the header gives."""
    if header.record_count * _RECORD_BYTES_MIN > block_bytes:
        raise WireError(f"{header.record_count} records are announced in {block_bytes} bytes")


def _check(header: BatchHeader, previous_end: int) -> None:
    """Raise WireError for a batch header that cannot occur in a log."""
    if header.base_offset < previous_end:
        raise WireError(f"a batch begins at offset {header.base_offset}, below the next possible one, {previous_end}")
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise WireError(
            f"the batch at offset {header.base_offset} announces {header.record_count} records and a last offset of"
            f" {header.last_offset}"
        )
    if header.codec == Compression.NONE:
        check_count(header, header.size_bytes - BATCH_HEADER_BYTES)


class _Visible:
    """Decides which batches are visible to consumers of the isolation level. A transaction is aborted from its first
    offset up to its producer's marker."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda entry: -entry[1])
        self._active: set[int] = set()

    def admits(self, records: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether this batch is visible to consumers. Must be called for each batch, in order."""
        if not self._coming and not self._active:
            return not header.is_control
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._active.add(self._coming.pop()[0])
        if header.is_control:
            if self._active and decode_control(records, position).type is ControlRecordType.ABORT:
                self._active.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._active)
