"""Syncs by time: every log.flush.scheduler.interval.ms, sync the logs with bytes that are older than their flush.ms.

No request waits for such a sync. It bounds what a loss of power of all replicas at once can take. As in Kafka there is
no scheduler by default: the page cache and the other replicas are trusted. Source: Kafka's LogManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kraft.broker.partition.partition import NEVER

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop


class LogFlusher:
    """`run` is the task; `flush_due` its single round."""

    def __init__(
        self,
        loop: Loop,
        interval_ms: int,
        open_logs: Callable[[], Iterable[Partition]],
        want_full_sync: Callable[[Partition], None],
    ) -> None:
        self._loop = loop
        self._interval_ms = interval_ms
        self._open_logs = open_logs
        self._want_full_sync = want_full_sync
        self._unsynced_since_ms: dict[Partition, int] = {}

    async def run(self) -> None:
        """Flush what is due, until cancelled. Return at once if there is no scheduler."""
        if self._interval_ms >= NEVER:
            return
        while True:
            await self._loop.clock.sleep_ms(self._interval_ms)
            self.flush_due()

    def flush_due(self) -> None:
        """Ask for the sync of each log that has had unsynced bytes for its flush.ms."""
        now_ms = self._loop.clock.monotonic_ms()
        unsynced = [
            partition for partition in self._open_logs() if partition.log is not None and partition.log.unsynced
        ]
        self._unsynced_since_ms = {
            partition: self._unsynced_since_ms.get(partition, now_ms - self._interval_ms) for partition in unsynced
        }
        for partition in unsynced:
            if now_ms - self._unsynced_since_ms[partition] >= partition.config.flush_ms:
                del self._unsynced_since_ms[partition]
                self._want_full_sync(partition)
        self._loop.request_pass()
