"""One round of compaction over one log: map the last offset of every dirty key, then rewrite the segments.

The rewritten segments lack the superseded records. They are written group by group. A round is a generator of steps,
each *blocking* and short, so that its owner can run it in a thread, slow it down, and give it up between any two. It
reads closed segments through files of its own and writes `.cleaned` files, so the log continues beside it. Only a
finished group, a `Replacement`, touches the log, and checks there that the log is still the one that was read.
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
"""A step ends when its records, and WORK_PER_BATCH for each batch, come to this: under a millisecond. While it runs the
loop has to share the interpreter with it."""
WORK_PER_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerLimits:
    """`map_bytes_max` is the memory of the map of keys, `read_bytes` that of a piece that is read at once."""

    map_bytes_max: int
    read_bytes: int


@dataclass(slots=True)
class CleanerStats:
    """What a round has done so far. `bytes_read` is without what was read for the map."""

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
    """Made on the loop; then `steps` is advanced off it. `cleaned_to` is the new cleaner checkpoint, once it has ended.
    A round over a log that was cut meanwhile is void (`is_current`)."""

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
        """Nothing was cut off the log, at either end, since the round began. On the loop."""
        log = self.log
        return log.truncations == self._truncations and log.segments[0].base_offset == self._begin

    def steps(self) -> Generator[Replacement | None, None, None]:
        """Each step gives None, or a group's replacement, which is to be carried out before the next step.

        StorageCorrupt and WireError: the log has damage where it was synced, or a segment was taken away under the
        round. UnreadableBatch, DiskError.
        """
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
        """The round is given up: take away what it was writing. *Blocking.*"""
        if self._writing is not None:
            self._writing.discard()
            self._writing = None

    # the map

    def _map(self) -> Iterator[None]:
        """Fill the map from the dirty segments, until it is full; `cleaned_to` is where it ends."""
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
        """Returns the offset up to which the batch is in the map: its end, or less if the map is full. A round begins
        within a batch where the one before it ended there."""
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
        """The aborted transactions whose marker stands at `from_offset` or behind it."""
        found: list[AbortedTransaction] = []
        for segment, end_offset in _with_ends(self._all_segments, self._log_end_offset):
            if end_offset > from_offset and segment.txn_index.handle.exists:
                found += read_entries(self.log.disk, segment.txn_index.handle.path)
        return [entry for entry in found if entry.last_offset >= from_offset]

    # the segments

    def _groups(self) -> Iterator[tuple[list[Segment], int]]:
        """Neighbouring segments that fit into one, and the offset at which the group ends."""
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
        """Write one segment in the place of a group. One that would stay as it is is left alone."""
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
            self._writing = None  # from here on it is the replacement's
            yield Replacement(log, group, cleaned)
        else:
            self.discard()

    def _pieces(self, segment: Segment) -> Iterator[Batches]:
        """All batches of a segment, a step's worth at a time, each checked. StorageCorrupt, WireError, DiskError."""
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
    """Neighbouring segments, each with the offset at which it ends; `end_offset` is the last one's."""
    for segment, following in pairwise(segments):
        yield segment, following.base_offset
    yield segments[-1], end_offset
