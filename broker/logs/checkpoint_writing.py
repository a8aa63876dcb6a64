"""CheckpointWriter: write the offset checkpoints of the log directories, by timer and where an ordering rule demands
it.

Invariant: the content of a checkpoint was true when it was collected, and its directory was online then.
Source: Kafka's OffsetCheckpointFile, LogManager, docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.seam import DiskError
from kraft.storage.checkpoints import TopicPartition

if TYPE_CHECKING:
    from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories
    from kraft.broker.serving.loop import Loop

Offsets = dict[TopicPartition, int]


class CheckpointWriter:
    """Writes the checkpoint files. Methods whose names end in `_forever` run as tasks. When any other method returns,
    the files are at least as new as the values at the time of its call."""

    def __init__(
        self,
        loop: Loop,
        directories: LogDirectories,
        directory_failed: Callable[[HostedDirectory, DiskError], None],
    ) -> None:
        self._loop = loop
        self._directories = directories
        self._directory_failed = directory_failed
        self._written: dict[tuple[str, str], Offsets] = {}

    async def high_watermarks_forever(self, interval_ms: int) -> None:
        while True:
            await self._loop.clock.sleep_ms(interval_ms)
            await self.write_high_watermarks()

    async def recovery_points_forever(self, interval_ms: int) -> None:
        while True:
            await self._loop.clock.sleep_ms(interval_ms)
            await self.write_recovery_points()

    async def write_high_watermarks(self) -> None:
        """Write the file replication-offset-checkpoint of every directory in which a high watermark has moved."""
        for directory in self._directories.online:
            await self.write_high_watermarks_of(directory)

    async def write_high_watermarks_of(self, directory: HostedDirectory) -> None:
        await self._write(directory, "high watermarks", directory.collect_high_watermarks)

    async def write_recovery_points(self) -> None:
        """Write the checkpoints of recovery points, index recovery points and log start offsets."""
        for directory in self._directories.online:
            await self.write_recovery_points_of(directory)
            await self.write_log_starts_of(directory)

    async def write_recovery_points_of(self, directory: HostedDirectory) -> None:
        """Write the recovery point checkpoints of one directory. Called after a truncation, before the log accepts
        appends again, because the truncated bytes must no longer count as synced."""
        await self._write(directory, "recovery points", directory.collect_recovery_points)
        await self._write(directory, "index recovery points", directory.collect_index_recovery_points)
        await self.write_cleaner_offsets_of(directory)

    async def write_cleaner_offsets_of(self, directory: HostedDirectory) -> None:
        await self._write(directory, "cleaner offsets", directory.collect_cleaner_offsets)

    async def write_log_starts_of(self, directory: HostedDirectory) -> None:
        await self._write(directory, "log starts", directory.collect_log_starts)

    async def drop_forgotten(self, directory: HostedDirectory, topic: str, index: int) -> None:
        """Remove the lines of an earlier log of this name from the checkpoint files, before a new log is created.
        Otherwise, after a crash, the new log would count as synced or committed up to the offsets of the earlier log.
        """
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
        """Write a checkpoint if it is out of date. If an older version is being written, wait for that write and then
        check again."""
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
                await self._loop.disk.offload(writers[what], offsets)
            except DiskError as error:
                self._directory_failed(directory, error)
                return
            self._written[directory.path, what] = offsets
