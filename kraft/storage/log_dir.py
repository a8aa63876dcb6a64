"""A log directory: its lock, its identity, its checkpoints, and the folders of its logs.

At start: take the lock, check `meta.properties`, then read the clean-shutdown file and remove it before the first
write. At a clean stop: close all logs, write the checkpoints, and as the very last step write the clean-shutdown file.
Everything here is *blocking*. Source: Kafka's LogManager, KIP-112,
docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kraft.seam import Disk, DiskError, DiskLocked, Lock
from kraft.storage.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from kraft.storage.log_names import (
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    METADATA_TOPIC,
    STRAY_DIRECTORY_SUFFIX,
    marked_directory_name,
    marked_directory_suffix,
    parse_marked_directory,
    parse_partition_directory,
    partition_directory_name,
)
from kraft.storage.meta_properties import (
    META_PROPERTIES,
    ForeignDirectory,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
NO_BROKER_EPOCH = -1


class DirectoryInUse(Exception):
    """Another process has this log directory open."""


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """The directory was shut down cleanly by the incarnation with this broker epoch (-1 if the file lacks it)."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """Folders in a log directory. `partitions` are live logs, sorted. The other fields are full paths of folders with a
    mark (-delete, -stray, -future), one field per mark."""

    partitions: tuple[TopicPartition, ...]
    to_delete: tuple[str, ...]
    stray: tuple[str, ...]
    future: tuple[str, ...]


def format_directory(disk: Disk, path: str, properties: MetaProperties) -> None:
    """Create the directory and write its identity. Raises ForeignDirectory if it already has one."""
    disk.make_directory(path)
    if disk.exists(f"{path}/{META_PROPERTIES}"):
        raise ForeignDirectory(f"{path}: is formatted already; remove it first if its data is to go")
    write_meta_properties(disk, path, properties)


class LogDirectory:
    """An open log directory, created by `open_directory`; `close` releases the lock."""

    def __init__(self, disk: Disk, path: str, properties: MetaProperties, lock: Lock) -> None:
        self.disk = disk
        self.path = path
        self.properties = properties
        self.warnings: list[str] = []
        """Problems that were found and ignored, for the owner to log."""
        self._lock: Lock | None = lock

    @staticmethod
    def open_directory(disk: Disk, path: str, *, node_id: int, cluster_id: str | None = None) -> LogDirectory:
        """Take the lock and check the directory's owner.

        Raises DirectoryInUse, ForeignDirectory if it is not formatted, or not for this node and cluster, and DiskError
        if it cannot be written."""
        if not disk.is_directory(path):
            raise ForeignDirectory(f"{path}: there is no such folder; make it with `kraft storage format`")
        try:
            lock = disk.lock(f"{path}/{LOCK}")
        except DiskLocked as error:
            raise DirectoryInUse(
                f"{path}: another process has this folder open ({error}); stop it, or give this node its own folder"
            ) from error
        try:
            properties = read_meta_properties(disk, path)
            if properties is None:
                raise ForeignDirectory(f"{path}: has no {META_PROPERTIES}; format it with `kraft storage format`")
            properties.require_owner(path, cluster_id=cluster_id, node_id=node_id)
        except (ForeignDirectory, DiskError):
            lock.release()
            raise
        return LogDirectory(disk, path, properties, lock)

    @property
    def directory_id(self) -> UUID:
        return self.properties.directory_id

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # clean shutdown

    def take_clean_shutdown(self) -> CleanShutdown | None:
        """Return the record of the last incarnation's clean stop, else None. When this returns, the file is removed,
        durably."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        if not self.disk.exists(path):
            return None
        data = self.disk.read_file(path)
        self.disk.unlink(path)
        self.disk.sync_directory(self.path)
        try:
            epoch = int(json.loads(data)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            epoch = NO_BROKER_EPOCH
        return CleanShutdown(epoch)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        """Write the clean-shutdown file: the very last step of a clean stop, after closing all logs and writing the
        checkpoints."""
        text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self.disk.write_file_atomic(f"{self.path}/{CLEAN_SHUTDOWN}", text.encode())

    # checkpoints

    def read_recovery_points(self) -> dict[TopicPartition, int]:
        return self._read(RECOVERY_POINT_CHECKPOINT)

    def write_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        write_offsets(self.disk, f"{self.path}/{RECOVERY_POINT_CHECKPOINT}", offsets)

    def read_index_recovery_points(self) -> dict[TopicPartition, int]:
        return self._read(INDEX_RECOVERY_POINT_CHECKPOINT)

    def write_index_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the index recovery points, only of logs whose point is above their first segment's base."""
        write_offsets(self.disk, f"{self.path}/{INDEX_RECOVERY_POINT_CHECKPOINT}", offsets)

    def read_log_starts(self) -> dict[TopicPartition, int]:
        return self._read(LOG_START_CHECKPOINT)

    def write_log_starts(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the log start offsets, only of logs that need it (`Log.start_to_save`)."""
        write_offsets(self.disk, f"{self.path}/{LOG_START_CHECKPOINT}", offsets)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return self._read(HIGH_WATERMARK_CHECKPOINT)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        write_offsets(self.disk, f"{self.path}/{HIGH_WATERMARK_CHECKPOINT}", offsets)

    def read_cleaner_offsets(self) -> dict[TopicPartition, int]:
        return self._read(CLEANER_CHECKPOINT)

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        write_offsets(self.disk, f"{self.path}/{CLEANER_CHECKPOINT}", offsets)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        offsets, why = read_offsets(self.disk, f"{self.path}/{name}")
        if why is not None:
            self.warnings.append(why)
        return offsets

    # logs

    def partition_path(self, topic: str, partition: int) -> str:
        return f"{self.path}/{partition_directory_name(topic, partition)}"

    def find_logs(self) -> FoundLogs:
        """Return the folders of logs in this directory, without the metadata log."""
        partitions: list[TopicPartition] = []
        marked: dict[str, list[str]] = {
            mark: [] for mark in (DELETE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX, FUTURE_DIRECTORY_SUFFIX)
        }
        for name in self.disk.list(self.path):
            path = f"{self.path}/{name}"
            if not self.disk.is_directory(path):
                continue
            mark = marked_directory_suffix(name)
            parsed = parse_marked_directory(name) if mark else parse_partition_directory(name)
            if parsed is None:
                self.warnings.append(f"{path}: not the name of a log's folder; it is ignored")
            elif mark is not None:
                marked[mark].append(path)
            elif parsed[0] != METADATA_TOPIC:
                partitions.append(parsed)
        return FoundLogs(
            tuple(sorted(partitions)),
            tuple(marked[DELETE_DIRECTORY_SUFFIX]),
            tuple(marked[STRAY_DIRECTORY_SUFFIX]),
            tuple(marked[FUTURE_DIRECTORY_SUFFIX]),
        )

    def retire(self, topic: str, partition: int, unique: UUID, mark: str = DELETE_DIRECTORY_SUFFIX) -> str:
        """Rename a log's folder so that it no longer counts as a log, durably; return its new path. Its log must be
        released.

        The owner removes the tree after `file.delete.delay.ms`; the topic may be created again meanwhile."""
        target = f"{self.path}/{marked_directory_name(topic, partition, unique.hex, mark)}"
        self.disk.rename(self.partition_path(topic, partition), target)
        self.disk.sync_directory(self.path)
        return target
