"""Loading a log from its folder: leftovers, segments, recovery, epochs, producer state. *Blocking* throughout.

To truncate, later segments are unlinked, the directory is synced, and then the file is truncated. A crash in the middle
therefore leaves a prefix of the log. Source: Kafka's LogLoader, docs/storage.md#recovery-after-a-crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraft.seam import Disk, StorageCorrupt
from kraft.storage import leftovers
from kraft.storage.epochs import EpochCache
from kraft.storage.handles import FileCache, read_through
from kraft.storage.indexes.offset_index import ENTRY as OFFSET_ENTRY
from kraft.storage.indexes.time_index import ENTRY as TIME_ENTRY
from kraft.storage.indexes.txn_index import AbortedTransaction
from kraft.storage.log_config import LogConfig
from kraft.storage.log_names import LEADER_EPOCH_CHECKPOINT, LOG_SUFFIX, PARTITION_METADATA
from kraft.storage.producers.producer_state import ProducerStates
from kraft.storage.producers.state_loading import (
    apply_to,
    load_producers,
    remove_snapshots,
    remove_stray_snapshots,
    write_snapshot,
)
from kraft.storage.recovery import RecoveryReport, SegmentDamage, SegmentScan, require_torn
from kraft.storage.segment import Segment

if TYPE_CHECKING:
    from kraft.storage.log import Log

UNLIMITED = 2**31


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """The loaded state of a `Log`. `unsynced` are closed segments that may not be on the device."""

    strict: bool
    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: EpochCache
    producers: ProducerStates
    unsynced: list[Segment]
    directory_changed: bool
    has_metadata: bool
    report: RecoveryReport = field(default_factory=RecoveryReport)


def new_segment(disk: Disk, cache: FileCache, directory: str, base_offset: int, now_ms: int) -> Segment:
    """Create an empty segment and its files; their directory entries are not synced. Never suspends. The index files
    exist from the beginning, as Apache Kafka's tools expect them in a folder in use."""
    segment = Segment(disk, cache, directory, base_offset, present=frozenset(), created_ms=now_ms)
    for handle in (segment.log, segment.index.handle, segment.time_index.handle):
        handle.create()
    segment.recent[base_offset] = 0
    return segment


def load(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int,
    index_recovery_point: int | None,
    log_start: int,
    now_ms: int,
    strict: bool,
) -> LoadedLog:
    """Load a log from its folder. See `Log.open_log` for the arguments and errors."""
    loader = _Loader(disk, directory, config, now_ms, strict=strict)
    in_order = recovery_point - 1 if index_recovery_point is None else index_recovery_point
    return loader.load(
        clean=clean and not strict, recovery_point=recovery_point, in_order=in_order, log_start=log_start
    )


def write_clean_end(log: Log) -> None:
    """Write what a clean close adds to synced batches: complete indexes and a producer snapshot at the log end."""
    active = log.active
    if active.size:
        for index in (active.index, active.time_index):
            if index.handle.exists:
                index.handle.open_blocking()
        active.close_indexes()
        for handle in active.handles[1:]:
            if handle.file is not None:
                handle.file.sync_blocking()
    if log.log_end_offset > log.log_start_offset or log.producers.entries:
        write_snapshot(log.disk, log.directory, log.producers)


class _Loader:
    """State of loading one log. Its file cache is private and unbounded; no file stays open afterwards."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, now_ms: int, *, strict: bool) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.strict = strict
        self.cache = FileCache(UNLIMITED)
        self.report = RecoveryReport()
        self.changed = False
        self.segments: list[Segment] = []

    def load(self, *, clean: bool, recovery_point: int, in_order: int, log_start: int) -> LoadedLog:
        """Load the segments. Segments wholly below the offset `in_order` are on the device with their indexes and
        names. The name of the segment that contains `in_order` is on the device, too."""
        self.disk.make_directory(self.directory)
        self.changed = leftovers.clear(self.disk, self.directory)
        self._find_segments()
        self._drop_below(log_start)
        epochs = self._read_epochs()
        saved, rebuilt = epochs.entries, epochs.dirty
        scan_from = len(self.segments) if clean else self._first_to_scan(min(recovery_point, in_order))
        for segment in self.segments[:scan_from]:
            self._load_whole(segment)
        end, producers = self._recover(scan_from, recovery_point, epochs)
        self._require_synced(max(end, log_start), recovery_point)
        if end < log_start or not self.segments:
            end, producers = self._start_empty(max(log_start, 0)), None
            epochs.clear()
            scan_from = 0
        start = max(log_start, self.segments[0].base_offset)
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(start)
        if epochs.entries == saved and not rebuilt:
            epochs.mark_saved(epochs.changes)
        if producers is None:
            producers = load_producers(self.disk, self.directory, self.segments, end, self.config, self.now_ms)
        remove_snapshots(self.disk, self.directory, above=end)
        remove_stray_snapshots(self.disk, self.directory, self.segments)
        for segment in self.segments:
            segment.close_handles()
        names_synced = clean or max(recovery_point - 1, in_order) >= self.segments[-1].base_offset
        return LoadedLog(
            strict=self.strict,
            segments=self.segments,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=end if clean else min(recovery_point, end),
            epochs=epochs,
            producers=producers,
            unsynced=self.segments[scan_from:-1],
            directory_changed=self.changed or not names_synced,
            has_metadata=self.disk.exists(f"{self.directory}/{PARTITION_METADATA}"),
            report=self.report,
        )

    # selection of files

    def _find_segments(self) -> None:
        for base, present in leftovers.segment_files(self.disk, self.directory).items():
            segment = Segment(self.disk, self.cache, self.directory, base, present=present, created_ms=self.now_ms)
            if LOG_SUFFIX not in present:
                self._remove(segment)
                continue
            segment.recent[base] = 0
            self.segments.append(segment)

    def _drop_below(self, log_start: int) -> None:
        """Remove segments wholly below the log start. They were deleted, but a crash may have restored their names."""
        while len(self.segments) > 1 and self.segments[1].base_offset <= log_start:
            self._remove(self.segments.pop(0))

    def _remove(self, segment: Segment) -> None:
        self.changed = True
        for handle in segment.handles:
            if handle.exists:
                handle.remove()

    def _start_empty(self, log_start: int) -> int:
        """Discard all files and begin at the log start. Return the log end."""
        if self.disk.list(self.directory):
            for segment in self.segments:
                self._remove(segment)
            remove_snapshots(self.disk, self.directory, above=-1)
            self.disk.sync_directory(self.directory)
        self.segments = [new_segment(self.disk, self.cache, self.directory, log_start, self.now_ms)]
        self.changed = True
        return log_start

    def _first_to_scan(self, offset: int) -> int:
        """Return the number of the segment that contains this offset; 0 for the metadata log, which is scanned
        completely."""
        if self.strict:
            return 0
        bases = [segment.base_offset for segment in self.segments]
        return max(sum(base <= offset for base in bases) - 1, 0)

    # synced segments

    def _load_whole(self, segment: Segment) -> None:
        """Load a segment that no crash can have torn: use its indexes if they are plausible, else rebuild them."""
        segment.size = segment.log.open_blocking().size
        if not self._indexes_sane(segment):
            self._rebuild_alone(segment)
        elif segment is self.segments[-1]:
            self._load_tail(segment)

    def _indexes_sane(self, segment: Segment) -> bool:
        offsets, times = segment.index, segment.time_index
        for index, entry_bytes in ((offsets, OFFSET_ENTRY.size), (times, TIME_ENTRY.size)):
            if not index.handle.exists:
                return segment.size == 0
            size = index.handle.open_blocking().size
            if size % entry_bytes:
                return False
            index.set_file_entries(size // entry_bytes)
        last = read_through(offsets.entry, len(offsets) - 1) if len(offsets) else (0, -1)
        latest = read_through(times.last)
        if latest is not None:
            segment.max_timestamp, segment.max_timestamp_offset = latest
            times.last_timestamp = latest[0]
        elif segment.size:  # no timestamps: the segment's age counts from its last change
            segment.created_ms = self.disk.modified_ms(segment.log.path)
        in_range = last[0] >= 0 and -1 <= last[1] < max(segment.size, 1)
        rising = latest is None or latest[1] >= segment.base_offset
        return in_range and rising and segment.txn_index.sane(segment.base_offset)

    def _load_tail(self, segment: Segment) -> None:
        """Load the state that an append to a segment needs: where the next index entry is due, and the segment's first
        timestamp."""
        if segment.size == 0:
            return
        entries = len(segment.index)
        last_entry = read_through(segment.index.entry, entries - 1)[1] if entries else 0
        segment.bytes_since_index = segment.size - last_entry
        segment.first_timestamp = read_through(segment.header_at, 0).max_timestamp

    def _rebuild_alone(self, segment: Segment) -> None:
        """Rebuild a synced segment's indexes, durably. Raises StorageCorrupt if its batches are damaged."""
        before = self.segments[: self.segments.index(segment)]
        producers = self._producers_at(before, segment.base_offset)
        scan = self._scan(segment, segment.base_offset, 0, producers, None)
        if scan.damage is not None:
            file = segment.log.open_blocking()
            require_torn(file, scan.damage, synced_end=UNLIMITED**2, strict=self.strict, more_behind=True)
        if segment is not self.segments[-1]:
            segment.close_indexes()
        for handle in segment.handles[1:]:  # no sync plan will do this, as the segment counts as being on the device
            if handle.exists:
                handle.open_blocking().sync_blocking()

    def _end_of(self, segment: Segment) -> int:
        """Return the log end, from the last segment of a clean log. Raises StorageCorrupt if its batches do not fill
        the file."""
        entries = len(segment.index)
        position = read_through(segment.index.entry, entries - 1)[1] if entries else 0
        walk = segment.headers_from(position)
        end = segment.base_offset
        while (found := read_through(next, walk, None)) is not None:
            end = found[1].next_offset
        return end

    # segments that a crash may have torn

    def _recover(self, scan_from: int, recovery_point: int, epochs: EpochCache) -> tuple[int, ProducerStates | None]:
        """Read the segments from number `scan_from` on, and truncate at the first bad batch. Sets log end and
        producers."""
        if scan_from >= len(self.segments):
            return (self._end_of(self.segments[-1]) if self.segments else 0), None
        end = self.segments[scan_from].base_offset
        producers = self._producers_at(self.segments[:scan_from], end)
        epochs.truncate_from_end(end)
        epoch = 0
        for number, segment in enumerate(self.segments[scan_from:], start=scan_from):
            file = segment.log.open_blocking()
            if number > scan_from and segment.base_offset != end:
                self._truncate_gap(number, end, recovery_point)
                break
            scan = self._scan(segment, end, epoch, producers, epochs)
            end, epoch = scan.end_offset, scan.epoch
            if scan.damage is not None:
                more_behind = any(later.log.open_blocking().size for later in self.segments[number + 1 :])
                require_torn(file, scan.damage, synced_end=recovery_point, strict=self.strict, more_behind=more_behind)
                self._cut(number, scan.damage, scan.damage.position)
                break
        for segment in self.segments[scan_from:-1]:
            segment.close_indexes()
        return end, producers

    def _scan(
        self, segment: Segment, expected: int, epoch: int, producers: ProducerStates, epochs: EpochCache | None
    ) -> SegmentScan:
        """Read a segment's batches, and rebuild its indexes and the other state that follows from the batches."""
        file = segment.log.open_blocking()
        segment.reset()
        for index in (segment.index, segment.time_index):
            index.replace([])
        aborted: list[AbortedTransaction] = []
        scan = SegmentScan(file, expected_offset=expected, epoch=epoch, contiguous=self.strict)
        for _, header, batch in scan:
            segment.note_batch(
                header.last_offset, header.max_timestamp, header.size_bytes, self.config.index_interval_bytes
            )
            if epochs is not None and header.partition_leader_epoch > epochs.latest_epoch:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            entry = apply_to(producers, header, batch)
            if entry is not None:
                aborted.append(entry)
        segment.txn_index.replace(aborted)
        for index in (segment.index, segment.time_index):
            index.write_tail()
        self.report.segments_read += 1
        self.report.bytes_read += segment.size
        return scan

    def _truncate_gap(self, number: int, end: int, recovery_point: int) -> None:
        """Truncate the log where the segment before segment `number` ends. The end of that earlier segment was lost,
        because segment `number` does not begin where it ends."""
        previous = self.segments[number - 1]
        begin = self.segments[number].base_offset
        gap = SegmentDamage(previous.size, end, f"the next segment begins at offset {begin}, expected {end}")
        file = previous.log.open_blocking()
        require_torn(file, gap, synced_end=recovery_point, strict=False, more_behind=True)
        self._cut(number - 1, gap, previous.size)

    def _cut(self, number: int, damage: SegmentDamage, size: int) -> None:
        """Truncate the log to the first `size` bytes of segment `number`, and remove all later segments."""
        later = self.segments[number + 1 :]
        for segment in later:
            self._remove(segment)
        if later:
            self.disk.sync_directory(self.directory)
        self.segments = self.segments[: number + 1]
        file = self.segments[number].log.open_blocking()
        self.report.bytes_cut += file.size - size
        self.report.segments_removed += len(later)
        self.report.cut_at, self.report.reason = damage.expected_offset, damage.reason
        if file.size > size:
            file.truncate(size)
            file.sync_blocking()

    def _require_synced(self, end: int, recovery_point: int) -> None:
        """Check that the metadata log does not end below its synced end. (A partition's may: it was truncated, and the
        crash came before the recovery point was saved.)"""
        if self.strict and end < recovery_point:
            raise StorageCorrupt(
                f"{self.directory}: the log ends at offset {end}, but all below offset {recovery_point} "
                "was synced. To continue: format its metadata directory again (it rejoins with a new directory id)."
            )

    # state derived from the batches

    def _producers_at(self, segments: list[Segment], offset: int) -> ProducerStates:
        return load_producers(self.disk, self.directory, segments, offset, self.config, self.now_ms)

    def _read_epochs(self) -> EpochCache:
        """Return the epochs of the checkpoint, or rebuild them from the batches if it is missing or does not parse."""
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        if self.disk.exists(path):
            try:
                return EpochCache.decode(self.disk.read_file(path), path)
            except StorageCorrupt as error:
                self.report.reason = str(error)
        epochs = EpochCache()
        for segment in self.segments:
            segment.size = segment.log.open_blocking().size
            walk = segment.headers_from(0)
            try:
                while (found := read_through(next, walk, None)) is not None:
                    if found[1].partition_leader_epoch > epochs.latest_epoch:
                        epochs.assign(found[1].partition_leader_epoch, found[1].base_offset)
            except StorageCorrupt:  # recovery will report the problem of this segment, or truncate it
                break
        return epochs
