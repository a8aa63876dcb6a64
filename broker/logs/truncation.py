"""LogTruncator: truncate a follower's log to the offset up to which it agrees with the leader's log.

Invariant: after a truncation, the recovery point is checkpointed before anything is appended again, and so is the log
start offset if it changed. Source: KIP-101, KIP-320.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.broker.partition.partition_following import note_truncated
from kraft.seam import DiskError, StorageCorrupt

if TYPE_CHECKING:
    from kraft.broker.logs.checkpoint_writing import CheckpointWriter
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop


class LogTruncator:
    """Truncates the logs of partitions, at most one call per partition at a time."""

    def __init__(
        self,
        loop: Loop,
        checkpoints: CheckpointWriter,
        *,
        damaged: Callable[[Partition, StorageCorrupt], None],
        disk_failed: Callable[[Partition, DiskError], None],
    ) -> None:
        self._loop = loop
        self._checkpoints = checkpoints
        self._damaged = damaged
        self._disk_failed = disk_failed

    async def truncate(self, partition: Partition, offset: int, *, fully: bool) -> bool:
        """Truncate the log at `offset`; with `fully`, remove all records and start an empty log at `offset`. Return
        False if the log cannot be used afterwards: the device failed, the log is damaged, or it was closed meanwhile.
        """
        async with partition.blocking:
            opened = partition.log
            if opened is None:
                return False
            now_ms, start = self._loop.clock.wall_ms(), opened.log_start_offset
            try:
                await self._loop.disk.offload(opened.truncate_fully if fully else opened.truncate_to, offset, now_ms)
            except DiskError as error:
                self._disk_failed(partition, error)
                return False
            except StorageCorrupt as error:
                self._damaged(partition, error)
                return False
            if partition.log is not opened:
                return False  # the replica was removed, or its directory failed, during the truncation
            note_truncated(partition)
            directory = partition.directory
            if directory is not None and directory.is_online:
                await self._checkpoints.write_recovery_points_of(directory)
                if opened.log_start_offset != start:
                    await self._checkpoints.write_log_starts_of(directory)
        return True
