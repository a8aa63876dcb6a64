"""One round of compaction over one log: map the last offset of every dirty key, then rewrite the segments without the
superseded records.

The segments are rewritten group by group. A round is a generator of short *blocking* steps. Its owner can run it in a
thread, throttle it, and abandon it between any two steps. It reads closed segments through its own files and writes
`.cleaned` files, so the log can be used concurrently. Only a finished group, a `Replacement`, changes the log, after a
check that the log still has the segments that were read.
Source: Kafka's LogCleaner, docs/storage.md#what-compaction-keeps, docs/decisions/15-compaction.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kraft.seam import Buffer, StorageCorrupt, WireError
from kraft.storage.compaction.dirty_range import CleanableRange
from kraft.storage.compaction.kept_records import BatchFilter, LastOfProducer
from kraft.storage.compaction.offset_map import OffsetMap
from kraft.storage.compaction.replacement import Replacement
from kraft.storage.compaction.segment_writer import CleanedSegment
from kraft.storage.compaction.transaction_state import CleanedTransactions
from kraft.storage.indexes.txn_index import AbortedTransaction, read_entries
from kraft.storage.markers import read_marker
from kraft.storage.segment import RELATIVE_OFFSET_MAX, Segment
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.records import BatchHeader, check_crc, iter_headers, read_header
from kraft.wire.records.rewriting import scan_batch

if TYPE_CHECKING:
    from kraft.storage.log import Log

Batches = list[tuple[BatchHeader, memoryview]]

WORK_PER_STEP = 256
"""Work per step: a step ends when its records, plus WORK_PER_BATCH for each batch, reach this number. Such a step takes
under a millisecond, during which the loop must share the interpreter with it."""
WORK_PER_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerLimits:
    """Limits of a round: `map_bytes_max` is the memory of the offset map, `read_bytes` the size of a piece that is read
    at once."""

    map_bytes_max: int
    read_bytes: int


@dataclass(slots=True)
class CleanerStats:
    """Progress of a round. `bytes_read` excludes the reads for the offset map."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    map_utilization: float = 0.0

    @property
    def io_bytes(self) -> int:
        return self.map_bytes_read + self.bytes_read + self.bytes_written


class CleaningRound:
    """One round. Create it on the loop, then advance `steps` off the loop. After the end, `cleaned_to` is the new
    cleaner checkpoint. If the log is truncated meanwhile, the round is void (`is_current`)."""

    def __init__(self, log: Log, cleanable: CleanableRange, limits: CleanerLimits, now_ms: int) -> None:
        self.log = log
        self.cleanable = cleanable
        self.cleaned_to = cleanable.first_dirty_offset
        self.stats = CleanerStats()
        self._limits = limits
        self._now_ms = now_ms
        self._config = log.config
        self._truncations = log.truncations
        self._all_segments = tuple(log.segments)
        self._begin = log.segments[0].base_offset
        self._log_end_offset = log.log_end_offset
        self._offsets = OffsetMap(limits.map_bytes_max)
        self._producers: dict[int, LastOfProducer] = {
            producer_id: (entry.epoch, entry.batches[-1][2] if entry.batches else -1)
            for producer_id, entry in log.producers.entries.items()
        }
        self._writing: CleanedSegment | None = None

    @property
    def is_current(self) -> bool:
        """Return whether nothing was removed from either end of the log since the round began. Call it on the loop."""
        log = self.log
        return log.truncations == self._truncations and log.segments[0].base_offset == self._begin

    def steps(self) -> Generator[Replacement | None, None, None]:
        """Yield None after each step, or a group's replacement, which must be carried out before the next step.

        Raises StorageCorrupt and WireError: the log is damaged in its synced part, or a segment was removed during the
        round. Raises UnreadableBatch, DiskError."""
        if not self.cleanable.segments:
            return
        yield from self._map()
        entries = self._aborted(self.cleanable.segments[0].base_offset)
        batches = BatchFilter(
            self._offsets,
            self.cleaned_to,
            transactions := CleanedTransactions(entries),
            self._producers,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
        )
        for group, end_offset in self._groups():
            yield from self._rewrite(group, end_offset, batches, transactions)
            self.stats.records_read, self.stats.records_kept = batches.counts.read, batches.counts.kept

    def discard(self) -> None:
        """Abandon the round: remove the files that it was writing. *Blocking.*"""
        if self._writing is not None:
            self._writing.discard()
            self._writing = None

    # the offset map

    def _map(self) -> Iterator[None]:
        """Fill the map from the dirty segments until it is full; `cleaned_to` is where it ends."""
        first_dirty = self.cleanable.first_dirty_offset
        transactions = CleanedTransactions(self._aborted(first_dirty))
        for segment, end_offset in _with_ends(self.cleanable.segments, self.cleanable.end_offset):
            if end_offset <= first_dirty:
                continue
            for batches in self._pieces(segment):
                for header, batch in batches:
                    if header.next_offset <= first_dirty:
                        continue
                    if self._offsets.is_full:
                        self.stats.map_utilization = self._offsets.utilization
                        return
                    try:
                        self.cleaned_to = yield from self._map_batch(header, batch, transactions)
                    except WireError as problem:
                        raise UnreadableBatch(self.log.directory, header.base_offset, problem) from None
                    self.stats.map_bytes_read += header.size_bytes
                    if self.cleaned_to < header.next_offset:
                        self.stats.map_utilization = self._offsets.utilization
                        return
                yield
            self.cleaned_to = end_offset
        self.stats.map_utilization = self._offsets.utilization

    def _map_batch(
        self, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions
    ) -> Generator[None, None, int]:
        """Map a batch, and return the offset up to which it is in the map: its end, or less if the map is full. A round
        begins within a batch where the previous round ended."""
        if header.is_control:
            marker = read_marker(batch, 0, header)
            if marker is not None:
                transactions.on_marker(header, marker)
            return header.next_offset
        if transactions.on_data(header) or not header.record_count:
            return header.next_offset
        base, put = header.base_offset, self._offsets.put
        first_delta = self.cleanable.first_dirty_offset - base
        for number, (_, places) in enumerate(scan_batch(header, batch)):
            if number:
                yield
                if self._offsets.is_full:
                    return base + places[0][4]
            for _, _, _, _, offset, key, _ in places:
                if key is not None and offset >= first_delta:
                    put(key, base + offset)
        return header.next_offset

    def _aborted(self, from_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with a marker at or after `from_offset`."""
        found: list[AbortedTransaction] = []
        for segment, end_offset in _with_ends(self._all_segments, self._log_end_offset):
            if end_offset > from_offset and segment.txn_index.handle.exists:
                found += read_entries(self.log.disk, segment.txn_index.handle.path)
        return [entry for entry in found if entry.last_offset >= from_offset]

    # the segments

    def _groups(self) -> Iterator[tuple[list[Segment], int]]:
        """Yield adjacent segments that fit into one, with the end offset of the group."""
        config = self._config
        group: list[Segment] = []
        size = index_bytes = time_index_bytes = group_end = 0
        for segment, end_offset in _with_ends(self.cleanable.segments, self.cleanable.end_offset):
            if segment.base_offset >= self.cleaned_to:
                break
            fits = (
                group
                and size + segment.size <= config.segment_bytes
                and index_bytes + segment.index.size_bytes <= config.segment_index_bytes
                and time_index_bytes + segment.time_index.size_bytes <= config.segment_index_bytes
                and end_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
            )
            if group and not fits:
                yield group, group_end
                group, size, index_bytes, time_index_bytes = [], 0, 0, 0
            group.append(segment)
            group_end = end_offset
            size += segment.size
            index_bytes += segment.index.size_bytes
            time_index_bytes += segment.time_index.size_bytes
        if group:
            yield group, group_end

    def _rewrite(
        self, group: list[Segment], end_offset: int, batches: BatchFilter, transactions: CleanedTransactions
    ) -> Iterator[Replacement | None]:
        """Write one segment that replaces a group. A group that would not change is skipped."""
        log = self.log
        writing = self._writing = CleanedSegment(log.disk, log.directory, group, self._config.index_interval_bytes)
        changed = len(group) > 1
        for segment in group:
            for piece in self._pieces(segment):
                kept: list[tuple[BatchHeader, Buffer]] = []
                for header, batch in piece:
                    try:
                        new = yield from batches.keep(header, batch, ends_segment=header.next_offset == end_offset)
                    except WireError as problem:
                        raise UnreadableBatch(log.directory, header.base_offset, problem) from None
                    changed = changed or new is not batch
                    if new is not None:
                        kept.append((header if new is batch else read_header(new), new))
                    self.stats.bytes_read += header.size_bytes
                self.stats.bytes_written += writing.append(kept)
                yield None
        cleaned = writing.finish(transactions.take_kept())
        if changed:
            self._writing = None  # from here on it belongs to the replacement
            yield Replacement(log, group, cleaned)
        else:
            self.discard()

    def _pieces(self, segment: Segment) -> Iterator[Batches]:
        """Yield all batches of a segment, checked, one step's work at a time. Raises StorageCorrupt, WireError,
        DiskError."""
        file = self.log.disk.open(segment.log.path)
        try:
            position, size = 0, segment.size
            while position < size:
                window = file.read(position, min(self._limits.read_bytes, size - position))
                if next(iter_headers(window), None) is None:
                    window = file.read(position, min(read_header(window).size_bytes, size - position))
                piece, work, begin = Batches(), 0, position
                view = memoryview(window)
                for at, header in iter_headers(window):
                    batch = view[at : at + header.size_bytes]
                    if not check_crc(batch, 0, header):
                        raise StorageCorrupt(f"{file.path}: the batch at offset {header.base_offset} fails its CRC")
                    piece.append((header, batch))
                    position += header.size_bytes
                    work += WORK_PER_BATCH + header.record_count
                    if work >= WORK_PER_STEP:
                        yield piece
                        piece, work = Batches(), 0
                if position == begin:
                    raise StorageCorrupt(f"{file.path}: the batch at byte {position} reaches past the segment's end")
                if piece:
                    yield piece
        finally:
            file.close()


def _with_ends(segments: Sequence[Segment], end_offset: int) -> Iterator[tuple[Segment, int]]:
    """Return adjacent segments, each with its end offset; `end_offset` is the end of the last segment."""
    for segment, following in pairwise(segments):
        yield segment, following.base_offset
    yield segments[-1], end_offset
