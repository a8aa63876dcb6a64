"""Log: one partition's log, or the metadata log, as its owner sees it.

Who may call what: everything here runs on the loop and never suspends, except what is marked *blocking* (for `offload`,
or for a log that is not published yet). A blocking call on a log has no append or other blocking call of that log beside
it; reads may go on.

Invariants: log start <= local log start <= log end; recovery point <= log end; ends are exclusive. An append changes,
with no suspension between: file, producer state, transaction index, transaction, log end (broker-spec 1.8). After a
DiskError in an append the log takes no more of them: its directory goes offline.

Source: broker-spec 1.5-1.8, 2, 3.2; DESIGN 2, 4, 13, 14.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.seam import Buffer, Disk, DiskError, require
from kraft.storage import loading, reading, replace, retention, truncation
from kraft.storage.append import AppendInfo, AppendOrigin, AppendRefused
from kraft.storage.epochs import EpochCache
from kraft.storage.follower_append import FollowerBatches
from kraft.storage.handles import ColdRead, FileCache, Handle, Need
from kraft.storage.log_config import LogConfig
from kraft.storage.log_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SNAPSHOT_SUFFIX, offset_name
from kraft.storage.log_slice import LogSlice, OffsetOutOfRange
from kraft.storage.markers import Marker, read_marker
from kraft.storage.partition_metadata import encode_partition_metadata
from kraft.storage.producer_snapshot import encode as encode_producers
from kraft.storage.producers import ProducerStates
from kraft.storage.segment import RELATIVE_OFFSET_MAX, Segment
from kraft.storage.sync_plan import RolledSegment, SyncPlan
from kraft.wire.records import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_PREFIX_BYTES,
    BatchHeader,
    patch_log_append_time,
)

if TYPE_CHECKING:
    from kraft.storage.recovery import RecoveryReport

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "AppendRefused",
    "ColdRead",
    "Log",
    "LogConfig",
    "LogSlice",
    "OffsetOutOfRange",
    "SyncPlan",
]

_PATCH = Struct(">qii")
"""base offset, batch length, leader epoch: the head of a batch that a leader rewrites."""
NEVER = 2**63 - 1
ROLL_AT_ONCE = -1


class Log:
    """Made by `open_log`. Attributes are for reading; methods change them."""

    __slots__ = (
        "_appendable",
        "_cache",
        "_directory_changes",
        "_directory_synced",
        "_failure",
        "_interval_bytes",
        "_ready_written",
        "_roll_bytes",
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
        self._ready_written = False
        for segment in self.segments:
            segment.attach(cache)
        self.update_config(config)

    @staticmethod
    def open_log(
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int,
        log_start: int,
        now_ms: int,
        strict: bool = False,
        cache: FileCache | None = None,
    ) -> Log:
        """Load (or make) the log in `directory`, recovering what a crash left. *Blocking.*

        `clean`: its directory was shut down cleanly. `recovery_point`, `log_start`: from the checkpoints, 0 if unknown.
        `strict`: the metadata log, every byte of which is validated at every start. No file stays open.
        StorageCorrupt if bytes are damaged that a crash cannot have damaged; DiskError.
        """
        loaded = loading.load(
            disk,
            directory,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start=log_start,
            now_ms=now_ms,
            strict=strict,
        )
        return Log(disk, directory, config, cache or FileCache(), loaded)

    # what it is

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open, or decided above the high watermark."""
        return self.producers.first_unstable_offset

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: min(high watermark, first unstable offset), not below log start."""
        unstable = self.producers.first_unstable_offset
        stable = self.high_watermark if unstable is None else min(self.high_watermark, unstable)
        return max(stable, self.log_start_offset)

    @property
    def synced_end_offset(self) -> int:
        """All below it is on the device; the same as the recovery point."""
        return self.recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' batches."""
        return sum(segment.size for segment in self.segments)

    @property
    def unsynced(self) -> bool:
        """`files_to_sync` would give a plan."""
        return (
            self.recovery_point < self.log_end_offset
            or bool(self._rolled)
            or self._directory_synced != self._directory_changes
            or self.epochs.dirty
        )

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._stamps = config.log_append_time
        self._interval_bytes = config.index_interval_bytes
        self._set_roll_limits()

    # append

    def warm_for_append(self) -> ColdRead | None:
        """What must be opened before the next append; None if it can go ahead. Deal with it as with a raised one."""
        needs = tuple(Need(handle) for handle in self.active.handles if handle.exists and handle.file is None)
        return ColdRead(needs) if needs and not self._appendable else None

    def append_as_leader(
        self,
        buffer: bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        now_ms: int,
    ) -> AppendInfo:
        """Append one validated batch at the log end; its base offset and leader epoch are patched in place.

        `header` is the batch's as it came. AppendRefused: producer state says no, nothing was written. ColdRead: open
        the files first (`warm_for_append`). DiskError: nothing of it is in the log; the directory must go offline.
        """
        _, batch_length, _, _, _, attributes, delta, _, timestamp, producer_id, _, _, _ = header
        size = batch_length + BATCH_PREFIX_BYTES
        require(len(buffer) == size, "append_as_leader takes exactly one batch")
        marker: Marker | None = None
        if producer_id >= 0:
            if attributes & ATTRIBUTE_CONTROL:
                marker = read_marker(buffer, 0, header)
                if marker is not None:
                    self.producers.check_marker(producer_id, header.producer_epoch, marker.coordinator_epoch)
            else:
                duplicate = self.producers.check(header, origin)
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
            or (timestamp < 0 and now_ms - segment.created_ms > self.config.segment_ms)
        ):
            segment = self._segment_for(base, last, size, timestamp, now_ms)
        file = segment.log.file
        assert file is not None
        try:
            file.append(buffer)
            if leader_epoch != self.epochs.latest_epoch:
                self.epochs.assign(leader_epoch, base)
            self._publish(segment, header, base, last, timestamp, size, marker)
        except DiskError as error:
            self._fail(error)
            raise
        return AppendInfo(base, last, stamp, False)

    def append_as_follower(self, data: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo:
        """Append whole batches as the leader made them: offsets, epochs and bytes stay; holes are accepted.

        A partial last batch is left out, and so are batches with an epoch above `leader_epoch` (that of the fetch) and
        all behind them. The info spans what was appended; it is empty (last < base) if nothing was.
        AppendRefused (2 CORRUPT_MESSAGE, 1 OFFSET_OUT_OF_RANGE): a batch is damaged, goes back in offset or epoch;
        what stands before it is not appended either. ColdRead and DiskError as in `append_as_leader`.
        """
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
            for group in batches.groups(self._fits):
                self._append_group(batches.view, group, now_ms)
        except DiskError as error:
            self._fail(error)
            raise
        return AppendInfo(first.base_offset, self.log_end_offset - 1, -1, False)

    def _fits(self, room: int, header: BatchHeader) -> bool:
        """Whether a follower's batch may follow `room` other bytes into the active segment."""
        return self.active.size + room + header.size_bytes <= self._roll_bytes

    def _append_group(self, view: memoryview, group: list[tuple[int, BatchHeader]], now_ms: int) -> None:
        """Write consecutive batches with one write, then publish each."""
        start, first = group[0]
        end = group[-1][0] + group[-1][1].size_bytes
        last = group[-1][1].last_offset
        timestamp = max(header.max_timestamp for _, header in group)
        segment = self._segment_for(first.base_offset, last, end - start, timestamp, now_ms)
        file = segment.log.file
        assert file is not None
        file.append(view[start:end])
        for position, header in group:
            if header.partition_leader_epoch > self.epochs.latest_epoch:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            marker = read_marker(view, position, header)
            base = header.base_offset
            self._publish(segment, header, base, header.last_offset, header.max_timestamp, header.size_bytes, marker)

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
        """A batch has been written at the segment's end: indexes, producer state, log end. In this order, at once."""
        if segment.first_timestamp is None:
            segment.first_timestamp = timestamp
            self._set_roll_limits()
        if segment.note_batch(last, timestamp, size, self._interval_bytes) and self._index_full(segment):
            self._roll_bytes = ROLL_AT_ONCE
        producers = self.producers
        if header[9] >= 0:
            if marker is not None:
                self._publish_marker(segment, header, marker, last, timestamp)
            elif not header.attributes & ATTRIBUTE_CONTROL:
                producers.apply_batch(header, base)
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

    def _segment_for(self, base: int, last: int, size: int, timestamp: int, now_ms: int) -> Segment:
        """The segment that takes a batch: the active one, opened and pinned, or a new one after a roll."""
        self._make_appendable()
        segment = self.active
        if segment.size and (
            segment.size + size > self._roll_bytes
            or timestamp > self._roll_timestamp
            or last > self._roll_offset
            or (timestamp < 0 and now_ms - segment.created_ms > self.config.segment_ms)
        ):
            self._roll_to(base, now_ms)
        return self.active

    def _make_appendable(self) -> None:
        """Open handles stay open from here until all is synced."""
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
        """Close the active segment and begin one at the log end; nothing if it is empty. ColdRead, DiskError."""
        self._make_appendable()
        try:
            self._roll_to(self.log_end_offset, now_ms)
        except DiskError as error:
            self._fail(error)
            raise

    def _roll_to(self, base_offset: int, now_ms: int) -> None:
        segment = self.active
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
        self._roll_timestamp = NEVER
        if segment.first_timestamp is not None:
            jitter = retention.jitter_ms(self.directory, segment, config)
            self._roll_timestamp = segment.first_timestamp + config.segment_ms - jitter
        if self._index_full(segment):
            self._roll_bytes = ROLL_AT_ONCE

    def _index_full(self, segment: Segment) -> bool:
        """Another entry would not fit; the time index keeps its last slot for the closing entry."""
        limit = self.config.segment_index_bytes
        offsets, times = segment.index, segment.time_index
        return offsets.size_bytes + offsets.entry_bytes > limit or times.size_bytes + 2 * times.entry_bytes > limit

    def _start_inside(self, base_offset: int, now_ms: int) -> None:
        """The leader's log begins in the middle of a batch and ours is empty: begin at the batch, keep the log start."""
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

    def _fail(self, error: DiskError) -> None:
        self._failure = error
        self._appendable = False

    # durability

    def files_to_sync(self) -> SyncPlan | None:
        """What `run` must put on the device so that `mark_synced` can move the recovery point to the log end of now.
        None if all of it is there."""
        if not self.unsynced:
            return None
        active = self.active.log if self.recovery_point < self.log_end_offset else None
        return self._plan(self.log_end_offset, active, tuple(self._rolled))

    def ready_plan(self, topic_id: UUID) -> SyncPlan | None:
        """What must be durable before the first append of this log in the current leader epoch: `partition.metadata`,
        the epoch entry, the directory's entries. It does not move the recovery point. None if there is nothing."""
        if self._ready_written and not self.epochs.dirty:
            return None
        metadata = (f"{self.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
        return self._plan(-1, None, (), metadata)

    def _plan(
        self, end_offset: int, active: Handle | None, rolled: tuple[RolledSegment, ...], *writes: tuple[str, bytes]
    ) -> SyncPlan:
        if self.epochs.dirty:
            writes = (*writes, (f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}", self.epochs.encode()))
        return SyncPlan(
            disk=self.disk,
            directory=self.directory,
            end_offset=end_offset,
            truncations=self._truncations,
            active=active,
            rolled=rolled,
            directory_changed=self._directory_changes != self._directory_synced,
            directory_changes=self._directory_changes,
            writes=writes,
            epoch_changes=self.epochs.changes,
        )

    def mark_synced(self, plan: SyncPlan) -> None:
        """The plan has run. A plan from before a truncation counts for nothing."""
        if plan.truncations != self._truncations:
            return
        for rolled in plan.rolled:
            rolled.settle()
        del self._rolled[: len(plan.rolled)]
        self._directory_synced = max(self._directory_synced, plan.directory_changes)
        self.epochs.mark_saved(plan.epoch_changes)
        if plan.end_offset < 0:
            self._ready_written = True
            return
        self.recovery_point = max(self.recovery_point, plan.end_offset)
        if not self.unsynced:
            self.active.pin(pinned=False)
            self._appendable = False

    def update_high_watermark(self, high_watermark: int) -> None:
        """The owner's high watermark: retention and transactions look at it."""
        self.high_watermark = high_watermark
        self.producers.on_high_watermark(high_watermark)

    # read

    def read(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True) -> LogSlice:
        """Whole batches from `offset` on, all below `end_offset`, at most `max_bytes`, of one segment only.

        The first batch is the one that holds `offset`, or the next one if it lies in a hole. With `at_least_one` it is
        given even if it is larger than `max_bytes`. OffsetOutOfRange outside [log start, log end]; ColdRead.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        end = min(end_offset, self.log_end_offset)
        return reading.read_slice(self.segments, offset, max_bytes, end, self.log_end_offset, at_least_one=at_least_one)

    def aborted_transactions(self, fetch_offset: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that may overlap [fetch_offset, upper). ColdRead."""
        return reading.aborted_transactions(self.segments, fetch_offset, upper)

    def upper_bound(self, piece: LogSlice) -> int:
        """An offset at or above the end of a slice, for `aborted_transactions`. ColdRead."""
        return reading.upper_bound(self.segments, piece, self.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> reading.TimestampedOffset | None:
        """The first record at or above log start with a timestamp >= `timestamp_ms`. *Blocking*, changes nothing."""
        return reading.offset_for_timestamp(self, timestamp_ms)

    def max_timestamp_offset(self) -> reading.TimestampedOffset | None:
        """The first record that has the log's largest timestamp; None for an empty log. *Blocking*, changes nothing."""
        return reading.max_timestamp_offset(self)

    def segment_of(self, offset: int) -> Segment:
        """The segment that has or would have `offset`: the one with the greatest base at or below it, else the first."""
        return self.segments[max(bisect_right(self.segments, offset, key=reading.BASE) - 1, 0)]

    # shrink

    def advance_log_start(self, offset: int) -> bool:
        """Raise the log start (never lowers it). Files go with the next retention run. True if it moved."""
        require(offset <= self.log_end_offset, f"log start {offset} above log end {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start(offset)
        return True

    def deletable_segments(self, now_ms: int) -> list[Segment]:
        """The oldest segments that retention lets go now. ColdRead. Give them to `delete_segments`."""
        return retention.deletable(self, now_ms)

    def delete_segments(self, segments: list[Segment], now_ms: int) -> list[str]:
        """Take the oldest segments out of the log: log start first, then names. The paths to unlink after
        `file.delete.delay.ms`; readers that hold a range of them go on."""
        if not segments:
            return []
        require(segments == self.segments[: len(segments)], "only a prefix of the segments can be deleted")
        if segments[-1] is self.active:
            self.roll(now_ms)
        kept = self.segments[len(segments) :]
        self.advance_log_start(kept[0].base_offset)
        self.segments = kept
        self._rolled = [rolled for rolled in self._rolled if rolled.segment not in segments]
        self._directory_changes += 1
        return retention.rename_deleted(self.disk, self.directory, segments)

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Forget everything at `offset` and above, durably; a batch that reaches over it goes too. *Blocking.*

        True if the log end moved. The epoch cache is cut in any case. The owner must save the recovery point before
        the next append. StorageCorrupt if what is left does not read; DiskError.
        """
        if offset < self.local_log_start_offset:
            self.truncate_fully(offset, now_ms)
            return True
        moved = offset < self.log_end_offset
        if moved:
            self._truncations += 1
            self._adopt(truncation.truncate(self, offset, now_ms))
        self.epochs.truncate_from_end(self.log_end_offset)
        truncation.save_epochs(self)
        return moved

    def truncate_fully(self, start_offset: int, now_ms: int) -> None:
        """Forget everything and begin again, empty, at `start_offset`, durably. *Blocking.*

        The owner must save log start and recovery point before the next append.
        """
        self._truncations += 1
        self._adopt(truncation.restart(self, start_offset, now_ms))
        self.log_start_offset = self.local_log_start_offset = start_offset
        self.high_watermark = start_offset
        self.epochs.clear()
        truncation.save_epochs(self)

    def _adopt(self, cut: truncation.Truncated) -> None:
        """Take over what a truncation has left on disk."""
        self.segments = cut.segments
        self.producers = cut.producers
        self._rolled = [rolled for rolled in self._rolled if rolled.segment in cut.segments[:-1]]
        self._appendable = False
        self._set_active()
        self._move_end(cut.log_end_offset)
        self.high_watermark = min(self.high_watermark, cut.log_end_offset)
        self.producers.on_high_watermark(self.high_watermark)

    def put_segments(self, segments: list[Segment]) -> None:
        """Replace the list as a whole; the active segment stays."""
        require(segments[-1] is self.active, "the active segment stays")
        self.segments = segments

    def replace_segments(self, old: list[Segment], cleaned: list[int]) -> list[str]:
        """Put the segments that stand complete in `.cleaned` files (by base offset) in the place of `old`, so that a
        crash at any moment leaves either. *Blocking.* The paths to unlink after `file.delete.delay.ms`."""
        return replace.replace_segments(self, old, cleaned)

    # end

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`. How many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def close(self, *, clean: bool) -> None:
        """Close the files. `clean`: first write indexes and a producer snapshot and sync all of it. *Blocking.*"""
        if clean and self._failure is None:
            loading.write_clean_end(self)
            plan = self.files_to_sync()
            if plan is not None:
                plan.run()
                self.mark_synced(plan)
        self.release()

    def release(self) -> None:
        """Close the files as they are (the log was deleted, or its directory failed)."""
        self._appendable = False
        for segment in self.segments:
            segment.pin(pinned=False)
            segment.close_handles()
