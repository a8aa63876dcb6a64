"""Step one: walk the batch headers of one partition's Fetch answer.

Invariants: no record is read; the next offset follows from the headers' last offsets and never from counting, because
compaction and transaction markers leave holes; batches that are control batches, aborted or outside the range are left
out; a batch that the answer cuts off is ignored.
Source: KIP-98 (message format v2, aborted transactions of a Fetch answer).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraft.seam import Buffer, WireError
from kraft.wire.records import BATCH_HEADER_BYTES, BatchHeader, Compression, check_crc, iter_headers
from kraft.wire.records.control_records import ControlRecordType, decode_control

_RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two sizes, number of headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """The batches of one Fetch answer that have records of the range [`start`, `end`). `batches`: (position in
    `records`, header)."""

    topic: str
    partition: int
    start: int
    end: int
    records: memoryview = field(repr=False)
    batches: Sequence[tuple[int, BatchHeader]] = field(repr=False)
    next_offset: int
    """Where the next fetch begins: the last walked batch's last offset + 1. It is `end` if a later batch was seen, and
    may lie behind `end`."""
    record_count: int
    """As the headers of `batches` announce. A batch at an end of the range may have records outside of it."""
    byte_count: int
    """Of `batches`, as they are stored."""
    whole_batches: int
    """Batches that the answer holds completely, the left-out ones too. 0: the answer brings the reader no further."""

    @property
    def reached_end(self) -> bool:
        """Whether nothing of the range comes after these batches."""
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
    """The batches of `records` with offsets in [`start`, `end`).

    `aborted`: (producer id, first offset) of each aborted transaction of this answer, in any order, for
    read_committed; None for read_uncommitted. WireError if a header or a CRC is wrong or batches overlap."""
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
    """The error for bytes that cannot be read; `offset`: where reading stopped."""
    return WireError(f"topic {topic}, partition {partition}, from offset {offset} on: {text}")


def check_count(header: BatchHeader, block_bytes: int) -> None:
    """WireError if a block of this size cannot hold the records that are announced."""
    if header.record_count * _RECORD_BYTES_MIN > block_bytes:
        raise WireError(f"{header.record_count} records are announced in {block_bytes} bytes")


def _check(header: BatchHeader, previous_end: int) -> None:
    """WireError for headers that no log has."""
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
    """Decides which batches readers see. A transaction is aborted from its first offset up to its producer's marker."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda entry: -entry[1])
        self._active: set[int] = set()

    def admits(self, records: Buffer, position: int, header: BatchHeader) -> bool:
        """To be asked for each batch in order."""
        if not self._coming and not self._active:
            return not header.is_control
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._active.add(self._coming.pop()[0])
        if header.is_control:
            if self._active and decode_control(records, position).type is ControlRecordType.ABORT:
                self._active.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._active)
