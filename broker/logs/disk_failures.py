"""DiskFailures: take a log directory offline when its device reports an error, at once and without another write to
that directory.

Source: KIP-112, KIP-858.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from kraft.seam import DiskError
from kraft.storage.handles import ColdRead

if TYPE_CHECKING:
    from kraft.broker.logs.lost_replicas import LostReplicas
    from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop

log = structlog.get_logger("kraft.broker.replicas")


class DiskFailures:
    """Takes log directories offline; no other code does this. Only `warmed` is a coroutine."""

    def __init__(
        self,
        loop: Loop,
        directories: LogDirectories,
        lost: LostReplicas,
        *,
        stop_moves: Callable[[HostedDirectory], None],
        report: Callable[[HostedDirectory, DiskError], None],
    ) -> None:
        """`stop_moves` cancels the moves of replicas into or out of a directory. `report` reports the directory to the
        controller, or stops the node."""
        self._loop = loop
        self._directories = directories
        self._lost = lost
        self._stop_moves = stop_moves
        self._report = report

    def disk_failed(self, partition: Partition, error: DiskError) -> None:
        """Handle a device error in one of this partition's files. The log directory that contains the file goes
        offline. After a move, the replica itself may be in another directory."""
        if not partition.is_removed:
            self.disk_failed_at(error, partition.directory)

    def disk_failed_at(self, error: DiskError, suspect: HostedDirectory | None = None) -> None:
        """Handle a device error like `disk_failed`, for a file that belongs to no partition. If the path is in no log
        directory, the directory `suspect` goes offline: an error is ignored only if it is known to be harmless."""
        directory = self._directories.of_path(error.path) or suspect
        if directory is None:
            log.error("disk error outside of the log directories", path=error.path, error=str(error))
        else:
            self.directory_failed(directory, error)

    def directory_failed(self, directory: HostedDirectory, error: DiskError) -> None:
        """Take a log directory and all its replicas offline. No effect if the directory is offline already."""
        if not directory.is_online:
            return
        directory.storage = None
        self._stop_moves(directory)
        self._lost.lose_all(directory)
        self._report(directory, error)
        self._loop.request_pass()

    async def warmed(self, partition: Partition, cold: ColdRead) -> bool:
        """Load the data that the read `cold` needs into memory, so that the log can be read. Return False if the device
        fails; its directory is then offline."""
        try:
            await self._loop.disk.offload(cold.warm)
        except DiskError as error:
            self.disk_failed(partition, error)
            return False
        cold.adopt()
        return True
