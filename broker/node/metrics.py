"""One registry of metrics with Kafka's names, filled by the drivers, exported on demand.

The hot path adds to plain attributes (`meter.count += 1`); nothing is computed until somebody collects. A metric's name
is Kafka's MBean in three parts: group (`kafka.server`), type (`BrokerTopicMetrics`) and name (`MessagesInPerSec`), and
its tags. The Prometheus form joins them in lower case, as the usual JMX exporter rules do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

SAMPLES_KEPT = 1024


class MetricName(NamedTuple):
    """Kafka's MBean name in parts. `tags` are sorted pairs."""

    group: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def prometheus(self) -> str:
        return f"{self.group}_{self.type}_{self.name}".replace(".", "_").replace("-", "_").lower()

    @property
    def mbean(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags)
        return f"{self.group}:type={self.type},name={self.name}{tags}"


class Meter:
    """Counts events; Kafka's `…PerSec` meters. Whoever reads takes the rate from two readings of `count`."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def mark(self, amount: int = 1) -> None:
        self.count += amount


class Histogram:
    """Sum, count, largest, and the last SAMPLES_KEPT values in a ring for percentiles."""

    __slots__ = ("count", "largest", "samples", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.largest = 0.0
        self.samples: list[float] = []

    def update(self, value: float) -> None:
        if self.count < SAMPLES_KEPT:
            self.samples.append(value)
        else:
            self.samples[self.count % SAMPLES_KEPT] = value
        self.count += 1
        self.total += value
        if value > self.largest:
            self.largest = value

    def percentile(self, share: float) -> float:
        """The value below which `share` (0 to 1) of the kept samples lie; 0 if there are none."""
        if not self.samples:
            return 0.0
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


Gauge = Callable[[], float]


class Metrics:
    """The registry of one node. Asking for a name twice gives the same object; a gauge's newest function wins."""

    def __init__(self) -> None:
        self._meters: dict[MetricName, Meter] = {}
        self._histograms: dict[MetricName, Histogram] = {}
        self._gauges: dict[MetricName, Gauge] = {}

    def meter(self, group: str, type: str, name: str, **tags: str) -> Meter:
        return self._meters.setdefault(_name(group, type, name, tags), Meter())

    def histogram(self, group: str, type: str, name: str, **tags: str) -> Histogram:
        return self._histograms.setdefault(_name(group, type, name, tags), Histogram())

    def gauge(self, group: str, type: str, name: str, function: Gauge, **tags: str) -> None:
        self._gauges[_name(group, type, name, tags)] = function

    def remove(self, *, tag: str, value: str) -> None:
        """Forget every metric that carries this tag with this value (a topic was deleted)."""
        tables: tuple[dict[MetricName, Any], ...] = (self._meters, self._histograms, self._gauges)
        for table in tables:
            for name in [name for name in table if (tag, value) in name.tags]:
                del table[name]

    def readings(self) -> Iterator[tuple[MetricName, float]]:
        """Every metric's present value: counts, gauges, and a histogram's mean, maximum and percentiles as
        separate names with Kafka's attribute as a suffix tag."""
        for name, meter in self._meters.items():
            yield name, meter.count
        for name, gauge in self._gauges.items():
            yield name, gauge()
        for name, histogram in self._histograms.items():
            yield _attribute(name, "Count"), histogram.count
            yield _attribute(name, "Mean"), histogram.total / histogram.count if histogram.count else 0.0
            yield _attribute(name, "Max"), histogram.largest
            yield _attribute(name, "50thPercentile"), histogram.percentile(0.50)
            yield _attribute(name, "99thPercentile"), histogram.percentile(0.99)

    def value(self, group: str, type: str, name: str, **tags: str) -> float | None:
        """The present value of a meter or gauge; None if there is none of this name."""
        key = _name(group, type, name, tags)
        if key in self._meters:
            return self._meters[key].count
        return self._gauges[key]() if key in self._gauges else None

    def collect(self) -> Iterator[Metric]:
        """prometheus-client's collector interface."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        families: dict[str, Any] = {}
        for name, meter in self._meters.items():
            counter = families.setdefault(
                name.prometheus, CounterMetricFamily(name.prometheus, name.mbean, labels=[t[0] for t in name.tags])
            )
            counter.add_metric([t[1] for t in name.tags], meter.count)
        for name, gauge in self._gauges.items():
            family = families.setdefault(
                name.prometheus, GaugeMetricFamily(name.prometheus, name.mbean, labels=[t[0] for t in name.tags])
            )
            family.add_metric([t[1] for t in name.tags], gauge())
        for name, histogram in self._histograms.items():
            summary = families.setdefault(
                name.prometheus, SummaryMetricFamily(name.prometheus, name.mbean, labels=[t[0] for t in name.tags])
            )
            summary.add_metric([t[1] for t in name.tags], histogram.count, histogram.total)
        yield from families.values()

    def registry(self) -> CollectorRegistry:
        """A prometheus-client registry with this one as its only collector."""
        from prometheus_client.registry import CollectorRegistry

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry

    def exposition(self) -> bytes:
        """The text that a Prometheus server scrapes."""
        from prometheus_client.exposition import generate_latest

        return generate_latest(self.registry())


def _name(group: str, type: str, name: str, tags: dict[str, str]) -> MetricName:
    return MetricName(group, type, name, tuple(sorted(tags.items())))


def _attribute(name: MetricName, attribute: str) -> MetricName:
    return name._replace(tags=(*name.tags, ("attribute", attribute)))
