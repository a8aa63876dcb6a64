"""`docs/metrics.md`: each metric of a node."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.broker.serving.metrics.metric_registry import MetricKind, MetricName
from kraft.broker.serving.metrics.naming import SUFFIXES
from kraft.broker.serving.metrics.table import TABLE, MetricRow, MetricScope

_HEAD = """# Metrics

Names are Kafka's. A metric `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec` is shown as
`kafka_server_brokertopicmetrics_bytesinpersec_total`: group, type and name, joined in lower case, as Strimzi's metrics
reporter writes them. A name and its kind never change while a node runs.

- A *counter* only rises; the rate is `rate(…_total[1m])`. Names that end in `PerSec` are counters.
- A *histogram* has `…_count`, `…_sum` and percentiles: `…{quantile="0.99"}`, with 0.50, 0.75, 0.95, 0.98, 0.99 and
  0.999. A percentile is of the newest 512 values.
- An *info* metric has a text as a label, and is always 1.
- A metric *per partition* is shown only on request, for there may be very many.

The times of a request (`RequestMetrics`) are taken of every request while there are few, and of about 200 a second
while there are many. Counts and sums are scaled to all requests.

Not there, for the features are not: metrics of delegation tokens, SASL authentication, client quotas, conversion of old
record formats, tiered storage and client telemetry. A node has no JVM, so it has no `java_lang` metrics. Lag of
consumer groups needs the ends of logs that other brokers lead: `kraft groups` shows it.

This page is generated: `make docs`.
"""
_WHERE = {
    MetricScope.BROKER: "brokers",
    MetricScope.CONTROLLER: "controllers",
    MetricScope.BOTH: "all nodes",
    MetricScope.PROCESS: "processes",
}
_KINDS = {
    MetricKind.COUNTER: "counter",
    MetricKind.GAUGE: "gauge",
    MetricKind.HISTOGRAM: "histogram",
    MetricKind.INFO: "info",
}


def render_metrics() -> str:
    """Render the page."""
    groups: dict[tuple[str, str], list[MetricRow]] = {}
    for row in TABLE:
        groups.setdefault((row.group, row.type), []).append(row)
    return "\n".join([_HEAD, *("\n".join(_chapter(*key, rows)) for key, rows in groups.items())])


def _chapter(group: str, type: str, rows: list[MetricRow]) -> Iterator[str]:
    yield f"## {group}: {type}\n"
    yield "| metric | kind | labels | meaning | where |"
    yield "|---|---|---|---|---|"
    for row in rows:
        name = MetricName(*row.key).prometheus + SUFFIXES.get(row.kind.value, "")
        labels = ", ".join(f"`{label}`" for label in row.labels)
        kind = _KINDS[row.kind] + (", per partition" if row.is_on_demand else "")
        yield f"| `{name}` | {kind} | {labels} | {row.meaning} | {_WHERE[row.where]} |"
    yield ""
