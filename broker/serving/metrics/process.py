"""The metrics of the process: the metrics of prometheus-client's process collector, which dashboards read, and Kafka's
two disk metrics. Only a node that runs as its own process has them; a simulated node has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraft.broker.serving.metrics.metric_registry import Metrics


def register_process_metrics(usage: Mapping[str, Callable[[], float]], metrics: Metrics) -> None:
    """Register the metrics of the process. `usage` maps each name to a function that returns its current value, as
    `kraft.runtime.process.USAGE` does."""
    metrics.counter("process", "cpu", "seconds", usage["cpu_seconds"])
    metrics.gauge("process", "virtual", "memory_bytes", usage["virtual_memory_bytes"])
    metrics.gauge("process", "resident", "memory_bytes", usage["resident_memory_bytes"])
    metrics.gauge("process", "start", "time_seconds", usage["start_time_seconds"])
    metrics.gauge("process", "open", "fds", usage["open_fds"])
    metrics.gauge("process", "max", "fds", usage["max_fds"])
    metrics.gauge("kafka.server", "KafkaServer", "linux-disk-read-bytes", usage["disk_read_bytes"])
    metrics.gauge("kafka.server", "KafkaServer", "linux-disk-write-bytes", usage["disk_write_bytes"])
