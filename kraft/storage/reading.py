"""Reads of a log: slices of whole batches, aborted transactions, and lookups by time.

Reads on the loop raise ColdRead if they would have to wait. Lookups by time decompress batches, so they are for
`offload`; they change nothing. Source: Kafka's LocalLog, UnifiedLog, docs/storage.md#lookups.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVarTuple

from kraft.seam import FileRange, WireError
from kraft.storage.handles import ColdHandle, ColdRead, SegmentGone, read_through
from kraft.storage.log_slice import LogSlice
from kraft.storage.segment import NO_TIMESTAMP, Segment
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.records import BatchHeader, check_crc, iter_blocks
from kraft.wire.records.rewriting import scan_records

if TYPE_CHECKING:
    from kraft.storage.log import Log

Ts = TypeVarTuple("Ts")
BASE = attrgetter("base_offset")
LOOKUP_TRIES_MAX = 10
TIMESTAMP_MIN, TIMESTAMP_MAX = -(2**63), 2**63 - 1
OPENED_BATCH_BYTES_MAX = 128 * 1024 * 1024
"""Maximum decompressed size of a batch in a lookup by time. The batch is decompressed in small pieces."""
HEADERS_PER_STEP = 256
"""Maximum headers per step of a lookup: under a millisecond."""


class TimestampedOffset(NamedTuple):
    """A record found by time. `leader_epoch` is the epoch in the header of the record's batch."""

    timestamp: int
    offset: int
    leader_epoch: int


LookupSteps = Generator[None, None, TimestampedOffset | None]
"""A lookup in *blocking* steps, so that other work can run between two steps. The generator returns what it finds."""


def read_slice(
    segments: Sequence[Segment],
    offset: int,
    max_bytes: int,
    end_offset: int,
    log_end_offset: int,
    *,
    at_least_one: bool,
) -> LogSlice:
    """Return whole batches from an offset on. See `Log.read`; `end_offset` is not above `log_end_offset`."""
    number = len(segments) - 1
    segment = segments[number]
    if offset < segment.base_offset:
        number = max(bisect_right(segments, offset, key=BASE) - 1, 0)
        segment = segments[number]
    if offset >= end_offset:
        return LogSlice(offset, segment.base_offset, 0, 0, ())
    start = segment.position_of(offset)
    if start >= segment.size and number + 1 < len(segments):
        number += 1
        segment, start = segments[number], 0
    limit = segment.size
    if end_offset < log_end_offset and not (
        number + 1 < len(segments) and segments[number + 1].base_offset <= end_offset
    ):
        limit = segment.position_of(end_offset)
    if limit - start > max_bytes:
        end = segment.cut(start, start + max_bytes)
        if end == start and at_least_one:
            end = start + segment.header_at(start).size_bytes
        limit = min(end, limit)
    if limit <= start:
        return LogSlice(offset, segment.base_offset, start, 0, ())
    file = segment.log.file
    if file is None:
        raise ColdRead(ColdHandle(segment.log))
    segment.log.used = True
    return LogSlice(offset, segment.base_offset, start, limit - start, (FileRange(file, start, limit - start),))


def upper_bound(segments: Sequence[Segment], piece: LogSlice, log_end_offset: int) -> int:
    """Return the offset of the first index entry after the slice, else the next segment's base, else the log end."""
    number = bisect_right(segments, piece.segment_base, key=BASE) - 1
    if number < 0:
        return segments[0].base_offset
    found = segments[number].index.first_offset_from(piece.position + piece.size_bytes)
    if found is not None:
        return found
    return segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset


def aborted_transactions(segments: Sequence[Segment], fetch_offset: int, upper: int) -> list[tuple[int, int]]:
    """Return the aborted transactions that may overlap a range of offsets; see `Log.aborted_transactions`. Later
    segments are read too, because the abort marker may be two segments further on."""
    found: list[tuple[int, int]] = []
    first = max(bisect_right(segments, fetch_offset, key=BASE) - 1, 0)
    for segment in segments[first:]:
        for entry in segment.txn_index.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found
    return found


def offset_for_timestamp(log: Log, timestamp_ms: int) -> LookupSteps:
    """Find the first record at or after a timestamp; see `Log.offset_for_timestamp`. Each step is *blocking* and takes
    about a millisecond."""
    return _with_present_segments(_offset_for_timestamp, log, timestamp_ms)


def max_timestamp_offset(log: Log) -> LookupSteps:
    """Find the first record with the largest timestamp; see `Log.max_timestamp_offset`. Steps as in
    `offset_for_timestamp`."""
    return _with_present_segments(_max_timestamp_offset, log)


def _with_present_segments(lookup: Callable[[Log, *Ts], LookupSteps], log: Log, *arguments: *Ts) -> LookupSteps:
    """Repeat the lookup if a segment was removed from the log meanwhile, by retention or by the cleaner. Raises
    SegmentGone if that happens repeatedly, as in a log that was deleted."""
    for _ in range(LOOKUP_TRIES_MAX - 1):
        try:
            return (yield from lookup(log, *arguments))
        except SegmentGone:
            continue
    return (yield from lookup(log, *arguments))


def _offset_for_timestamp(log: Log, timestamp_ms: int) -> LookupSteps:
    start = log.log_start_offset
    for segment in log.segments:
        if read_through(largest_timestamp, segment)[0] < timestamp_ms:
            continue
        found = yield from _find_in_segment(segment, timestamp_ms, start)
        if found is not None:
            return found
    return None


def _max_timestamp_offset(log: Log) -> LookupSteps:
    best: Segment | None = None
    largest = NO_TIMESTAMP - 1
    for segment in log.segments:
        timestamp, _ = read_through(largest_timestamp, segment)
        if segment.size and timestamp > largest:
            best, largest = segment, timestamp
    if best is None:
        return None
    found = yield from _find_in_segment(best, largest, log.log_start_offset)
    return found if found is not None else (yield from _largest_by_headers(log))


def _largest_by_headers(log: Log) -> LookupSteps:
    """Variant of `max_timestamp_offset` if the largest timestamp is that of an emptied batch or of a record below the
    log start.

    In the batch that contains the log start, the records determine the largest timestamp; in other batches, the
    headers."""
    start = log.log_start_offset
    largest: TimestampedOffset | None = None
    best: tuple[Segment, int, BatchHeader] | None = None
    for segment in log.segments:
        walk = segment.headers_from(0)
        number = 0
        while (found := read_through(next, walk, None)) is not None:
            position, header = found
            if header.record_count and header.base_offset < start <= header.last_offset:
                largest = yield from _largest_in_batch(segment, position, header, start)
            elif header.record_count and header.base_offset >= start:
                best = max(best or (segment, position, header), (segment, position, header), key=_max_timestamp)
            number += 1
            if not number % HEADERS_PER_STEP:
                yield
    if best is not None and (largest is None or best[2].max_timestamp > largest.timestamp):
        return (yield from _largest_in_batch(*best, start))
    return largest


def _max_timestamp(found: tuple[Segment, int, BatchHeader]) -> int:
    return found[2].max_timestamp


def largest_timestamp(segment: Segment) -> tuple[int, int]:
    """Return (largest timestamp, last offset of its batch) of a segment; (-1, base) if it has no timestamp. Raises
    ColdRead."""
    if segment.max_timestamp < 0:
        last = segment.time_index.last()
        if last is not None:
            segment.max_timestamp, segment.max_timestamp_offset = last
    return segment.max_timestamp, segment.max_timestamp_offset


def _find_in_segment(segment: Segment, timestamp_ms: int, start_offset: int) -> LookupSteps:
    """Find the first record with a timestamp >= the requested one and an offset >= `start_offset`."""
    floor = read_through(segment.time_index.floor, timestamp_ms - 1)
    walk = segment.headers_from(*read_through(segment.index.floor, max(floor, start_offset)))
    number = 0
    while (found := read_through(next, walk, None)) is not None:
        position, header = found
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            record = yield from _find_in_batch(segment, position, header, timestamp_ms, start_offset)
            if record is not None:
                return record
        number += 1
        if not number % HEADERS_PER_STEP:
            yield
    return None


def _find_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> LookupSteps:
    for piece in _timestamps(segment, position, header, start_offset):
        for timestamp, offset in piece:
            if timestamp >= timestamp_ms:
                return TimestampedOffset(timestamp, offset, header.partition_leader_epoch)
        yield
    return None


def _largest_in_batch(segment: Segment, position: int, header: BatchHeader, start_offset: int) -> LookupSteps:
    """Find the first record with the largest timestamp among those with an offset >= `start_offset`."""
    largest: TimestampedOffset | None = None
    for piece in _timestamps(segment, position, header, start_offset):
        for timestamp, offset in piece:
            if largest is None or timestamp > largest.timestamp:
                largest = TimestampedOffset(timestamp, offset, header.partition_leader_epoch)
        yield
    return largest


def _timestamps(
    segment: Segment, position: int, header: BatchHeader, start_offset: int
) -> Iterator[list[tuple[int, int]]]:
    """Yield (timestamp, offset) of the records of a batch from `start_offset` on, one step's work at a time.
    *Blocking.* Raises UnreadableBatch, StorageCorrupt."""
    if header.is_log_append_time:
        yield [(header.max_timestamp, max(header.base_offset, start_offset))]
        return
    data = read_through(segment.log.read, position, header.size_bytes)
    if not check_crc(data, 0, header):
        raise segment.damaged_at(position, f"the one at offset {header.base_offset} does not fit its CRC")
    base_timestamp, base_offset = header.base_timestamp, header.base_offset
    try:
        for block, count in iter_blocks(data, 0, header, output_bytes_max=OPENED_BATCH_BYTES_MAX):
            piece = [
                (base_timestamp + timestamp, base_offset + offset)
                for _, _, _, timestamp, offset, _, _ in scan_records(block, count)
                if base_offset + offset >= start_offset
            ]
            if not all(TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX for timestamp, _ in piece):
                raise WireError("a record's timestamp does not fit into 64 bits")
            yield piece
    except WireError as problem:
        raise UnreadableBatch(segment.log.path, base_offset, problem) from None
