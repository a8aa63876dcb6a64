"""Decode the bytes of a Fetch response into records, one batch at a time and only when the application polls.

Offsets of control records and gaps are skipped. With read_committed, batches of aborted transactions are skipped too.
An entry of the list of aborted transactions applies from the first batch that reaches the entry's first offset, up to
the producer's abort marker. Records are decoded here and not by the general codec, because this is the consumer's inner
loop.
Source: FetchResponse, KIP-98, Kafka's CompletedFetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kraft.client.core.records import ConsumerRecord, Headers, TopicPartition
from kraft.seam import WireError
from kraft.wire.records import BATCH_HEADER_BYTES, BatchHeader, check_crc, iter_blocks, open_records, read_header
from kraft.wire.records.control_records import ControlRecordType, decode_control
from kraft.wire.varints import read_unsigned, read_unsigned_long

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
PIECE_RECORDS_MAX = 5_000
"""Maximum number of records that are decoded at once. A batch with more records is decompressed and decoded in pieces
of this size, because a few kilobytes may contain millions of records."""


class FetchPosition(NamedTuple):
    """A consumer's position in a partition: the next offset, and the leader epoch of the batch before that offset (-1:
    unknown)."""

    offset: int
    last_epoch: int = -1


class FetchedBytes:
    """The bytes that one fetch returned for one partition. `position` is the place where the next batch should
    start."""

    __slots__ = ("_aborted", "_active", "_at", "_check_crcs", "_data", "_opened", "_read_committed", "position")

    def __init__(
        self,
        data: bytes,
        position: FetchPosition,
        *,
        aborted: Sequence[tuple[int, int]] = (),
        read_committed: bool = False,
        check_crcs: bool = True,
    ) -> None:
        """`aborted` has (producer id, first offset) of each aborted transaction in these bytes, in any order."""
        self.position = position
        self._data = data
        self._at = 0
        self._aborted = sorted(aborted, key=lambda entry: -entry[1])
        self._active: set[int] = set()
        self._read_committed = read_committed
        self._check_crcs = check_crcs
        self._opened: Iterator[tuple[bytes, int]] | None = None
        """Remaining pieces of the batch at `_at` if it is decoded in pieces; else None."""

    @property
    def bytes_left(self) -> int:
        return len(self._data) - self._at

    def end_position(self) -> FetchPosition:
        """Return the position after the last complete batch, without decoding records. Raise WireError if the bytes do
        not begin with a complete batch, because its header or length is damaged."""
        at, end = self._at, self.position
        try:
            while (header := self._header(at)) is not None:
                end = FetchPosition(max(header.next_offset, end.offset), header.partition_leader_epoch)
                at += header.size_bytes
        except WireError:
            if at == self._at:
                raise
        if at == self._at < len(self._data):
            raise WireError(f"{len(self._data)} bytes from offset {self.position.offset} on hold no whole batch")
        return end

    def next_batch(self, topic_partition: TopicPartition) -> list[ConsumerRecord] | None:
        """Return the visible records of the next batch, or of the next piece of a large batch, and advance `position`.
        The result may be empty. Return None after the last complete batch.

        Raise WireError if the batch is damaged; `position` then stays before the damaged batch."""
        header = self._header(self._at)
        if header is None:
            return None
        if self._opened is not None:
            return self._next_piece(self._opened, header, topic_partition)
        records: list[ConsumerRecord] = []
        if self._check_crcs and not check_crc(self._data, self._at, header):
            topic, partition = topic_partition
            raise WireError(f"{topic}-{partition}: the batch at offset {header.base_offset} fails its CRC-32C")
        # the CRC is checked first, because a damaged header may claim a wrong attribute
        if header.next_offset > self.position.offset:
            is_visible = self._is_visible(header)
            if is_visible and header.record_count > PIECE_RECORDS_MAX:
                self._opened = iter_blocks(
                    self._data,
                    self._at,
                    header,
                    output_bytes_max=DECOMPRESSED_BYTES_MAX,
                    records_max=PIECE_RECORDS_MAX,
                )
                return self._next_piece(self._opened, header, topic_partition)
            if is_visible:
                block = open_records(self._data, self._at, header, output_bytes_max=DECOMPRESSED_BYTES_MAX)
                records = _read_records(block, header.record_count, header, topic_partition, self.position.offset)
            self.position = FetchPosition(header.next_offset, header.partition_leader_epoch)
        self._at += header.size_bytes
        return records

    def _next_piece(
        self, opened: Iterator[tuple[bytes, int]], header: BatchHeader, topic_partition: TopicPartition
    ) -> list[ConsumerRecord]:
        """Return the records of the next piece of a large batch; an empty list at the end of the batch."""
        self._opened = None  # also after damage: the next call decompresses the batch again, up to the same place
        piece = next(opened, None)
        if piece is None:
            self.position = FetchPosition(header.next_offset, header.partition_leader_epoch)
            self._at += header.size_bytes
            return []
        records = _read_records(*piece, header, topic_partition, self.position.offset)
        if records:
            self.position = FetchPosition(records[-1].offset + 1, header.partition_leader_epoch)
        self._opened = opened
        return records

    def _header(self, at: int) -> BatchHeader | None:
        """Return the header of the batch that starts at this byte; None if the batch is not complete."""
        if len(self._data) - at < BATCH_HEADER_BYTES:
            return None
        header = read_header(self._data, at)
        return header if header.size_bytes <= len(self._data) - at else None

    def _is_visible(self, header: BatchHeader) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._active.add(self._aborted.pop()[0])
        if header.is_control:
            if decode_control(self._data, self._at).type is ControlRecordType.ABORT:
                self._active.discard(header.producer_id)
            return False
        return not (self._read_committed and header.is_transactional and header.producer_id in self._active)


def _read_records(
    block: bytes, count: int, header: BatchHeader, topic_partition: TopicPartition, first_offset: int
) -> list[ConsumerRecord]:
    """Decode the records at or after `first_offset`. Raise WireError if the block does not hold exactly `count`
    records."""
    topic, partition = topic_partition
    base_offset, epoch = header.base_offset, header.partition_leader_epoch
    base_time = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    make = tuple.__new__
    records: list[ConsumerRecord] = []
    at = 0
    try:
        for _ in range(count):
            # varints of one and two bytes are decoded inline, because nearly all are that short
            length = block[at]
            at += 1
            if length > 127:
                length, at = _two_bytes(length, block, at)
            end = at + (length >> 1)
            time = block[at + 1]  # skip the byte before it, the attributes, which this version does not use
            at += 2
            if time > 127:
                time, at = read_unsigned_long(block, at - 1)
            delta = block[at]
            at += 1
            if delta > 127:
                delta, at = _two_bytes(delta, block, at)
            size = block[at]
            at += 1
            if size > 127:
                size, at = _two_bytes(size, block, at)
            key = None
            if not size & 1:
                key = block[at : at + (size >> 1)]
                at += size >> 1
            size = block[at]
            at += 1
            if size > 127:
                size, at = _two_bytes(size, block, at)
            value = None
            if not size & 1:
                value = block[at : at + (size >> 1)]
                at += size >> 1
            headers: Headers = ()
            if block[at]:
                headers, at = _read_headers(block, at)
            else:
                at += 1
            if at != end or length & 1:
                raise WireError(f"a record of {length >> 1} bytes ends at byte {at}, expected {end}")
            offset = base_offset + (delta >> 1)
            if offset >= first_offset:
                stamp = base_time + (time >> 1 ^ -(time & 1)) if append_time is None else append_time
                records.append(make(ConsumerRecord, (topic, partition, offset, stamp, key, value, headers, epoch)))
    except IndexError:
        raise WireError(f"{topic}-{partition}: the batch at offset {base_offset} ends within a record") from None
    if at != len(block):
        raise WireError(f"{len(block) - at} bytes are left over after the {count} records of a batch")
    return records


def _two_bytes(first: int, block: bytes, at: int) -> tuple[int, int]:
    """Decode a varint of two or more bytes. `first` is its first byte, and `at` is the index of its second byte."""
    second = block[at]
    if second < 128:
        return first - 128 + (second << 7), at + 1
    return read_unsigned(block, at - 1)


def _read_headers(block: bytes, at: int) -> tuple[Headers, int]:
    count, at = read_unsigned(block, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        size, at = read_unsigned(block, at)
        if size & 1:
            raise WireError("a record header has no name")
        name = block[at : at + (size >> 1)].decode(errors="replace")
        at += size >> 1
        size, at = read_unsigned(block, at)
        headers.append((name, None if size & 1 else block[at : at + (size >> 1)]))
        at += 0 if size & 1 else size >> 1
    return tuple(headers), at
