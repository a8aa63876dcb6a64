"""The metrics of logs and log directories. Source: Kafka's LogManager, UnifiedLog, LogSegment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.broker.node.metrics import Kind, Labelled, Metrics

if TYPE_CHECKING:
    from kraft.broker.node.replica_manager import ReplicaManager
    from kraft.storage.log import Log

GROUP = "kafka.log"
MANAGER = "LogManager"


def register_log_metrics(manager: ReplicaManager, metrics: Metrics) -> None:
    """Register them once, when the manager is made."""
    directories = manager.directories

    def offline() -> Labelled:
        return [({"logDirectory": one.path}, float(not one.is_online)) for one in directories.all]

    def to_open() -> Labelled:
        waiting = manager.opener.waiting()
        return [({"dir": one.path}, waiting[one.path]) for one in directories.all]

    metrics.gauge(GROUP, MANAGER, "OfflineLogDirectoryCount", lambda: len(directories.all) - len(directories.online))
    metrics.enumerate(GROUP, MANAGER, "LogDirectoryOffline", Kind.GAUGE, offline)
    metrics.enumerate(GROUP, MANAGER, "remainingLogsToRecover", Kind.GAUGE, to_open)
    metrics.expose(GROUP, "LogFlushStats", "LogFlushRateAndTimeMs", manager.syncer.flush_ms)
    _register_log(manager, metrics, "Size", lambda log: log.size_bytes)
    _register_log(manager, metrics, "LogStartOffset", lambda log: log.log_start_offset)
    _register_log(manager, metrics, "LogEndOffset", lambda log: log.log_end_offset)
    _register_log(manager, metrics, "NumLogSegments", lambda log: len(log.segments))


def _register_log(manager: ReplicaManager, metrics: Metrics, name: str, value: Callable[[Log], float]) -> None:
    """Of each log that is open: one that nobody has used since the start is not looked at."""

    def read() -> Labelled:
        for partition in manager.hosted.with_open_logs():
            if partition.log is not None:
                yield {"topic": partition.topic, "partition": str(partition.index)}, value(partition.log)

    metrics.enumerate(GROUP, "Log", name, Kind.GAUGE, read, is_on_demand=True)
