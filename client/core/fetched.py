"""From the bytes of a Fetch answer to records: batch by batch, when they are wanted.

Offsets of control records and holes are stepped over. For read_committed, batches of aborted transactions are skipped:
an entry of the aborted list counts from the first batch that reaches its first offset up to its producer's abort
marker. Records are read here and not by the general codec because this is the consumer's inner loop.
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
"""A batch of more records is opened and read in pieces of so many: a few kilobytes may hold millions."""


class FetchPosition(NamedTuple):
    """Where a consumer stands in a partition: the next offset, and the epoch of the batch before it (-1: unknown)."""

    offset: int
    last_epoch: int = -1


class FetchedBytes:
    """What one fetch brought of one partition. `position` is where the next batch is expected to start."""

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
        """`aborted`: (producer id, first offset) of each aborted transaction in these bytes, in any order."""
        self.position = position
        self._data = data
        self._at = 0
        self._aborted = sorted(aborted, key=lambda entry: -entry[1])
        self._active: set[int] = set()
        self._read_committed = read_committed
        self._check_crcs = check_crcs
        self._opened: Iterator[tuple[bytes, int]] | None = None
        """What is left of the batch at `_at`, if it is read in pieces."""

    @property
    def bytes_left(self) -> int:
        return len(self._data) - self._at

    def end_position(self) -> FetchPosition:
        """The position after the last whole batch, without reading the records. WireError if there is none at the
        begin: its header is damaged, or its length."""
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
        """The visible records of the next batch, or of the next piece of a large one, often none; None after the last
        whole batch. Moves `position`.

        WireError if the batch is damaged; the position then stays before what could not be read."""
        header = self._header(self._at)
        if header is None:
            return None
        if self._opened is not None:
            return self._next_piece(self._opened, header, topic_partition)
        records: list[ConsumerRecord] = []
        if self._check_crcs and not check_crc(self._data, self._at, header):
            topic, partition = topic_partition
            raise WireError(f"{topic}-{partition}: the batch at offset {header.base_offset} fails its CRC-32C")
        if header.next_offset > self.position.offset:  # which a damaged batch could deny
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
        """The next records of a large batch; none at its end."""
        self._opened = None  # also after damage: the batch is then opened anew, up to the same place
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
        """The header of the batch at this byte, if the whole batch is there."""
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
    """The records at or after `first_offset`. WireError if the block is not exactly `count` records."""
    topic, partition = topic_partition
    base_offset, epoch = header.base_offset, header.partition_leader_epoch
    base_time = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    make = tuple.__new__
    records: list[ConsumerRecord] = []
    at = 0
    try:
        for _ in range(count):
            # varints of one and two bytes are read in place: they are nearly all there are
            length = block[at]
            at += 1
            if length > 127:
                length, at = _two_bytes(length, block, at)
            end = at + (length >> 1)
            time = block[at + 1]  # the byte before it, the attributes, says nothing in this version
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
    """A varint whose first byte, before `at`, says that there is more."""
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
