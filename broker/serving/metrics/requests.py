"""RequestMetrics: the metrics of the requests that the listeners of this node served. Source: Kafka's
RequestMetrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.metric_registry import Labelled, MetricKind, Metrics
from kraft.wire.request_meter import PARTS

if TYPE_CHECKING:
    from kraft.wire.request_meter import RequestMeter

GROUP = "kafka.network"
TYPE = "RequestMetrics"
SERVER, SOCKETS = "kafka.server", "socket-server-metrics"
SOFTWARE_MAX = 64
"""Maximum number of client software names in metrics. There is a limit because clients choose the names; all further
names are counted as OTHER."""
OTHER = "other"


def register_request_metrics(meter: RequestMeter, metrics: Metrics) -> None:
    """Register the metrics of requests. Called once, before the node serves."""

    def requests() -> Labelled:
        return [({"request": name, "version": str(version)}, count) for name, version, count in meter.request_counts()]

    def errors() -> Labelled:
        return [({"request": name, "error": error}, count) for name, error, count in meter.error_counts()]

    register_connections(meter, metrics)
    metrics.enumerate(GROUP, TYPE, "RequestsPerSec", MetricKind.COUNTER, requests)
    metrics.enumerate(GROUP, TYPE, "ErrorsPerSec", MetricKind.COUNTER, errors)
    for place, part in enumerate(PARTS):
        _register_part(meter, metrics, place, part)


def register_connections(meter: RequestMeter, metrics: Metrics) -> None:
    """Register the number of open connections and of requests that wait on them."""
    open_ones, channel = meter.connections, "RequestChannel"

    def by_listener(counts: Mapping[str, int]) -> Labelled:
        return [({"listener": listener}, count) for listener, count in counts.items()]

    def software() -> Labelled:
        counts = Counter((one.transport.listener, *one.client_software) for one in open_ones)
        shown = Counter(dict(counts.most_common(SOFTWARE_MAX)))
        for (listener, _, _), count in (counts - shown).items():
            shown[listener, OTHER, OTHER] += count
        for (listener, name, version), count in shown.items():
            yield {"listener": listener, "clientSoftwareName": name, "clientSoftwareVersion": version}, count

    def open_by_listener() -> Labelled:
        return by_listener(Counter(one.transport.listener for one in open_ones))

    metrics.enumerate(SERVER, SOCKETS, "connection-count", MetricKind.GAUGE, open_by_listener)
    metrics.enumerate(SERVER, SOCKETS, "connections", MetricKind.GAUGE, software)
    metrics.enumerate(
        SERVER, SOCKETS, "connection-creation-total", MetricKind.GAUGE, lambda: by_listener(meter.accepted)
    )
    metrics.enumerate(SERVER, SOCKETS, "connection-close-total", MetricKind.GAUGE, lambda: by_listener(meter.closed))
    metrics.gauge(GROUP, channel, "RequestQueueSize", lambda: sum(one.has_unhandled_requests for one in open_ones))
    metrics.gauge(GROUP, channel, "ResponseQueueSize", lambda: sum(one.in_flight for one in open_ones))


def _register_part(meter: RequestMeter, metrics: Metrics, place: int, part: str) -> None:
    def histograms() -> Labelled:
        return [({"request": name}, times[place]) for name, times in meter.times.items()]

    metrics.enumerate(GROUP, TYPE, part, MetricKind.HISTOGRAM, histograms)
