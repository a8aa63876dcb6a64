"""FileRemoval: remove files and folders after a delay, so that readers with open handles can finish."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from kraft.seam import Disk, DiskError

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop

log = structlog.get_logger("kraft.broker.logs")


class FileRemoval:
    """Removes files and folders. `remove_after` suspends until they are removed; `remove_later` does not suspend."""

    def __init__(self, loop: Loop, disk_failed: Callable[[Partition, DiskError], None]) -> None:
        self._loop = loop
        self._disk_failed = disk_failed

    def remove_later(self, delay_ms: int, paths: list[str], partition: Partition | None = None) -> None:
        """Call `remove_after` in the background."""
        self._loop.start_task(self.remove_after, delay_ms, paths, partition)

    async def remove_after(self, delay_ms: int, paths: list[str], partition: Partition | None = None) -> None:
        """Wait until no reader can need the files or folders any more, then remove them. Missing files are not an
        error. An error of the device is reported for `partition`, the owner of the files; without an owner it is
        logged."""
        await self._loop.clock.sleep_ms(delay_ms)
        try:
            await self._loop.disk.offload(remove_all, self._loop.disk, paths)
        except DiskError as error:
            if partition is not None and not partition.is_removed:
                self._disk_failed(partition, error)
            else:
                log.warning("files could not be removed", error=str(error))


def remove_all(disk: Disk, paths: list[str]) -> None:
    """Remove all these files or folders. *Blocking.*"""
    for path in paths:
        if disk.is_directory(path):
            disk.remove_tree(path)
        else:
            disk.unlink(path)
