"""LogMaintenance: periodic work on all open logs, for retention and for the expiry of producers.

Invariant: the log start offset moves in memory before the files of removed segments are renamed. Readers that hold
these files open can continue to read them.
Source: Kafka's LogManager, UnifiedLog, docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from kraft.broker.serving.turns import in_steps
from kraft.seam import DiskError
from kraft.storage.handles import ColdRead

if TYPE_CHECKING:
    from kraft.broker.logs.disk_failures import DiskFailures
    from kraft.broker.logs.file_removal import FileRemoval
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.replica_index import ReplicaIndex
    from kraft.broker.serving.loop import Loop

log = structlog.get_logger("kraft.broker.logs")

RETENTION_FIRST_MS = 30_000
COLD_TRIES_MAX = 100


class LogMaintenance:
    """Runs the periodic work. Methods whose names end in `_forever` run as tasks; `apply_retention` is one round."""

    def __init__(
        self,
        loop: Loop,
        hosted: ReplicaIndex,
        failures: DiskFailures,
        removal: FileRemoval,
        open_soon: Callable[[Partition], None],
    ) -> None:
        self._loop = loop
        self._hosted = hosted
        self._failures = failures
        self._removal = removal
        self._open_soon = open_soon

    async def retention_forever(self, interval_ms: int) -> None:
        await self._loop.clock.sleep_ms(min(RETENTION_FIRST_MS, interval_ms))
        while True:
            await self.apply_retention()
            await self._loop.clock.sleep_ms(interval_ms)

    async def producers_forever(self, interval_ms: int) -> None:
        while True:
            await self._loop.clock.sleep_ms(interval_ms)
            now_ms = self._loop.clock.wall_ms()
            for partition in self._hosted.with_open_logs():
                if partition.log is not None:
                    partition.log.expire_producers(now_ms)

    async def apply_retention(self) -> None:
        """Apply retention once to all logs. Logs that were found at start and have not been opened since are opened for
        this."""
        for partition in self._hosted.with_open_logs():
            if partition.log is not None:
                async with partition.blocking:  # no truncation and no segment replacement by the cleaner is in progress
                    await self._retain(partition)
        async for partition in in_steps(self._hosted):
            if partition.waits_for_log:
                self._open_soon(partition)
        self._loop.request_pass()

    async def _retain(self, partition: Partition) -> None:
        for _ in range(COLD_TRIES_MAX):
            opened = partition.log
            if opened is None:
                return
            now_ms = self._loop.clock.wall_ms()
            try:
                segments = opened.deletable_segments(now_ms)
                paths = opened.delete_segments(segments, now_ms) if segments else []
            except ColdRead as cold:
                if not await self._failures.warmed(partition, cold):
                    return
                continue
            except DiskError as error:
                self._failures.disk_failed(partition, error)
                return
            if paths:
                log.info(
                    "segments deleted",
                    topic=partition.topic,
                    partition=partition.index,
                    log_start_offset=opened.log_start_offset,
                )
                partition.segments_changed()
                self._removal.remove_later(partition.config.file_delete_delay_ms, paths, partition)
            return
