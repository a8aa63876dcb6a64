"""The gauges of the log cleaner, under Kafka's names. Source: Kafka's LogCleaner and LogCleanerManager."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.metric_registry import Metrics

if TYPE_CHECKING:
    from kraft.broker.logs.cleaning.log_cleaner import CleanerState, LastRound
    from kraft.broker.partition.log_directories import HostedDirectory
    from kraft.seam import Clock

GROUP = "kafka.log"
CLEANER = "LogCleaner"
MANAGER = "LogCleanerManager"


def register_cleaner_metrics(
    metrics: Metrics, state: CleanerState, directories: Iterable[HostedDirectory], clock: Clock
) -> None:
    """Register the gauges of the log cleaner."""

    def of_rounds(name: str, value: Callable[[LastRound], float]) -> None:
        metrics.gauge(GROUP, CLEANER, name, lambda: int(max(map(value, state.last_rounds.values()), default=0)))

    of_rounds("max-buffer-utilization-percent", lambda last: 100 * last.stats.map_utilization)
    of_rounds("max-clean-time-secs", lambda last: last.took_ms / 1000)
    metrics.gauge(GROUP, CLEANER, "cleaner-recopy-percent", lambda: _recopied_percent(state))
    metrics.gauge(GROUP, CLEANER, "max-compaction-delay-secs", lambda: state.compaction_delay_ms_max // 1000)
    metrics.gauge(GROUP, CLEANER, "DeadThreadCount", lambda: 0)  # always 0: a worker that fails stops the node
    metrics.gauge(GROUP, MANAGER, "max-dirty-percent", lambda: int(100 * state.dirty_ratio_max))
    metrics.gauge(GROUP, MANAGER, "time-since-last-run-ms", lambda: clock.monotonic_ms() - state.last_run_ms)
    for directory in directories:
        tags = {"logDirectory": directory.path}
        metrics.gauge(GROUP, MANAGER, "uncleanable-partitions-count", _partitions(state, directory), **tags)
        metrics.gauge(GROUP, MANAGER, "uncleanable-bytes", _bytes(state, directory), **tags)


def _recopied_percent(state: CleanerState) -> int:
    stats = [last.stats for last in state.last_rounds.values()]
    return 100 * sum(one.bytes_written for one in stats) // max(sum(one.bytes_read for one in stats), 1)


def _partitions(state: CleanerState, directory: HostedDirectory) -> Callable[[], float]:
    return lambda: sum(partition.directory is directory for partition in state.uncleanable)


def _bytes(state: CleanerState, directory: HostedDirectory) -> Callable[[], float]:
    return lambda: sum(size for partition, size in state.uncleanable.items() if partition.directory is directory)
