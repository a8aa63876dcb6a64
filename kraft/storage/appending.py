"""Appending: the part of a log that writes. `log.Log` adds reading, durability and truncation.

This is on the path of every produce. For each batch, check the producer state, patch the first header fields in place,
and write once. Then update, with no suspension between: indexes, producer state, transaction index, transaction, log
end. The limits that roll a segment are computed when the segment begins.

Source: Kafka's UnifiedLog, ProducerAppendInfo, docs/performance.md.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from kraft.seam import Buffer, Disk, DiskError, InvariantError, require
from kraft.storage import loading, retention
from kraft.storage.append import AppendInfo, AppendOrigin
from kraft.storage.epochs import EpochCache
from kraft.storage.follower_append import FollowerBatches
from kraft.storage.handles import ColdHandle, ColdRead, FileCache
from kraft.storage.log_config import LogConfig
from kraft.storage.log_names import SNAPSHOT_SUFFIX, offset_name
from kraft.storage.markers import Marker, read_marker
from kraft.storage.producers.producer_state import ProducerStates
from kraft.storage.producers.snapshot_file import encode as encode_producers
from kraft.storage.producers.verification import Verification
from kraft.storage.segment import RELATIVE_OFFSET_MAX, Segment
from kraft.storage.sync_plan import RolledSegment
from kraft.wire.records import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_PREFIX_BYTES,
    BatchHeader,
    patch_log_append_time,
)

if TYPE_CHECKING:
    from kraft.storage.recovery import RecoveryReport

_PATCH = Struct(">qii")
"""Struct of the start of a batch, which a leader rewrites: base offset, batch length, leader epoch."""
NEVER = 2**63 - 1
ROLL_AT_ONCE = -1


class AppendableLog:
    """A log's state, and the append operations. `_appendable`: the active segment's files are open and pinned."""

    __slots__ = (
        "_appendable",
        "_cache",
        "_directory_changes",
        "_directory_synced",
        "_failure",
        "_interval_bytes",
        "_ready_written",
        "_roll_bytes",
        "_roll_now_ms",
        "_roll_offset",
        "_roll_timestamp",
        "_rolled",
        "_stamps",
        "_truncations",
        "active",
        "config",
        "directory",
        "disk",
        "epochs",
        "high_watermark",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "recovery_report",
        "segments",
        "strict",
    )

    def __init__(
        self, disk: Disk, directory: str, config: LogConfig, cache: FileCache, loaded: loading.LoadedLog
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.strict = loaded.strict
        self.segments = loaded.segments
        self.active = loaded.segments[-1]
        self.log_start_offset = loaded.log_start_offset
        self.local_log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.recovery_report: RecoveryReport = loaded.report
        self.epochs: EpochCache = loaded.epochs
        self.producers: ProducerStates = loaded.producers
        self._cache = cache
        self._appendable = False
        self._failure: DiskError | None = None
        self._rolled = [RolledSegment(segment, None) for segment in loaded.unsynced]
        self._directory_changes = 1 if loaded.directory_changed else 0
        self._directory_synced = 0
        self._truncations = 0
        self._ready_written = loaded.has_metadata
        for segment in self.segments:
            segment.attach(cache)
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._stamps = config.log_append_time
        self._interval_bytes = config.index_interval_bytes
        self._set_roll_limits()

    # append

    def warm_for_append(self) -> ColdRead | None:
        """Return a ColdRead for the files to open before the next append; None if all are open. Handle it like a
        ColdRead that was raised."""
        needs = tuple(ColdHandle(handle) for handle in self.active.handles if handle.exists and handle.file is None)
        return ColdRead(*needs) if needs and not self._appendable else None

    def append_as_leader(
        self,
        buffer: bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
        now_ms: int,
    ) -> AppendInfo:
        """Append one validated batch at the log end. Its base offset and leader epoch are patched in place.

        `header` is that of the received batch. A batch that may open a transaction needs its `verification`. Raises
        AppendRefused: the producer state does not permit it, and nothing was written. Raises ColdRead: open the files
        first (`warm_for_append`). Raises DiskError: no part of the batch is in the log, and the directory must go
        offline."""
        _, batch_length, _, _, _, attributes, delta, _, timestamp, producer_id, _, _, _ = header
        size = batch_length + BATCH_PREFIX_BYTES
        if len(buffer) != size:
            raise InvariantError(f"one batch of {size} bytes was announced for an append, {len(buffer)} came")
        marker: Marker | None = None
        if producer_id >= 0:
            if attributes & ATTRIBUTE_CONTROL:
                marker = read_marker(buffer, 0, header)
                if marker is not None:
                    self.producers.check_marker(producer_id, header.producer_epoch, marker.coordinator_epoch)
            else:
                duplicate = self.producers.check(header, origin, verification)
                if duplicate is not None:
                    last, stamp = duplicate[2], duplicate[4] if self._stamps else -1
                    return AppendInfo(last - duplicate[3], last, stamp, True)
        base = self.log_end_offset
        stamp = -1
        if self._stamps:
            patch_log_append_time(buffer, 0, now_ms)
            header = header._replace(max_timestamp=now_ms, attributes=attributes | ATTRIBUTE_LOG_APPEND_TIME)
            timestamp = stamp = now_ms
        _PATCH.pack_into(buffer, 0, base, batch_length, leader_epoch)
        last = base + delta
        segment = self.active
        if (
            not self._appendable
            or segment.size + size > self._roll_bytes
            or timestamp > self._roll_timestamp
            or last > self._roll_offset
            or now_ms > self._roll_now_ms
        ):
            segment = self._segment_for(last, size, timestamp, now_ms)
        file = segment.log.file
        assert file is not None
        try:
            if leader_epoch != self.epochs.latest_epoch:
                self._begin_epoch(leader_epoch)
            file.append(buffer)
            self._publish(segment, header, base, last, timestamp, size, marker)
        except DiskError as error:
            self._fail(error)
            raise
        except Exception as error:
            raise self._partial_append_error(base, error) from error
        return AppendInfo(base, last, stamp, False)

    def _begin_epoch(self, leader_epoch: int) -> None:
        """Record in the epoch cache that an epoch begins at the log end, before the leader's first append in that
        epoch."""
        latest = self.epochs.latest_epoch
        require(leader_epoch > latest, f"an append in leader epoch {leader_epoch} to a log that has seen {latest}")
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def append_as_follower(self, data: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo:
        """Append whole batches from the leader, with offsets, epochs and bytes unchanged. Gaps are accepted.

        An incomplete last batch is left out. Batches with an epoch above `leader_epoch` (that of the fetch) are left
        out too, with all that follow. The returned AppendInfo spans what was appended; it is empty (last < base) if
        nothing was. Raises AppendRefused (2 CORRUPT_MESSAGE, 1 OFFSET_OUT_OF_RANGE): a batch is damaged, or its offset
        or epoch decreases. The batches before it are not appended either. Raises ColdRead and DiskError as in
        `append_as_leader`."""
        batches = FollowerBatches.verify(
            data,
            leader_epoch=leader_epoch,
            log_end_offset=self.log_end_offset,
            latest_epoch=self.epochs.latest_epoch,
            unaligned_start=self.log_end_offset == self.log_start_offset and self.active.size == 0,
        )
        if not batches.headers:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, False)
        first = batches.headers[0][1]
        if first.base_offset < self.log_end_offset:
            self._start_inside(first.base_offset, now_ms)
        try:
            for group in batches.groups(self._roll_bytes - self.active.size, self._fits):
                self._append_group(batches.view, group, now_ms)
        except DiskError as error:
            self._fail(error)
            raise
        except ColdRead:
            raise  # before any batch of its group was written
        except Exception as error:
            raise self._partial_append_error(self.log_end_offset, error) from error
        return AppendInfo(first.base_offset, self.log_end_offset - 1, -1, False)

    def _fits(self, room: int, header: BatchHeader) -> bool:
        """Return whether a follower's batch fits into the active segment, behind `room` bytes of other batches."""
        return self.active.size + room + header.size_bytes <= self._roll_bytes

    def _append_group(self, view: memoryview, group: list[tuple[int, BatchHeader]], now_ms: int) -> None:
        """Write consecutive batches with one write, then publish each."""
        start, newest = group[0][0], group[-1][1]
        end = group[-1][0] + newest.batch_length + BATCH_PREFIX_BYTES
        last = newest.base_offset + newest.last_offset_delta
        timestamp = newest.max_timestamp if len(group) == 1 else max([header.max_timestamp for _, header in group])
        segment = self._segment_for(last, end - start, timestamp, now_ms)
        file = segment.log.file
        assert file is not None
        file.append(view[start:end])
        for position, header in group:
            base, length, epoch, _, _, attributes, delta, _, stamp, *_ = header
            if epoch > self.epochs.latest_epoch:
                self.epochs.assign(epoch, max(base, self.log_start_offset))
            marker = read_marker(view, position, header) if attributes & ATTRIBUTE_CONTROL else None
            self._publish(segment, header, base, base + delta, stamp, length + BATCH_PREFIX_BYTES, marker)

    def _publish(
        self,
        segment: Segment,
        header: BatchHeader,
        base: int,
        last: int,
        timestamp: int,
        size: int,
        marker: Marker | None,
    ) -> None:
        """Update the log's state after a batch was written at the segment's end: indexes, producer state, log end.
        Keeps this order and never suspends."""
        if segment.first_timestamp is None:
            segment.first_timestamp = timestamp
            self._set_roll_limits()
        position, producers = segment.size, self.producers
        try:
            if segment.note_batch(last, timestamp, size, self._interval_bytes) and self._index_full(segment):
                self._roll_bytes = ROLL_AT_ONCE
            if header[9] >= 0:
                if marker is not None:
                    self._publish_marker(segment, header, marker, last, timestamp)
                elif not header.attributes & ATTRIBUTE_CONTROL:
                    producers.apply_batch(header, base)
        except DiskError:  # the batch is in the file but cannot be read; the log accepts no more appends
            segment.size = position
            raise
        self.log_end_offset = producers.end_offset = last + 1
        segment.remember_boundary(last + 1, segment.size)

    def _publish_marker(
        self, segment: Segment, header: BatchHeader, marker: Marker, offset: int, timestamp: int
    ) -> None:
        aborted = self.producers.apply_marker(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            offset,
            timestamp,
            aborted=marker.aborted,
        )
        if aborted is not None:
            segment.txn_index.append(aborted)
            segment.txn_index.handle.pinned = True
        self.producers.complete(header.producer_id, offset)

    # segments

    def _segment_for(self, last: int, size: int, timestamp: int, now_ms: int) -> Segment:
        """Return the segment for a batch: the active one, opened and pinned, or a new one after a roll."""
        self._make_appendable()
        segment = self.active
        if segment.size and (
            segment.size + size > self._roll_bytes
            or timestamp > self._roll_timestamp
            or last > self._roll_offset
            or now_ms > self._roll_now_ms
        ):
            self._roll(now_ms)
        return self.active

    def _make_appendable(self) -> None:
        """Open the active segment's files, and keep them open until everything is synced."""
        if self._appendable:
            return
        if self._failure is not None:
            raise self._failure
        cold = self.warm_for_append()
        if cold is not None:
            raise cold
        self.active.pin(pinned=True)
        self._appendable = True

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin a new one at the log end. Do nothing if it is empty. Raises ColdRead,
        DiskError."""
        self._make_appendable()
        try:
            self._roll(now_ms)
        except DiskError as error:
            self._fail(error)
            raise

    def _roll(self, now_ms: int) -> None:
        """Begin a new segment. It begins at the log end even if the next batch leaves a gap, so that recovery can
        distinguish a gap from a segment whose end was lost."""
        segment, base_offset = self.active, self.log_end_offset
        if segment.size == 0:
            return
        segment.close_indexes()
        snapshot = self.disk.create(f"{self.directory}/{offset_name(base_offset)}{SNAPSHOT_SUFFIX}")
        snapshot.append(encode_producers(self.producers.snapshot()))
        following = loading.new_segment(self.disk, self._cache, self.directory, base_offset, now_ms)
        self._rolled.append(RolledSegment(segment, snapshot))
        segment.older = {}
        self._directory_changes += 1
        self.segments = [*self.segments, following]
        self._set_active()
        following.pin(pinned=True)
        self._cache.trim()

    def _set_active(self) -> None:
        self.active = self.segments[-1]
        self._set_roll_limits()

    def _set_roll_limits(self) -> None:
        segment, config = self.active, self.config
        self._roll_bytes = config.segment_bytes
        self._roll_offset = segment.base_offset + RELATIVE_OFFSET_MAX
        self._roll_timestamp = self._roll_now_ms = NEVER
        first = segment.first_timestamp
        age_ms = config.roll_ms - retention.jitter_ms(self.directory, segment, config)
        if first is not None and first >= 0:
            self._roll_timestamp = first + age_ms
        elif first is not None:
            self._roll_now_ms = segment.created_ms + age_ms
        if self._index_full(segment):
            self._roll_bytes = ROLL_AT_ONCE

    def _index_full(self, segment: Segment) -> bool:
        """Return whether an index has no room for another entry. The time index keeps its last slot for the closing
        entry."""
        limit = self.config.segment_index_bytes
        offsets, times = segment.index, segment.time_index
        return offsets.size_bytes + offsets.entry_bytes > limit or times.size_bytes + 2 * times.entry_bytes > limit

    def _start_inside(self, base_offset: int, now_ms: int) -> None:
        """Begin an empty log at a batch in which the leader's log starts; the log start offset is kept."""
        empty = self.active
        for handle in empty.handles:
            if handle.exists:
                handle.remove()
        self.segments = [loading.new_segment(self.disk, self._cache, self.directory, base_offset, now_ms)]
        self._directory_changes += 1
        self._appendable = False
        self._set_active()
        self._move_end(base_offset)

    def _move_end(self, log_end_offset: int) -> None:
        self.log_end_offset = self.producers.end_offset = log_end_offset
        self.recovery_point = min(self.recovery_point, log_end_offset)

    def _partial_append_error(self, offset: int, error: Exception) -> InvariantError:
        """Return the error for an append that failed half-way. The batch may be in the file but not in the log's state
        in memory, so another append would contradict the file."""
        if isinstance(error, InvariantError):
            return error
        return InvariantError(f"the append at offset {offset} of {self.directory} broke off half-way: {error!r}")

    def _fail(self, error: DiskError) -> None:
        self._failure = error
        self._appendable = False
