"""One registry of metrics with Kafka's names, filled by the drivers, exported on demand.

The hot path adds to plain attributes (`meter.count += 1`); nothing is computed until somebody collects. A metric's name
is Kafka's MBean in three parts: group (`kafka.server`), type (`BrokerTopicMetrics`) and name (`MessagesInPerSec`), and
its tags. The Prometheus form joins them in lower case, as the usual JMX exporter rules do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

SAMPLES_KEPT = 1024
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""Kafka's percentiles, as dashboards name them."""


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
        return _at(sorted(self.samples), share)

    def percentiles(self) -> dict[str, float]:
        """Share → percentile, for each of QUANTILES."""
        ordered = sorted(self.samples)
        return {share: _at(ordered, float(share)) for share in QUANTILES}


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


Gauge = Callable[[], float]


class Metrics:
    """The registry of one node. Asking for a name twice gives the same object; a gauge's newest function wins."""

    def __init__(self) -> None:
        self._meters: dict[MetricName, Meter] = {}
        self._histograms: dict[MetricName, Histogram] = {}
        self._gauges: dict[MetricName, Gauge] = {}
        self._counters: dict[MetricName, Gauge] = {}

    def meter(self, group: str, type: str, name: str, **tags: str) -> Meter:
        return self._meters.setdefault(_name(group, type, name, tags), Meter())

    def histogram(self, group: str, type: str, name: str, **tags: str) -> Histogram:
        return self._histograms.setdefault(_name(group, type, name, tags), Histogram())

    def gauge(self, group: str, type: str, name: str, function: Gauge, **tags: str) -> None:
        self._gauges[_name(group, type, name, tags)] = function

    def counter(self, group: str, type: str, name: str, function: Gauge, **tags: str) -> None:
        """A meter whose count is computed when somebody asks: the total of others."""
        self._counters[_name(group, type, name, tags)] = function

    def remove(self, *, tag: str, value: str) -> None:
        """Forget every metric that carries this tag with this value (a topic was deleted)."""
        tables: tuple[dict[MetricName, Any], ...] = (self._meters, self._histograms, self._gauges, self._counters)
        for table in tables:
            for name in [name for name in table if (tag, value) in name.tags]:
                del table[name]

    def readings(self) -> Iterator[tuple[MetricName, float]]:
        """Every metric's present value: counts, gauges, and a histogram's mean, maximum and percentiles as
        separate names with Kafka's attribute as a suffix tag."""
        for name, meter in self._meters.items():
            yield name, meter.count
        for name, function in (*self._counters.items(), *self._gauges.items()):
            yield name, function()
        for name, histogram in self._histograms.items():
            yield _attribute(name, "Count"), histogram.count
            yield _attribute(name, "Mean"), histogram.total / histogram.count if histogram.count else 0.0
            yield _attribute(name, "Max"), histogram.largest
            yield _attribute(name, "50thPercentile"), histogram.percentile(0.50)
            yield _attribute(name, "99thPercentile"), histogram.percentile(0.99)

    def value(self, group: str, type: str, name: str, **tags: str) -> float | None:
        """The present value of a meter, counter or gauge; None if there is none of this name."""
        key = _name(group, type, name, tags)
        if key in self._meters:
            return self._meters[key].count
        function = self._counters.get(key) or self._gauges.get(key)
        return None if function is None else function()

    def collect(self) -> Iterator[Metric]:
        """prometheus-client's collector interface: one family per name, whatever the tags; a family's kind does not
        depend on what was registered first."""
        from prometheus_client.core import Metric

        families: dict[str, Metric] = {}

        def add(name: MetricName, kind: str, suffix: str, value: float, **labels: str) -> None:
            family = families.get(name.prometheus)
            if family is None:
                mbean = name._replace(tags=()).mbean
                family = families[name.prometheus] = Metric(name.prometheus, mbean, kind)
            family.add_sample(name.prometheus + suffix, dict(name.tags) | labels, value)

        for name, meter in self._meters.items():
            add(name, "counter", "_total", meter.count)
        for name, function in self._counters.items():
            add(name, "counter", "_total", function())
        for name, function in self._gauges.items():
            add(name, "gauge", "", function())
        for name, histogram in self._histograms.items():
            for share, value in histogram.percentiles().items():
                add(name, "summary", "", value, quantile=share)
            add(name, "summary", "_count", histogram.count)
            add(name, "summary", "_sum", histogram.total)
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
