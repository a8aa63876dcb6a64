"""The log directories of a broker: which are online, what they held at start, where a new replica goes, their
checkpoints.

Invariants: a directory whose device has failed is never written again (its lock and checkpoints are left as they are).
A clean-shutdown file is removed before the first write and written as the very last. A replica that may be in a
directory that is offline is not made anew elsewhere. Checkpointed offsets of a removed log are never applied to a new
log of the same name. Source: KIP-112, KIP-858, Kafka's LogManager, docs/storage.md.
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
    """One log directory. The five dictionaries are the checkpoints as last read or written: they keep the marks of
    logs that are not open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.storage: LogDirectory | None = None
        self.is_clean = False
        self.broker_epoch = NO_BROKER_EPOCH
        self.found = FoundLogs((), (), (), ())
        self.held: set[TopicPartition] = set()
        """The logs that were here at start, or were moved here; there may be a hundred thousand."""
        self.recovery_points: dict[TopicPartition, int] = {}
        self.index_recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.forgotten: set[TopicPartition] = set()
        """Logs that are gone, of which the checkpoint files may still have lines."""
        self.partitions = HostedReplicas()
        self.open_logs: dict[Partition, None] = {}
        """Those of them whose log is open: what timers look at."""
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
        """Lock it and read what the last life left. *Blocking.* DirectoryInUse, ForeignDirectory, DiskError."""
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
        """Put the clean-shutdown file back that `open` took, if no log was opened here since. *Blocking.*"""
        if self.storage is None or not self.is_clean:
            return
        try:
            self.storage.write_clean_shutdown(self.broker_epoch)
        except DiskError as error:
            log.error("log directory was not left as it was found", directory=self.path, error=str(error))

    def forget(self, topic: str, index: int) -> None:
        """The log is gone from here: so are its checkpoints' lines, at their next writing, which must come before
        another log of this name (`CheckpointWriter.drop_forgotten`)."""
        self._forget((topic, index), self.log_starts, self.high_watermarks)
        self.forget_synced(topic, index)

    def forget_synced(self, topic: str, index: int) -> None:
        """What is said of how much of a log is on the device, and compacted, is of another one: as `forget`, but where
        it starts and what is committed of it stay."""
        self._forget((topic, index), self.recovery_points, self.index_recovery_points, self.cleaner_offsets)

    def _forget(self, key: TopicPartition, *checkpoints: dict[TopicPartition, int]) -> None:
        for marks in checkpoints:
            if marks.pop(key, None) is not None:
                self.forgotten.add(key)

    def lower_to(self, opened: Log, topic: str, index: int) -> bool:
        """Take down what the checkpoints say of a log that was just opened to what is left of it. True if they said
        more: they must be written before the log takes appends."""
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

    # checkpoints: collect on the loop, write off it

    def collect_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every replica here."""
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
        """Only of logs whose point is above their first segment's base."""
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
        """Only of logs whose folder does not say it."""
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
        """How far logs are compacted; what was cut off a log since is not."""
        for partition in self.open_logs:
            key = (partition.topic, partition.index)
            if partition.log is not None and key in self.cleaner_offsets:
                self.cleaner_offsets[key] = min(self.cleaner_offsets[key], partition.log.active.base_offset)
        return dict(self.cleaner_offsets)


class LogDirectories:
    """All of them, in the order of log.dirs."""

    def __init__(self, config: NodeConfig, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self.all = [HostedDirectory(path) for path in config.log_dirs]
        self.preferred: dict[TopicPartition, HostedDirectory] = {}
        """Where replicas are to be made that are not here yet, by AlterReplicaLogDirs."""
        self.interrupted: dict[TopicPartition, HostedDirectory] = {}
        """Where replicas were being moved when the last life ended."""

    def open(self, cluster_id: str) -> list[tuple[HostedDirectory, DiskError]]:
        """Open every directory; those whose device refused stay offline, and are the answer. *Blocking.*"""
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
        """Ids of the directories that are online."""
        return tuple(directory.directory_id for directory in self.online)

    @property
    def previous_broker_epoch(self) -> int:
        """What all clean-shutdown files agree on; -1 if one was missing or they differ."""
        epochs = {directory.broker_epoch for directory in self.all}
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    def of_path(self, path: str) -> HostedDirectory | None:
        """The directory that this path names, or lies in; the inner one, if one lies in another."""
        found = [one for one in self.all if path == one.path or path.startswith(one.path + "/")]
        return max(found, key=lambda one: len(one.path), default=None)

    def holding(self, topic: str, index: int, assigned: UUID | None = None) -> HostedDirectory | None:
        """The directory that has this log; of several (a crash fell into a move) the assigned one."""
        found = [directory for directory in self.online if (topic, index) in directory.held]
        first = found[0] if found else None
        return next((directory for directory in found if directory.directory_id == assigned), first)

    def place(self, topic: str, index: int, assigned: UUID | None, *, is_new: bool) -> HostedDirectory | None:
        """Where the replica is, or is to be made; None if it may be in a directory that is offline: also if the
        metadata name one that is online, for it may have been about to be moved there.

        `assigned` is the directory id that the metadata name; `is_new`: the replica was assigned to this broker just
        now, so there is no data of it anywhere.
        """
        preferred = self.preferred.pop((topic, index), None)
        holding = self.holding(topic, index, assigned)
        if holding is not None:
            return holding
        if not self.online or not (is_new or self.are_all_online):
            return None
        chosen = preferred if is_new else None
        if chosen is None or not chosen.is_online:
            chosen = self._assigned(assigned) or min(self.online, key=lambda directory: len(directory.partitions))
        chosen.forget(topic, index)  # what an earlier log of this name may have left
        return chosen

    def _assigned(self, assigned: UUID | None) -> HostedDirectory | None:
        if assigned is None or assigned.int < RESERVED_DIRECTORIES:
            return None
        return next((directory for directory in self.online if directory.directory_id == assigned), None)
