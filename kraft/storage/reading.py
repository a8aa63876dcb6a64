"""Reads of a log: slices of whole batches, aborted transactions, and lookups by time.

What runs on the loop raises ColdRead when it would have to wait. The lookups by time open batches, so they are for
`offload`; they change nothing. Source: broker-spec 1.10, 2.4, 4.3, 4.5.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVarTuple

from kraft.seam import FileRange
from kraft.storage.handles import ColdRead, HandleNeed, SegmentGone, read_through
from kraft.storage.log_slice import LogSlice
from kraft.storage.segment import Segment
from kraft.wire.records import BatchHeader, check_crc, decode_batch

if TYPE_CHECKING:
    from kraft.storage.log import Log

Ts = TypeVarTuple("Ts")
BASE = attrgetter("base_offset")
LOOKUP_TRIES_MAX = 10
OPENED_BATCH_BYTES_MAX = 128 * 1024 * 1024
"""Bound of what one batch may decompress to in a lookup by time."""


class TimestampedOffset(NamedTuple):
    """A record found by time; `leader_epoch` is its batch's."""

    timestamp: int
    offset: int
    leader_epoch: int


def read_slice(
    segments: Sequence[Segment],
    offset: int,
    max_bytes: int,
    end_offset: int,
    log_end_offset: int,
    *,
    at_least_one: bool,
) -> LogSlice:
    """See `Log.read`; `end_offset` is not above `log_end_offset`."""
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
        raise ColdRead(HandleNeed(segment.log))
    segment.log.used = True
    return LogSlice(offset, segment.base_offset, start, limit - start, (FileRange(file, start, limit - start),))


def upper_bound(segments: Sequence[Segment], piece: LogSlice, log_end_offset: int) -> int:
    """The offset of the first index entry behind the slice, else the next segment's base, else the log end."""
    number = bisect_right(segments, piece.segment_base, key=BASE) - 1
    if number < 0:
        return segments[0].base_offset
    found = segments[number].index.first_offset_from(piece.position + piece.size_bytes)
    if found is not None:
        return found
    return segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset


def aborted_transactions(segments: Sequence[Segment], fetch_offset: int, upper: int) -> list[tuple[int, int]]:
    """See `Log.aborted_transactions`. Looks into later segments too: an abort may stand two segments further on."""
    found: list[tuple[int, int]] = []
    first = max(bisect_right(segments, fetch_offset, key=BASE) - 1, 0)
    for segment in segments[first:]:
        for entry in segment.txn_index.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found
    return found


def offset_for_timestamp(log: Log, timestamp_ms: int) -> TimestampedOffset | None:
    """See `Log.offset_for_timestamp`. *Blocking.*"""
    return _with_present_segments(_offset_for_timestamp, log, timestamp_ms)


def max_timestamp_offset(log: Log) -> TimestampedOffset | None:
    """See `Log.max_timestamp_offset`. *Blocking.*"""
    return _with_present_segments(_max_timestamp_offset, log)


def _with_present_segments(
    lookup: Callable[[Log, *Ts], TimestampedOffset | None], log: Log, *arguments: *Ts
) -> TimestampedOffset | None:
    """Look again if a segment was taken out of the log meanwhile, by retention or by the cleaner. SegmentGone if that
    happens again and again, as in a log that was deleted."""
    for _ in range(LOOKUP_TRIES_MAX - 1):
        try:
            return lookup(log, *arguments)
        except SegmentGone:
            continue
    return lookup(log, *arguments)


def _offset_for_timestamp(log: Log, timestamp_ms: int) -> TimestampedOffset | None:
    start = log.log_start_offset
    for segment in log.segments:
        if read_through(largest_timestamp, segment)[0] < timestamp_ms:
            continue
        found = read_through(_find_in_segment, segment, timestamp_ms, start)
        if found is not None:
            return found
    return None


def _max_timestamp_offset(log: Log) -> TimestampedOffset | None:
    best: Segment | None = None
    largest = (-1, 0)
    for segment in log.segments:
        candidate = read_through(largest_timestamp, segment)
        if segment.size and candidate[0] > largest[0]:
            best, largest = segment, candidate
    if best is None:
        return None
    found = read_through(_find_in_segment, best, largest[0], log.log_start_offset)
    return found if found is not None else _largest_by_headers(log)


def _largest_by_headers(log: Log) -> TimestampedOffset | None:
    """As `max_timestamp_offset`, when the largest timestamp is that of a batch that compaction emptied. *Blocking.*"""
    best: tuple[Segment, int, BatchHeader] | None = None
    for segment in log.segments:
        walk = segment.headers_from(0)
        while (found := read_through(next, walk, None)) is not None:
            position, header = found
            if header.record_count and header.last_offset >= log.log_start_offset:
                best = max(best or (segment, position, header), (segment, position, header), key=_max_timestamp)
    if best is None:
        return None
    return read_through(_find_in_batch, *best, best[2].max_timestamp, log.log_start_offset)


def _max_timestamp(found: tuple[Segment, int, BatchHeader]) -> int:
    return found[2].max_timestamp


def largest_timestamp(segment: Segment) -> tuple[int, int]:
    """(largest timestamp, last offset of the batch that holds it) of a segment; (-1, base) without one. ColdRead."""
    if segment.max_timestamp < 0:
        last = segment.time_index.last()
        if last is not None:
            segment.max_timestamp, segment.max_timestamp_offset = last
    return segment.max_timestamp, segment.max_timestamp_offset


def _find_in_segment(segment: Segment, timestamp_ms: int, start_offset: int) -> TimestampedOffset | None:
    """The first record with a timestamp >= the one asked for and an offset >= `start_offset`. ColdRead."""
    floor = segment.time_index.floor(timestamp_ms - 1)
    for found, header in segment.headers_from(*segment.index.floor(max(floor, start_offset))):
        if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
            continue
        record = _find_in_batch(segment, found, header, timestamp_ms, start_offset)
        if record is not None:
            return record
    return None


def _find_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> TimestampedOffset | None:
    epoch = header.partition_leader_epoch
    if header.is_log_append_time:
        return TimestampedOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)
    data = segment.log.read(position, header.size_bytes)
    if not check_crc(data, 0, header):
        raise segment.damaged_at(position, f"the one at offset {header.base_offset} does not fit its CRC")
    for record in decode_batch(data, output_bytes_max=OPENED_BATCH_BYTES_MAX):
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return TimestampedOffset(record.timestamp, record.offset, epoch)
    return None
