"""The log directories of a broker: which are online, which logs were found in them at start, which directory a new
replica gets, and their checkpoints.

Invariants: a directory whose device has failed is never written again (its lock and checkpoints stay as they are). A
clean-shutdown file is removed before the first write to its directory and is the last file written there. A replica
that may be in an offline directory is not created again in another one. Checkpointed offsets of a removed log are never
applied to a new log of the same name.
Source: KIP-112, KIP-858, Kafka's LogManager, docs/storage.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import structlog
import trio

from kraft.broker.partition.hosted import HostedReplicas
from kraft.image.registrations import RESERVED_DIRECTORIES
from kraft.seam import Disk, DiskError
from kraft.storage.checkpoints import TopicPartition
from kraft.storage.log_dir import FoundLogs, LogDirectory

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.config import NodeConfig
    from kraft.storage.log import Log

log = structlog.get_logger("kraft.broker.logs")

NO_BROKER_EPOCH = -1


class HostedDirectory:
    """One log directory. Its five dictionaries are the contents of the checkpoint files as last read or written; they
    keep the offsets of logs that are not open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.storage: LogDirectory | None = None
        self.is_clean = False
        self.broker_epoch = NO_BROKER_EPOCH
        self.found = FoundLogs((), (), (), ())
        self.held: set[TopicPartition] = set()
        """The logs that were found in this directory at start or moved into it later; there may be a hundred thousand.
        """
        self.recovery_points: dict[TopicPartition, int] = {}
        self.index_recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.forgotten: set[TopicPartition] = set()
        """The logs that were removed but may still have lines in the checkpoint files."""
        self.partitions = HostedReplicas()
        self.open_logs: dict[Partition, None] = {}
        """The partitions whose log is open; timers visit only these partitions."""
        self.known_id: UUID | None = None
        self.checkpointing = trio.Lock()
        self.forgetting = trio.Lock()

    @property
    def is_online(self) -> bool:
        return self.storage is not None

    @property
    def directory_id(self) -> UUID:
        assert self.known_id is not None
        return self.known_id

    def open(self, disk: Disk, *, node_id: int, cluster_id: str) -> None:
        """Lock the directory and read the files of the last incarnation. *Blocking.* Raises DirectoryInUse,
        ForeignDirectory, DiskError."""
        storage = LogDirectory.open_directory(disk, self.path, node_id=node_id, cluster_id=cluster_id)
        clean = storage.take_clean_shutdown()
        self.is_clean = clean is not None
        self.broker_epoch = NO_BROKER_EPOCH if clean is None else clean.broker_epoch
        self.recovery_points = storage.read_recovery_points()
        self.index_recovery_points = storage.read_index_recovery_points()
        self.log_starts = storage.read_log_starts()
        self.high_watermarks = storage.read_high_watermarks()
        self.cleaner_offsets = storage.read_cleaner_offsets()
        self.found = storage.find_logs()
        self.held = set(self.found.partitions)
        for warning in storage.warnings:
            log.warning("log directory", path=self.path, warning=warning)
        self.known_id = storage.directory_id
        self.storage = storage

    def leave_as_found(self) -> None:
        """Put back the clean-shutdown file that `open` removed, unless a log in this directory was opened since.
        *Blocking.*"""
        if self.storage is None or not self.is_clean:
            return
        try:
            self.storage.write_clean_shutdown(self.broker_epoch)
        except DiskError as error:
            log.error("clean-shutdown file could not be put back", directory=self.path, error=str(error))

    def forget(self, topic: str, index: int) -> None:
        """Drop a removed log from the checkpoints. Their next write removes its lines from the files, and must happen
        before another log of this name is created (`CheckpointWriter.drop_forgotten`)."""
        self._forget((topic, index), self.log_starts, self.high_watermarks)
        self.forget_synced(topic, index)

    def forget_synced(self, topic: str, index: int) -> None:
        """Drop the checkpointed offsets up to which a log is synced and compacted, because they belong to another log
        of the same name. Unlike `forget`, keep the log start offset and the high watermark."""
        self._forget((topic, index), self.recovery_points, self.index_recovery_points, self.cleaner_offsets)

    def _forget(self, key: TopicPartition, *checkpoints: dict[TopicPartition, int]) -> None:
        for marks in checkpoints:
            if marks.pop(key, None) is not None:
                self.forgotten.add(key)

    def lower_checkpoints_to(self, opened: Log, topic: str, index: int) -> bool:
        """Lower the checkpointed offsets of a log that was just opened, so that none is beyond the log's end. Return
        True if any offset was lowered; the checkpoints must then be written before the log accepts appends."""
        key = (topic, index)
        lowered = False
        for marks, offset in (
            (self.recovery_points, opened.recovery_point),
            (self.index_recovery_points, opened.index_recovery_point),
            (self.cleaner_offsets, opened.active.base_offset),
        ):
            if marks.get(key, 0) > offset:
                marks[key] = offset
                lowered = True
        return lowered

    # checkpoints: collected on the event loop, written off it

    def collect_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermark of every replica in this directory."""
        for partition in self.open_logs:
            if partition.log is not None:
                self.high_watermarks[partition.topic, partition.index] = partition.high_watermark
        return dict(self.high_watermarks)

    def collect_recovery_points(self) -> dict[TopicPartition, int]:
        for partition in self.open_logs:
            if partition.log is not None:
                self.recovery_points[partition.topic, partition.index] = partition.log.recovery_point
        return dict(self.recovery_points)

    def collect_index_recovery_points(self) -> dict[TopicPartition, int]:
        """Return the index recovery points of logs. A point that is not above the base offset of the log's first
        segment is omitted."""
        for partition in self.open_logs:
            if partition.log is None:
                continue
            key, point = (partition.topic, partition.index), partition.log.index_recovery_point
            if point > partition.log.segments[0].base_offset:
                self.index_recovery_points[key] = point
            else:
                self.index_recovery_points.pop(key, None)
        return dict(self.index_recovery_points)

    def collect_log_starts(self) -> dict[TopicPartition, int]:
        """Return the log start offsets of logs for which the names of the segment files do not show the offset."""
        for partition in self.open_logs:
            if partition.log is None:
                continue
            key, start = (partition.topic, partition.index), partition.log.start_to_save
            if start is None:
                self.log_starts.pop(key, None)
            else:
                self.log_starts[key] = start
        return dict(self.log_starts)

    def collect_cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Return the offsets up to which logs are compacted. After a truncation, an offset is lowered to the base
        offset of the active segment."""
        for partition in self.open_logs:
            key = (partition.topic, partition.index)
            if partition.log is not None and key in self.cleaner_offsets:
                self.cleaner_offsets[key] = min(self.cleaner_offsets[key], partition.log.active.base_offset)
        return dict(self.cleaner_offsets)


class LogDirectories:
    """All log directories, in the order of log.dirs."""

    def __init__(self, config: NodeConfig, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self.all = [HostedDirectory(path) for path in config.log_dirs]
        self.preferred: dict[TopicPartition, HostedDirectory] = {}
        """The directories that AlterReplicaLogDirs requests chose for replicas that do not exist here yet."""
        self.interrupted: dict[TopicPartition, HostedDirectory] = {}
        """The target directories of moves between log directories that the end of the last incarnation interrupted."""

    def open(self, cluster_id: str) -> list[tuple[HostedDirectory, DiskError]]:
        """Open every directory. Return the directories whose devices failed; they stay offline. *Blocking.*"""
        failed: list[tuple[HostedDirectory, DiskError]] = []
        for directory in self.all:
            try:
                directory.open(self._disk, node_id=self._config.node_id, cluster_id=cluster_id)
            except DiskError as error:
                failed.append((directory, error))
        return failed

    @property
    def online(self) -> list[HostedDirectory]:
        return [directory for directory in self.all if directory.is_online]

    @property
    def are_all_online(self) -> bool:
        return all(directory.is_online for directory in self.all)

    @property
    def ids(self) -> tuple[UUID, ...]:
        """Directory ids of the directories that are online."""
        return tuple(directory.directory_id for directory in self.online)

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch in the clean-shutdown files; -1 if a file is missing or the files differ."""
        epochs = {directory.broker_epoch for directory in self.all}
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    def of_path(self, path: str) -> HostedDirectory | None:
        """Return the directory that is this path or contains it; of nested directories the innermost."""
        found = [one for one in self.all if path == one.path or path.startswith(one.path + "/")]
        return max(found, key=lambda one: len(one.path), default=None)

    def holding(self, topic: str, index: int, assigned: UUID | None = None) -> HostedDirectory | None:
        """Return the directory that holds this log. If several directories hold it, because a crash interrupted a move,
        return the directory that the metadata assign."""
        found = [directory for directory in self.online if (topic, index) in directory.held]
        first = found[0] if found else None
        return next((directory for directory in found if directory.directory_id == assigned), first)

    def place(self, topic: str, index: int, assigned: UUID | None, *, is_new: bool) -> HostedDirectory | None:
        """Return the directory in which the replica is or must be created. Return None if the replica may be in an
        offline directory. That is possible even if its assigned directory is online, because a move may have been about
        to begin.

        `assigned` is the directory id in the metadata. `is_new`: the replica was assigned to this broker just now, so
        no directory has data of it."""
        preferred = self.preferred.pop((topic, index), None)
        holding = self.holding(topic, index, assigned)
        if holding is not None:
            return holding
        if not self.online or not (is_new or self.are_all_online):
            return None
        chosen = preferred if is_new else None
        if chosen is None or not chosen.is_online:
            chosen = self._assigned(assigned) or min(self.online, key=lambda directory: len(directory.partitions))
        chosen.forget(topic, index)  # checkpointed offsets that an earlier log of this name may have left
        return chosen

    def _assigned(self, assigned: UUID | None) -> HostedDirectory | None:
        if assigned is None or assigned.int < RESERVED_DIRECTORIES:
            return None
        return next((directory for directory in self.online if directory.directory_id == assigned), None)
