"""DiskFailures: what a refusal of the device costs. The log directory in which it happened goes offline, at once and
without another write.

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
    """The one place where directories go offline. All plain calls but `warmed`."""

    def __init__(
        self,
        loop: Loop,
        directories: LogDirectories,
        lost: LostReplicas,
        *,
        stop_moves: Callable[[HostedDirectory], None],
        report: Callable[[HostedDirectory, DiskError], None],
    ) -> None:
        """`stop_moves` gives up the moves of replicas into or out of a directory; `report` reports it to the
        controller, or stops the node."""
        self._loop = loop
        self._directories = directories
        self._lost = lost
        self._stop_moves = stop_moves
        self._report = report

    def disk_failed(self, partition: Partition, error: DiskError) -> None:
        """The device refused in one of this partition's files: the directory of the file goes offline, which need not
        be the one where the replica is by now."""
        if not partition.is_removed:
            self.disk_failed_at(error, partition.directory)

    def disk_failed_at(self, error: DiskError, suspect: HostedDirectory | None = None) -> None:
        """As `disk_failed`, for files of no partition. `suspect` goes offline if the path lies in no log directory: an
        error that is not known to be harmless is not passed over."""
        directory = self._directories.of_path(error.path) or suspect
        if directory is None:
            log.error("disk error outside of the log directories", path=error.path, error=str(error))
        else:
            self.directory_failed(directory, error)

    def directory_failed(self, directory: HostedDirectory, error: DiskError) -> None:
        """Take a log directory and all its replicas offline. No effect if it is."""
        if not directory.is_online:
            return
        directory.storage = None
        self._stop_moves(directory)
        self._lost.lose_all(directory)
        self._report(directory, error)
        self._loop.request_pass()

    async def warmed(self, partition: Partition, cold: ColdRead) -> bool:
        """Bring into memory what a look at a log needs. False if the device refuses, which takes the directory
        offline."""
        try:
            await self._loop.disk.offload(cold.warm)
        except DiskError as error:
            self.disk_failed(partition, error)
            return False
        cold.adopt()
        return True
