"""Open the log directories when a broker starts, and close them when it stops.

Invariant: the clean-shutdown file is written last, and only if every log that was opened in this incarnation is closed.
Source: KIP-966, Kafka's LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kraft.broker.partition.log_directories import NO_BROKER_EPOCH
from kraft.broker.serving.turns import in_steps
from kraft.seam import Disk, DiskError

if TYPE_CHECKING:
    from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories

log = structlog.get_logger("kraft.broker.replicas")


async def open_directories(disk: Disk, directories: LogDirectories, cluster_id: str) -> None:
    """Open every directory; a directory with a failing device goes offline. Raises DirectoryInUse, ForeignDirectory,
    and DiskError if no directory is online."""
    failed = await disk.offload(directories.open, cluster_id)
    for directory, error in failed:
        log.error("log directory is offline", directory=directory.path, error=str(error))
    if not directories.online:
        raise failed[0][1]


async def close_directories(disk: Disk, directories: LogDirectories, broker_epoch: int, *, clean: bool) -> None:
    """Close the directories that are online and release their locks.

    With `clean` False, no log was opened. If this incarnation was never registered either, put back the clean-shutdown
    file of the previous incarnation."""
    for directory in directories.online:
        if clean:
            await _close_directory(disk, directory, broker_epoch)
        elif broker_epoch == NO_BROKER_EPOCH:
            await disk.offload(directory.leave_as_found)
        if directory.storage is not None:
            directory.storage.close()


async def _close_directory(disk: Disk, directory: HostedDirectory, broker_epoch: int) -> None:
    """Sync and close all logs, write the checkpoints, then the clean-shutdown file with this broker epoch. An error of
    the device is only logged."""
    storage = directory.storage
    assert storage is not None
    closed_all = True
    async for partition in in_steps(directory.partitions):
        closed_all = closed_all and (
            partition.log is not None or partition.is_unwritten or (directory.is_clean and not partition.was_open)
        )
    logs = [partition.log for partition in directory.open_logs if partition.log is not None]

    def close_logs() -> None:
        for opened in logs:
            opened.close(clean=True)

    def write_end() -> None:
        storage.write_high_watermarks(directory.collect_high_watermarks())
        storage.write_recovery_points(directory.collect_recovery_points())
        storage.write_index_recovery_points(directory.collect_index_recovery_points())
        storage.write_log_starts(directory.collect_log_starts())
        storage.write_cleaner_offsets(directory.collect_cleaner_offsets())
        if closed_all:
            storage.write_clean_shutdown(broker_epoch)

    try:
        await disk.offload(close_logs)
        await disk.offload(write_end)
    except DiskError as error:
        log.error("log directory was not closed cleanly", directory=directory.path, error=str(error))
