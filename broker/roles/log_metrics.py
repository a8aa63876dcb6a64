"""The metrics of logs and log directories. Source: Kafka's LogManager, UnifiedLog, LogSegment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.metric_registry import Labelled, MetricKind, Metrics

if TYPE_CHECKING:
    from kraft.broker.partition.log_directories import LogDirectories
    from kraft.broker.partition.partition import Partition
    from kraft.seam.measures import Histogram
    from kraft.storage.log import Log

GROUP = "kafka.log"
MANAGER = "LogManager"


def register_log_metrics(
    metrics: Metrics,
    directories: LogDirectories,
    *,
    open_logs: Callable[[], Iterable[Partition]],
    waiting_logs: Callable[[], Counter[str]],
    flush_ms: Histogram,
) -> None:
    """Register the metrics of logs and log directories. `waiting_logs()` returns the number of logs that wait to be
    opened, by log directory."""

    def offline() -> Labelled:
        return [({"logDirectory": one.path}, float(not one.is_online)) for one in directories.all]

    def to_open() -> Labelled:
        waiting = waiting_logs()
        return [({"dir": one.path}, waiting[one.path]) for one in directories.all]

    metrics.gauge(GROUP, MANAGER, "OfflineLogDirectoryCount", lambda: len(directories.all) - len(directories.online))
    metrics.enumerate(GROUP, MANAGER, "LogDirectoryOffline", MetricKind.GAUGE, offline)
    metrics.enumerate(GROUP, MANAGER, "remainingLogsToRecover", MetricKind.GAUGE, to_open)
    metrics.expose(GROUP, "LogFlushStats", "LogFlushRateAndTimeMs", flush_ms)
    _register_log(metrics, open_logs, "Size", lambda log: log.size_bytes)
    _register_log(metrics, open_logs, "LogStartOffset", lambda log: log.log_start_offset)
    _register_log(metrics, open_logs, "LogEndOffset", lambda log: log.log_end_offset)
    _register_log(metrics, open_logs, "NumLogSegments", lambda log: len(log.segments))


def _register_log(
    metrics: Metrics, open_logs: Callable[[], Iterable[Partition]], name: str, value: Callable[[Log], float]
) -> None:
    """Register one metric of each open log. A log that was not used since the start is not open and has no metric."""

    def read() -> Labelled:
        for partition in open_logs():
            if partition.log is not None:
                yield {"topic": partition.topic, "partition": str(partition.index)}, value(partition.log)

    metrics.enumerate(GROUP, "Log", name, MetricKind.GAUGE, read, is_on_demand=True)
