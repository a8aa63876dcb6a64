"""MetadataLog: the quorum's files: the log (strict), its snapshots, and quorum-state, in one folder.

Opening validates every byte, and syncs what a dead process left in the page cache, so that everything reported to the
core is on disk. A recovery point is kept beside the log. This node has acknowledged the bytes below it, so damage or
missing bytes there are corruption, not a torn tail. The recovery point is never above the synced end, and it is lowered
before the log is truncated. If the newest snapshot is ahead of the log, the log restarts there. A log that starts above
0 with no snapshot at its start is corrupt. Functions marked *blocking* are called through `offload`.
Source: KIP-630, Kafka's KafkaMetadataLog, docs/storage.md#recovery-after-a-crash, docs/decisions/06-metadata-log.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraft.quorum.metadata_batches import (
    CommittedBatch,
    batch_of,
    committed_batch,
    encode_action,
    summary_of,
    voters_in,
    voters_record,
)
from kraft.raft.identity import ReplicaKey, VoterSet
from kraft.raft.log_view import LogView, SnapshotId
from kraft.raft.ready import AppendEvents, AppendFetched, AppendLeaderChange, AppendVoters, QuorumState
from kraft.seam import Clock, Disk, StorageCorrupt, require
from kraft.storage import quorum_state as quorum_file
from kraft.storage import snapshots as storage_snapshots
from kraft.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, read_offsets, write_offsets
from kraft.storage.handles import ColdRead, read_through
from kraft.storage.log import Log, LogConfig, SyncPlan
from kraft.storage.log_names import LOG_SUFFIX, METADATA_TOPIC, parse_segment_file, partition_directory_name
from kraft.storage.snapshots import SnapshotReceiver, SnapshotStore
from kraft.wire.records import iter_headers, read_header
from kraft.wire.records.control_records import ControlRecord, ControlRecordType

SCAN_BYTES = 1024 * 1024
BATCHES_BYTES = 256 * 1024
"""Maximum bytes that are read for listeners at a time; the listeners replay them in one step of the loop."""
KRAFT_VERSION_WITH_VOTERS = 1
PARTITION = (METADATA_TOPIC, 0)


class SnapshotContent(NamedTuple):
    """A snapshot as read from disk: event values in order, and the voter set (None if the snapshot holds none)."""

    snapshot: SnapshotId
    values: tuple[bytes, ...]
    voters: VoterSet | None


class MetadataLog:
    """The log, snapshots and quorum-state of this node. Created by `open`."""

    def __init__(self, disk: Disk, clock: Clock, directory: str, listener: str, config: LogConfig) -> None:
        self.disk = disk
        self.directory = directory
        self.listener = listener
        self.store = SnapshotStore(disk, directory)
        self.log: Log
        self._clock = clock
        self._config = config
        self._receiver: SnapshotReceiver | None = None
        self._saved_recovery_point = 0

    # opening

    @staticmethod
    def directory_in(metadata_dir: str) -> str:
        return f"{metadata_dir}/{partition_directory_name(METADATA_TOPIC, 0)}"

    @staticmethod
    def open(
        disk: Disk, clock: Clock, metadata_dir: str, listener: str, config: LogConfig, voters: VoterSet
    ) -> tuple[MetadataLog, LogView, QuorumState]:
        """Open the log in `metadata_dir`. *Blocking.* Return the log, the core's view of it, and the stored quorum
        state. `voters` is the configured set, for a log that names none. Raises StorageCorrupt, DiskError."""
        directory = MetadataLog.directory_in(metadata_dir)
        self = MetadataLog(disk, clock, directory, listener, config)
        disk.make_directory(directory)
        self.store.clear_leftovers()
        snapshots = [SnapshotId(found.end_offset, found.epoch) for found in self.store.list()]
        start = self._start_offset(snapshots)
        saved, _ = read_offsets(disk, self._recovery_point_path)
        self._saved_recovery_point = saved.get(PARTITION, 0)
        self.log = Log.open_log(
            disk,
            directory,
            config,
            clean=False,
            recovery_point=self._saved_recovery_point,
            log_start=start,
            now_ms=clock.wall_ms(),
            strict=True,
        )
        newest = snapshots[-1] if snapshots else None
        if newest is not None and newest.end_offset > self.log.log_end_offset:
            self._truncate_fully(newest.end_offset)
        elif self.log.log_start_offset > start:
            raise StorageCorrupt(
                f"{directory}: the log starts at offset {self.log.log_start_offset}, but no snapshot ends there "
                f"(snapshots: {[name.end_offset for name in snapshots]}); format the metadata directory anew, and the "
                "node rejoins with a new directory id"
            )
        snapshots = self._drop_old(snapshots)
        self._sync_all()
        self.warm()
        return self, self._view(snapshots, voters), self._read_state()

    @staticmethod
    def remove(disk: Disk, metadata_dir: str) -> None:
        """Delete the log and its snapshots. The stored epoch is kept, because it must never decrease, unless its file
        is damaged too. *Blocking.* Raises DiskError."""
        directory = MetadataLog.directory_in(metadata_dir)
        try:
            quorum_file.read_quorum_state(disk, directory)
        except StorageCorrupt:
            disk.remove_tree(directory)
            return
        for name in disk.list(directory):
            path = f"{directory}/{name}"
            if disk.is_directory(path):
                disk.remove_tree(path)
            elif name != quorum_file.QUORUM_STATE:
                disk.unlink(path)

    def _start_offset(self, snapshots: Sequence[SnapshotId]) -> int:
        """Return the log start offset, which is not stored: 0, or the end of a snapshot at or above the first segment's
        base offset."""
        parsed = [parse_segment_file(name) for name in self.disk.list(self.directory)]
        bases = sorted(found[0] for found in parsed if found is not None and found[1] == LOG_SUFFIX)
        if not bases or bases[0] == 0:
            return 0
        covering = [snapshot.end_offset for snapshot in snapshots if snapshot.end_offset >= bases[0]]
        return covering[0] if covering else 0

    def _drop_old(self, snapshots: list[SnapshotId]) -> list[SnapshotId]:
        """Delete snapshots below the log start, whose deletion a crash interrupted."""
        kept = [snapshot for snapshot in snapshots if snapshot.end_offset >= self.log.log_start_offset]
        for snapshot in snapshots:
            if snapshot not in kept:
                self.remove_snapshot(snapshot)
        return kept

    def _sync_all(self) -> None:
        plan = self.log.files_to_sync()
        if plan is not None:
            plan.run()
            self.log.mark_synced(plan)

    def _view(self, snapshots: list[SnapshotId], configured: VoterSet) -> LogView:
        epochs: list[tuple[int, int]] = []
        voters_records: list[tuple[int, VoterSet]] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.read_blocking(offset, SCAN_BYTES, self.log.log_end_offset)
            for position, header in iter_headers(data):
                summary = summary_of(data, position, header)
                if not epochs or summary.epoch > epochs[-1][0]:
                    epochs.append((summary.epoch, summary.base_offset))
                if summary.voters is not None:
                    voters_records.append((summary.base_offset, summary.voters))
                offset = summary.next_offset
        base = configured
        for snapshot in snapshots:
            if snapshot.end_offset == self.log.log_start_offset:  # at offset 0: the first voters (bootstrap_voters)
                base = self.read_snapshot(snapshot).voters or configured
        return LogView.recovered(
            base,
            start_offset=self.log.log_start_offset,
            end_offset=self.log.log_end_offset,
            epochs=epochs,
            snapshots=snapshots,
            voters_records=voters_records,
        )

    # quorum state

    def _read_state(self) -> QuorumState:
        found = quorum_file.read_quorum_state(self.disk, self.directory)
        if found is None:
            return QuorumState()
        directory = None if found.voted_directory_id == quorum_file.NO_DIRECTORY else found.voted_directory_id
        return QuorumState(
            found.leader_epoch,
            found.leader_id if found.leader_id >= 0 else None,
            ReplicaKey(found.voted_id, directory) if found.voted_id >= 0 else None,
        )

    def write_state(self, state: QuorumState) -> None:
        """Write quorum-state; durable on return. *Blocking.*"""
        voted = state.voted
        quorum_file.write_quorum_state(
            self.disk,
            self.directory,
            quorum_file.QuorumState(
                leader_id=-1 if state.leader_id is None else state.leader_id,
                leader_epoch=state.epoch,
                voted_id=-1 if voted is None else voted.node_id,
                voted_directory_id=(None if voted is None else voted.directory_id) or quorum_file.NO_DIRECTORY,
            ),
        )

    # the log

    def append(self, action: AppendEvents | AppendLeaderChange | AppendVoters) -> CommittedBatch:
        """Append one batch as the leader; return it in the form that listeners get. Raises DiskError."""
        batch = encode_action(action, self.listener, self._clock.wall_ms())
        header = read_header(batch)
        info = self.log.append_as_leader(batch, header, action.epoch, now_ms=self._clock.wall_ms())
        require(info.base_offset == action.base_offset, f"appended at {info.base_offset}, not {action.base_offset}")
        values = tuple(action.payload) if isinstance(action, AppendEvents) else ()
        return committed_batch(header, values)

    def append_fetched(self, action: AppendFetched) -> None:
        """Append a leader's batches, which `summarise` has validated. Raises DiskError."""
        self.log.append_as_follower(action.records, now_ms=self._clock.wall_ms())
        end = action.batches[-1].next_offset
        require(self.log.log_end_offset == end, f"appended up to {self.log.log_end_offset}, not {end}")

    @property
    def _recovery_point_path(self) -> str:
        return f"{self.directory}/{RECOVERY_POINT_CHECKPOINT}"

    @property
    def recovery_point_moved(self) -> bool:
        """Whether more is synced than the stored recovery point says."""
        return self.log.recovery_point > self._saved_recovery_point

    def save_recovery_point(self) -> None:
        """Store how far the log is synced. *Blocking.*"""
        self._write_recovery_point(self.log.recovery_point)

    def _write_recovery_point(self, offset: int) -> None:
        write_offsets(self.disk, self._recovery_point_path, {PARTITION: offset})
        self._saved_recovery_point = offset

    def _truncate_fully(self, start_offset: int) -> None:
        if self._saved_recovery_point > start_offset:
            self._write_recovery_point(start_offset)
        self.log.truncate_fully(start_offset, self._clock.wall_ms())

    def truncate(self, end_offset: int) -> None:
        """Remove everything at or after `end_offset`. *Blocking.*"""
        if self._saved_recovery_point > end_offset:
            self._write_recovery_point(end_offset)
        self.log.truncate_to(end_offset, self._clock.wall_ms())
        require(self.log.log_end_offset == end_offset, f"truncated to {self.log.log_end_offset}, not {end_offset}")
        self.warm()

    def warm(self) -> None:
        """Open the files that an append needs, so that appends never wait. *Blocking.*"""
        cold = self.log.warm_for_append()
        if cold is not None:
            cold.warm()
            cold.keep()

    def sync_plan(self) -> SyncPlan | None:
        return self.log.files_to_sync()

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches from `offset` on, at least one if there is one below `end_offset`. Raises ColdRead."""
        return self.log.read(offset, max_bytes, end_offset, at_least_one=True).read_cached()

    def read_blocking(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Same as `read`, but wait for data that is not in memory. *Blocking.*"""
        return read_through(self.read, offset, max_bytes, end_offset)

    def read_batches(self, offset: int, end_offset: int) -> tuple[CommittedBatch, ...]:
        """Return some batches from `offset` on, in the form that listeners get. *Blocking.*"""
        data = self.read_blocking(offset, BATCHES_BYTES, end_offset)
        return tuple(batch_of(data, position, header) for position, header in iter_headers(data))

    # snapshots

    def read_snapshot(self, snapshot: SnapshotId) -> SnapshotContent:
        """Read a whole snapshot. *Blocking.* Raises StorageCorrupt."""
        values: list[bytes] = []
        voters: VoterSet | None = None
        for batch in self.store.open(_stored(snapshot)).batches():
            values.extend(batch.values)
            voters = voters_in(batch.controls) or voters
        return SnapshotContent(snapshot, tuple(values), voters)

    def begin_snapshot(self, snapshot: SnapshotId, voters: VoterSet | None) -> storage_snapshots.SnapshotWriter:
        """Start writing a snapshot. *Blocking.*"""
        now_ms = self._clock.wall_ms()
        writer = self.store.create(_stored(snapshot), last_contained_log_timestamp=now_ms, now_ms=now_ms)
        if voters is not None:
            level = ControlRecord(type=ControlRecordType.KRAFT_VERSION, kraft_version=KRAFT_VERSION_WITH_VOTERS)
            writer.append_controls(level, voters_record(voters, self.listener))
        return writer

    def read_chunk(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Return bytes of a snapshot, and the size of the snapshot. *Blocking.* Raises SnapshotNotFound,
        PositionOutOfRange."""
        return self.store.read_chunk(_stored(snapshot), position, max_bytes)

    def receive(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        """Add a chunk to the download; position 0 starts a new one."""
        if position == 0:
            self.discard_download()
            self._receiver = self.store.receive(_stored(snapshot))
        require(self._receiver is not None, f"a chunk at {position} of {snapshot} came without a beginning")
        assert self._receiver is not None
        self._receiver.append(position, data)

    def discard_download(self) -> None:
        if self._receiver is not None:
            self._receiver.abandon()
            self._receiver = None

    def install_download(self, snapshot: SnapshotId) -> SnapshotContent | None:
        """Make the download the newest snapshot and restart the log at its end. Return None if it is not valid.
        *Blocking.*

        A crash in between leaves a snapshot ahead of the log, which `open` repairs."""
        receiver, self._receiver = self._receiver, None
        assert receiver is not None
        try:
            receiver.finish()
        except StorageCorrupt:
            receiver.abandon()
            return None
        content = self.read_snapshot(snapshot)
        older = [found for found in self.store.list() if found != _stored(snapshot)]
        self._truncate_fully(snapshot.end_offset)
        for found in older:
            self.disk.unlink(self.store.path(found))
        self.warm()
        return content

    def remove_snapshot(self, snapshot: SnapshotId) -> None:
        """Delete a snapshot's file, if it exists. *Blocking.*"""
        self.disk.unlink(self.store.path(_stored(snapshot)))

    def sizes(self, snapshots: Sequence[SnapshotId]) -> int:
        """Return the bytes of the log and of these snapshots together. *Blocking.*"""
        return self.log.size_bytes + sum(self.store.size_bytes(_stored(snapshot)) for snapshot in snapshots)

    def snapshot_age_ms(self, snapshot: SnapshotId) -> int:
        """Return the age of a snapshot. *Blocking.*"""
        return self._clock.wall_ms() - self.disk.modified_ms(self.store.path(_stored(snapshot)))

    def trim(self, start_offset: int, dropped: Sequence[SnapshotId]) -> list[str]:
        """Raise the log start, and remove the segments wholly below it and the snapshots `dropped`. Return the paths to
        unlink later."""
        self.log.advance_log_start(start_offset)
        segments = self.log.segments
        count = 0
        while count + 1 < len(segments) and segments[count + 1].base_offset <= start_offset:
            count += 1
        paths = self.log.delete_segments(list(segments[:count]), self._clock.wall_ms()) if count else []
        return paths + [self.store.mark_deleted(_stored(snapshot)) for snapshot in dropped]

    def close(self) -> None:
        """Sync and close. *Blocking.*"""
        self.discard_download()
        self.log.close(clean=True)
        if self.recovery_point_moved:
            self.save_recovery_point()


def _stored(snapshot: SnapshotId) -> storage_snapshots.SnapshotId:
    return storage_snapshots.SnapshotId(snapshot.end_offset, snapshot.epoch)


__all__ = ["ColdRead", "MetadataLog", "SnapshotContent"]
