"""Log: one partition's log, or the metadata log, as its owner uses it.

Everything here runs on the loop and never suspends, except calls marked *blocking*. Those are for `offload`, or for a
log that is not published yet. During a blocking call on a log there must be no append and no other blocking call of
that log; reads may continue.

Invariants: log start <= local log start <= log end; recovery point <= log end; ends are exclusive. An append changes,
with no suspension between: file, producer state, transaction index, transaction, log end. After a DiskError in an
append the log accepts no more appends: its directory goes offline.

Source: Kafka's UnifiedLog, LocalLog, docs/storage.md, docs/decisions/01-one-seam.md, docs/decisions/06-metadata-log.md.
"""

from __future__ import annotations

from uuid import UUID

from kraft.seam import Disk, require
from kraft.storage import loading, reading, retention, truncation
from kraft.storage.append import AppendInfo, AppendOrigin, AppendRefused
from kraft.storage.appending import AppendableLog
from kraft.storage.handles import ColdRead, FileCache, Handle
from kraft.storage.log_config import LogConfig
from kraft.storage.log_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kraft.storage.log_slice import LogSlice, OffsetOutOfRange
from kraft.storage.partition_metadata import encode_partition_metadata
from kraft.storage.segment import Segment
from kraft.storage.sync_plan import RolledSegment, SyncPlan

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


class Log(AppendableLog):
    """A log, created by `open_log`. Its users change it only through its methods."""

    __slots__ = ()

    @staticmethod
    def open_log(
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int,
        index_recovery_point: int | None = None,
        log_start: int,
        now_ms: int,
        strict: bool = False,
        cache: FileCache | None = None,
    ) -> Log:
        """Load (or create) the log in `directory`, and recover it after a crash. *Blocking.*

        `clean`: its directory was shut down cleanly. `recovery_point`, `log_start`, `index_recovery_point`: from the
        checkpoints, 0 if unknown. With an unknown `index_recovery_point`, the segment that ends at the recovery point
        is read too. If the two recovery points of the opened log are lower than those in the checkpoints, the owner
        must save them before the first append. `strict`: the metadata log, every byte of which is validated at every
        start. No file stays open. Raises StorageCorrupt if bytes are damaged that a crash cannot have damaged, and
        DiskError."""
        loaded = loading.load(
            disk,
            directory,
            config,
            clean=clean,
            recovery_point=recovery_point,
            index_recovery_point=index_recovery_point,
            log_start=log_start,
            now_ms=now_ms,
            strict=strict,
        )
        return Log(disk, directory, config, cache or FileCache(), loaded)

    # properties

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or whose marker is at or above the high watermark."""
        return self.producers.first_unstable_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of read_committed reads: min(high watermark, first unstable offset), not below the log start."""
        unstable = self.producers.first_unstable_offset
        stable = self.high_watermark if unstable is None else min(self.high_watermark, unstable)
        return max(stable, self.log_start_offset)

    @property
    def synced_end_offset(self) -> int:
        """Offset below which everything is on the device; the same as the recovery point."""
        return self.recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' batches."""
        return sum(segment.size for segment in self.segments)

    @property
    def truncations(self) -> int:
        """Number of truncations: what was read before the latest one may no longer be in the log."""
        return self._truncations

    @property
    def file_cache(self) -> FileCache:
        """The cache that the log's open files belong to."""
        return self._cache

    @property
    def unsynced(self) -> bool:
        """Whether `files_to_sync` would return a plan."""
        return (
            self.recovery_point < self.log_end_offset
            or bool(self._rolled)
            or self._directory_synced != self._directory_changes
            or self.epochs.dirty
        )

    # durability

    @property
    def start_to_save(self) -> int | None:
        """The value for the log start checkpoint; None if none is needed, because the oldest file on the device begins
        there. Removed names may reappear after a crash until the directory is synced."""
        start, base = self.log_start_offset, self.segments[0].base_offset
        is_named = start == base and (start == 0 or self._directory_synced == self._directory_changes)
        return None if is_named else start

    @property
    def index_recovery_point(self) -> int:
        """Offset below which every segment has its indexes on the device. The indexes of the active segment, and of one
        that was just closed, get there later than the records. A segment that ends at the recovery point may be one of
        these two."""
        return (self._rolled[0].segment if self._rolled else self.active).base_offset

    def files_to_sync(self, *, rolled_only: bool = False) -> SyncPlan | None:
        """Return the sync plan for everything up to the present log end; `run` it so that `mark_synced` can move the
        recovery point there. Return None if everything is synced. `rolled_only`: only up to the active segment's base
        (for a roll)."""
        if not self.unsynced or (rolled_only and not self._rolled):
            return None
        if rolled_only:
            return self._plan(self.active.base_offset, None, tuple(self._rolled))
        active = self.active.log if self.recovery_point < self.log_end_offset else None
        return self._plan(self.log_end_offset, active, tuple(self._rolled))

    def ready_plan(self, topic_id: UUID) -> SyncPlan | None:
        """Return a plan for what must be durable before this log's first append in the current leader epoch:
        `partition.metadata`, the epoch entry, the directory's entries. It does not move the recovery point. Return None
        if there is nothing to sync."""
        if self._ready_written and not self.epochs.dirty:
            return None
        writes: list[tuple[str, bytes]] = []
        if not self._ready_written:
            writes.append((f"{self.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)))
        return self._plan(-1, None, (), *writes)

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
        """Record that the plan has run. A plan from before a truncation has no effect."""
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
        """Store the high watermark that the log's owner has determined; retention and transactions use it."""
        self.high_watermark = high_watermark
        self.producers.on_high_watermark(high_watermark)

    # read

    def read(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True) -> LogSlice:
        """Read whole batches from `offset` on, all below `end_offset`, at most `max_bytes`, of one segment only.

        The first batch contains `offset`, or is the next one if `offset` is in a gap. With `at_least_one` it is
        returned even if it is larger than `max_bytes`. Raises OffsetOutOfRange outside [log start, log end], and
        ColdRead if data is not in memory."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        end = min(end_offset, self.log_end_offset)
        return reading.read_slice(self.segments, offset, max_bytes, end, self.log_end_offset, at_least_one=at_least_one)

    def aborted_transactions(self, fetch_offset: int, upper: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of aborted transactions that may overlap [fetch_offset, upper). Raises
        ColdRead."""
        return reading.aborted_transactions(self.segments, fetch_offset, upper)

    def upper_bound(self, piece: LogSlice) -> int:
        """Return an offset at or above the end of a slice, for `aborted_transactions`. Raises ColdRead."""
        return reading.upper_bound(self.segments, piece, self.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> reading.LookupSteps:
        """Find the first record at or above the log start with a timestamp >= `timestamp_ms`.

        It runs in *blocking* steps of about a millisecond each, which change nothing. Raises UnreadableBatch,
        StorageCorrupt, DiskError, SegmentGone."""
        return reading.offset_for_timestamp(self, timestamp_ms)

    def max_timestamp_offset(self) -> reading.LookupSteps:
        """Find the first record with the largest timestamp of those at or above the log start; None for an empty log.
        Steps and errors as in `offset_for_timestamp`."""
        return reading.max_timestamp_offset(self)

    def advance_log_start(self, offset: int) -> bool:
        """Raise the log start (never lowers it). The next retention run removes files. Return True if it moved."""
        require(offset <= self.log_end_offset, f"log start {offset} above log end {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start(offset)
        return True

    def deletable_segments(self, now_ms: int) -> list[Segment]:
        """Return the oldest segments that retention can delete now, for `delete_segments`. Raises ColdRead."""
        return retention.deletable(self, now_ms)

    def delete_segments(self, segments: list[Segment], now_ms: int) -> list[str]:
        """Remove the oldest segments from the log: first raise the log start, then rename their files. Return the paths
        to unlink after `file.delete.delay.ms`. Readers with a range of these files can continue."""
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
        """Remove everything at or above `offset`, durably, including a batch that extends beyond it. *Blocking.*

        True if the log end moved. The epoch cache is truncated in any case. Before the next append, the owner must save
        both recovery points, and the log start if it decreased. Raises StorageCorrupt if the remaining log cannot be
        read, and DiskError."""
        if offset < self.local_log_start_offset:
            self.truncate_fully(offset, now_ms)
            return True
        moved = offset < self.log_end_offset
        if moved:
            self._truncations += 1
            verifications = self.producers.verifications
            self._adopt(truncation.truncate(self, offset, now_ms))
            self.producers.verifications = verifications
        self.epochs.truncate_from_end(self.log_end_offset)
        truncation.save_epochs(self)
        return moved

    def truncate_fully(self, start_offset: int, now_ms: int) -> None:
        """Remove everything and restart, empty, at `start_offset`, durably. *Blocking.*

        The owner must save log start and both recovery points before the next append."""
        self._truncations += 1
        self._adopt(truncation.restart(self, start_offset, now_ms))
        self.log_start_offset = self.local_log_start_offset = start_offset
        self.high_watermark = start_offset
        self.epochs.clear()
        truncation.save_epochs(self)

    def _adopt(self, cut: truncation.Truncated) -> None:
        """Adopt the state that a truncation has left on disk."""
        self.segments = cut.segments
        self.producers = cut.producers
        self._rolled = [rolled for rolled in self._rolled if rolled.segment in cut.segments[:-1]]
        self._appendable = False
        self._set_active()
        self._move_end(cut.log_end_offset)
        self.high_watermark = min(self.high_watermark, cut.log_end_offset)
        self.producers.on_high_watermark(self.high_watermark)

    def moved_to(self, directory: str) -> None:
        """Record that the owner has renamed the log's folder; open files stay open."""
        self.directory = directory
        for segment in self.segments:
            for handle in segment.handles:
                handle.path = f"{directory}/{handle.path.rpartition('/')[2]}"

    def copy_state_of(self, other: Log) -> None:
        """Copy from the log `other` the state that its batches do not contain: log start, high watermark, an epoch
        without batches, and the verifications that producers wait for."""
        for epoch, start_offset in other.epochs.entries:
            if epoch > self.epochs.latest_epoch:
                self.epochs.assign(epoch, start_offset)
        self.advance_log_start(other.log_start_offset)
        self.update_high_watermark(other.high_watermark)
        self.producers.verifications = dict(other.producers.verifications)

    def put_segments(self, segments: list[Segment]) -> None:
        """Replace the list of segments (for `compaction.replacement.Replacement`); the active segment stays."""
        require(segments[-1] is self.active, "the active segment stays")
        self.segments = segments

    # closing

    def expire_producers(self, now_ms: int) -> int:
        """Remove producers without activity for `producer.id.expiration.ms`. Return their number."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def close(self, *, clean: bool) -> None:
        """Close the files. `clean`: first write indexes and a producer snapshot, and sync everything. *Blocking.*"""
        if clean and self._failure is None:
            loading.write_clean_end(self)
            plan = self.files_to_sync()
            if plan is not None:
                plan.run()
                self.mark_synced(plan)
        self.release()

    def release(self) -> None:
        """Close the files without writing (the log was deleted, or its directory failed)."""
        self._appendable = False
        for segment in self.segments:
            segment.leave()
