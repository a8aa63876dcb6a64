"""The slow timers over all logs: checkpoints, retention, producer expiry, and delayed removal of files.

Invariants: a checkpointed value was true when it was collected, and its directory was online. A segment's log start
moves in memory before its files are renamed, and readers that hold its files continue.
Source: Kafka's LogManager, UnifiedLog, docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from kraft.broker.node.turns import in_steps
from kraft.seam import Disk, DiskError
from kraft.storage.checkpoints import TopicPartition
from kraft.storage.handles import ColdRead

if TYPE_CHECKING:
    from kraft.broker.node.log_directories import HostedDirectory
    from kraft.broker.node.partition import Partition
    from kraft.broker.node.replica_manager import ReplicaManager

log = structlog.get_logger("kraft.broker.logs")

RETENTION_FIRST_MS = 30_000
COLD_TRIES_MAX = 100

Offsets = dict[TopicPartition, int]


class LogMaintenance:
    """Its methods ending in `_forever` are tasks; the others are their single rounds, for tests and shutdown."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        config = manager.config
        self._high_watermark_ms = config.integer("replica.high.watermark.checkpoint.interval.ms")
        self._recovery_ms = config.integer("log.flush.offset.checkpoint.interval.ms")
        self._retention_ms = config.integer("log.retention.check.interval.ms")
        self._producers_ms = config.integer("producer.id.expiration.check.interval.ms")
        self._written: dict[tuple[str, str], dict[tuple[str, int], int]] = {}

    async def high_watermarks_forever(self) -> None:
        while True:
            await self._manager.clock.sleep_ms(self._high_watermark_ms)
            await self.write_high_watermarks()

    async def recovery_points_forever(self) -> None:
        while True:
            await self._manager.clock.sleep_ms(self._recovery_ms)
            await self.write_recovery_points()

    async def retention_forever(self) -> None:
        await self._manager.clock.sleep_ms(min(RETENTION_FIRST_MS, self._retention_ms))
        while True:
            await self.apply_retention()
            await self._manager.clock.sleep_ms(self._retention_ms)

    async def producers_forever(self) -> None:
        while True:
            await self._manager.clock.sleep_ms(self._producers_ms)
            now_ms = self._manager.clock.wall_ms()
            for partition in self._manager.hosted.with_open_logs():
                if partition.log is not None:
                    partition.log.expire_producers(now_ms)

    # checkpoints

    async def write_high_watermarks(self) -> None:
        """replication-offset-checkpoint, of every directory in which a mark has moved."""
        for directory in self._manager.directories.online:
            await self.write_high_watermarks_of(directory)

    async def write_high_watermarks_of(self, directory: HostedDirectory) -> None:
        await self._write(directory, "high watermarks", directory.collect_high_watermarks)

    async def write_recovery_points(self) -> None:
        """The checkpoints of recovery points, index recovery points and log starts."""
        for directory in self._manager.directories.online:
            await self.write_recovery_points_of(directory)
            await self.write_log_starts_of(directory)

    async def write_recovery_points_of(self, directory: HostedDirectory) -> None:
        """Also after a truncation, before the log takes appends again: what is no longer there is no longer clean."""
        await self._write(directory, "recovery points", directory.collect_recovery_points)
        await self._write(directory, "index recovery points", directory.collect_index_recovery_points)
        await self.write_cleaner_offsets_of(directory)

    async def write_cleaner_offsets_of(self, directory: HostedDirectory) -> None:
        await self._write(directory, "cleaner offsets", directory.collect_cleaner_offsets)

    async def write_log_starts_of(self, directory: HostedDirectory) -> None:
        await self._write(directory, "log starts", directory.collect_log_starts)

    async def drop_forgotten(self, directory: HostedDirectory, topic: str, index: int) -> None:
        """Before a log of this name is made here: no checkpoint file has a line of an earlier one any more. After a
        crash the new log would be taken for clean, or for committed, as far as the old one was."""
        if (topic, index) not in directory.forgotten:
            return
        async with directory.forgetting:
            if (topic, index) not in directory.forgotten:
                return
            dropped = set(directory.forgotten)
            await self.write_high_watermarks_of(directory)
            await self.write_recovery_points_of(directory)
            await self.write_log_starts_of(directory)
            directory.forgotten -= dropped

    async def _write(self, directory: HostedDirectory, what: str, collect: Callable[[], Offsets]) -> None:
        """Write a checkpoint if it is behind. When this returns the file says what holds now, also if an older one was
        being written: then it is looked at after that."""
        async with directory.checkpointing:
            storage, offsets = directory.storage, collect()
            if storage is None or self._written.get((directory.path, what)) == offsets:
                return
            writers: dict[str, Callable[[Offsets], None]] = {
                "high watermarks": storage.write_high_watermarks,
                "recovery points": storage.write_recovery_points,
                "index recovery points": storage.write_index_recovery_points,
                "log starts": storage.write_log_starts,
                "cleaner offsets": storage.write_cleaner_offsets,
            }
            try:
                await self._manager.disk.offload(writers[what], offsets)
            except DiskError as error:
                self._manager.directory_failed(directory, error)
                return
            self._written[directory.path, what] = offsets

    # retention

    async def apply_retention(self) -> None:
        """One round over all open logs. Those that were found at start and not needed since are opened for it."""
        for partition in self._manager.hosted.with_open_logs():
            if partition.log is not None:
                async with partition.blocking:  # no truncation, and no replacement by the cleaner, is under way
                    await self._retain(partition)
        async for partition in in_steps(self._manager.hosted):
            if partition.waits_for_log:
                self._manager.open_soon(partition)
        self._manager.request_pass()

    async def _retain(self, partition: Partition) -> None:
        manager = self._manager
        for _ in range(COLD_TRIES_MAX):
            opened = partition.log
            if opened is None:
                return
            now_ms = manager.clock.wall_ms()
            try:
                segments = opened.deletable_segments(now_ms)
                paths = opened.delete_segments(segments, now_ms) if segments else []
            except ColdRead as cold:
                if not await self.warmed(partition, cold):
                    return
                continue
            except DiskError as error:
                manager.disk_failed(partition, error)
                return
            if paths:
                log.info(
                    "segments deleted",
                    topic=partition.topic,
                    partition=partition.index,
                    log_start_offset=opened.log_start_offset,
                )
                partition.segments_changed()
                manager.start_task(self.remove_later, partition.config.file_delete_delay_ms, paths, partition)
            return

    async def warmed(self, partition: Partition, cold: ColdRead) -> bool:
        """Bring into memory what a look at a log needs; False if the device refuses, which ends the directory."""
        try:
            await self._manager.disk.offload(cold.warm)
        except DiskError as error:
            self._manager.disk_failed(partition, error)
            return False
        cold.adopt()
        return True

    async def remove_later(self, delay_ms: int, paths: list[str], partition: Partition | None) -> None:
        """Unlink files, or remove folders, once nobody can need them. What is gone already is no error."""
        await self._manager.clock.sleep_ms(delay_ms)
        try:
            await self._manager.disk.offload(remove_all, self._manager.disk, paths)
        except DiskError as error:
            if partition is not None and not partition.is_removed:
                self._manager.disk_failed(partition, error)
            else:
                log.warning("files could not be removed", error=str(error))


def remove_all(disk: Disk, paths: list[str]) -> None:
    """*Blocking.*"""
    for path in paths:
        if disk.is_directory(path):
            disk.remove_tree(path)
        else:
            disk.unlink(path)
