"""RequestMetrics: what the listeners of this node served. Source: Kafka's RequestMetrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.node.metrics import Kind, Labelled, Metrics
from kraft.wire.request_meter import PARTS

if TYPE_CHECKING:
    from kraft.wire.request_meter import RequestMeter

GROUP = "kafka.network"
TYPE = "RequestMetrics"


def register_request_metrics(meter: RequestMeter, metrics: Metrics) -> None:
    """Register them once, before the node serves."""

    def requests() -> Labelled:
        return [({"request": name, "version": str(version)}, count) for name, version, count in meter.request_counts()]

    def errors() -> Labelled:
        return [({"request": name, "error": error}, count) for name, error, count in meter.error_counts()]

    metrics.enumerate(GROUP, TYPE, "RequestsPerSec", Kind.COUNTER, requests)
    metrics.enumerate(GROUP, TYPE, "ErrorsPerSec", Kind.COUNTER, errors)
    for place, part in enumerate(PARTS):
        _register_part(meter, metrics, place, part)


def _register_part(meter: RequestMeter, metrics: Metrics, place: int, part: str) -> None:
    def histograms() -> Labelled:
        return [({"request": name}, times[place]) for name, times in meter.times.items()]

    metrics.enumerate(GROUP, TYPE, part, Kind.HISTOGRAM, histograms)
