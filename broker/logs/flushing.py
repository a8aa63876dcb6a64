"""LogFlusher: every log.flush.scheduler.interval.ms, sync the logs that have had unsynced bytes for longer than their
flush.ms.

No request waits for such a sync. It limits how many records are lost when all replicas lose power at once. As in Kafka,
no scheduler runs by default, because the page cache and the other replicas are trusted. Source: Kafka's LogManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kraft.broker.partition.partition import NEVER

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop


class LogFlusher:
    """Requests syncs periodically. `run` is the task; `flush_due` is one round of it."""

    def __init__(
        self,
        loop: Loop,
        interval_ms: int,
        open_logs: Callable[[], Iterable[Partition]],
        request_full_sync: Callable[[Partition], None],
    ) -> None:
        self._loop = loop
        self._interval_ms = interval_ms
        self._open_logs = open_logs
        self._want_full_sync = request_full_sync
        self._unsynced_since_ms: dict[Partition, int] = {}

    async def run(self) -> None:
        """Sync logs when their flush.ms has passed, until cancelled. Return at once if no scheduler is configured."""
        if self._interval_ms >= NEVER:
            return
        while True:
            await self._loop.clock.sleep_ms(self._interval_ms)
            self.flush_due()

    def flush_due(self) -> None:
        """Request a sync of each log that has had unsynced bytes for its flush.ms."""
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
