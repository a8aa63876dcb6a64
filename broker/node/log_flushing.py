"""Syncs by time: every log.flush.scheduler.interval.ms, sync the logs with bytes that are older than their flush.ms.

No request waits for such a sync. It bounds what a loss of power of all replicas at once can take. As in Kafka there is
no scheduler by default: the page cache and the other replicas are trusted. Source: Kafka's LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.node.partition import NEVER

if TYPE_CHECKING:
    from kraft.broker.node.partition import Partition
    from kraft.broker.node.replica_manager import ReplicaManager


class LogFlusher:
    """`run` is the task; `flush_due` its single round."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._interval_ms = manager.config.integer("log.flush.scheduler.interval.ms")
        self._unsynced_since_ms: dict[Partition, int] = {}

    async def run(self) -> None:
        """Until cancelled; returns at once without a scheduler."""
        if self._interval_ms >= NEVER:
            return
        while True:
            await self._manager.clock.sleep_ms(self._interval_ms)
            self.flush_due()

    def flush_due(self) -> None:
        """Ask for the sync of each log that has had unsynced bytes for its flush.ms."""
        now_ms = self._manager.clock.monotonic_ms()
        unsynced = [
            partition
            for partition in self._manager.with_open_logs()
            if partition.log is not None and partition.log.unsynced
        ]
        self._unsynced_since_ms = {
            partition: self._unsynced_since_ms.get(partition, now_ms - self._interval_ms) for partition in unsynced
        }
        for partition in unsynced:
            if now_ms - self._unsynced_since_ms[partition] >= partition.config.flush_ms:
                del self._unsynced_since_ms[partition]
                self._manager.want_full_sync(partition)
        self._manager.request_pass()
