"""Metrics: one registry of metrics under Kafka's names, updated by the drivers, exported on demand.

The hot path increments attributes (`meter.count += 1`); nothing is computed until the metrics are collected. A metric's
name is Kafka's MBean in three parts: group (`kafka.server`), type (`BrokerTopicMetrics`) and name (`MessagesInPerSec`),
and its tags. The Prometheus form joins the parts in lower case, as the usual JMX exporter rules do.

Invariant: a name keeps its kind (counter, gauge …) until the process ends, whatever was registered first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from kraft.broker.serving.metrics.text import text_in_steps
from kraft.seam import require
from kraft.seam.measures import Histogram

Tags = tuple[tuple[str, str], ...]
Gauge = Callable[[], float]


class MetricKind(Enum):
    """The kind of a metric in Prometheus. A histogram is exported as a summary: percentiles by the label `quantile`,
    count and sum. An info metric has a text as a label, and is always 1."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "summary"
    INFO = "info"


class MetricName(NamedTuple):
    """Kafka's MBean name in parts. `tags` are sorted pairs."""

    group: str
    type: str
    name: str
    tags: Tags = ()

    @property
    def prometheus(self) -> str:
        return f"{self.group}_{self.type}_{self.name}".replace(".", "_").replace("-", "_").lower()

    @property
    def mbean(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags)
        return f"{self.group}:type={self.type},name={self.name}{tags}"


class Meter:
    """Counts events, as Kafka's `…PerSec` meters do. Readers compute the rate from two readings of `count`."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def mark(self, amount: int = 1) -> None:
        self.count += amount


Labelled = Iterable[tuple[dict[str, str], float | Histogram]]
"""(labels, value) of each member of a metric family; in a histogram family the value is a Histogram."""


ScanSteps = Generator[None, None, Mapping[str, float]]
"""A scan over many objects, as a generator: it yields after every PIECES_PER_STEP objects, and returns the value of
each metric by name."""
PIECES_PER_STEP = 1_000
"""Number of objects after which a scan lets other tasks run; each object is read within a microsecond or two."""


class SharedScan:
    """The newest values of the metrics that one scan computes together."""

    __slots__ = ("_take", "values")

    def __init__(self, take: Callable[[], ScanSteps]) -> None:
        self._take = take
        self.values: Mapping[str, float] = MappingProxyType({})

    def steps(self) -> Iterator[None]:
        """Run the scan again, in steps. Until the scan ends, the values of the previous scan stay current."""
        self.values = yield from self._take()

    def value(self, name: str) -> float:
        return self.values.get(name, 0)


class MetricFamily:
    """All metrics of one name. Registered members are stored by their tags; other members are enumerated when they are
    read."""

    __slots__ = ("is_on_demand", "kept", "kind", "name", "prometheus", "read", "starts")

    def __init__(self, name: MetricName, kind: MetricKind, *, is_on_demand: bool) -> None:
        self.name = name
        self.prometheus = name.prometheus
        self.kind = kind
        self.is_on_demand = is_on_demand
        self.kept: dict[Tags, Meter | Histogram | Gauge] = {}
        self.read: Callable[[], Labelled] = tuple
        self.starts: dict[Tags, str] = {}
        """Name and labels of each output line as text, kept between scrapes."""

    def members(self) -> Iterator[tuple[Tags, float | Histogram]]:
        """Yield the tags and current value of each member.

        Other tasks may run between two members. Registered members may be added or removed meanwhile. Of the families
        whose members are enumerated, only on-demand ones are read while the text is written."""
        for tags in tuple(self.kept):
            kept = self.kept.get(tags)
            if kept is None:
                continue
            if isinstance(kept, Meter):
                yield tags, kept.count
            else:
                yield tags, kept if isinstance(kept, Histogram) else kept()
        read = self.read()
        for labels, value in read if self.is_on_demand else tuple(read):
            yield _tags(labels), value


class Metrics:
    """The registry of one node. Requesting a name twice returns the same object; if a gauge is registered twice, its
    newest function is used."""

    def __init__(self) -> None:
        self._families: dict[tuple[str, str, str], MetricFamily] = {}
        self._looks: list[SharedScan] = []

    def meter(self, group: str, type: str, name: str, **tags: str) -> Meter:
        meter = self._family(group, type, name, MetricKind.COUNTER).kept.setdefault(_tags(tags), Meter())
        assert isinstance(meter, Meter)
        return meter

    def histogram(self, group: str, type: str, name: str, **tags: str) -> Histogram:
        histogram = self._family(group, type, name, MetricKind.HISTOGRAM).kept.setdefault(_tags(tags), Histogram())
        assert isinstance(histogram, Histogram)
        return histogram

    def expose(self, group: str, type: str, name: str, histogram: Histogram, **tags: str) -> None:
        """Include a histogram that code below kraft.broker fills."""
        self._family(group, type, name, MetricKind.HISTOGRAM).kept[_tags(tags)] = histogram

    def gauge(self, group: str, type: str, name: str, function: Gauge, **tags: str) -> None:
        self._family(group, type, name, MetricKind.GAUGE).kept[_tags(tags)] = function

    def counter(self, group: str, type: str, name: str, function: Gauge, **tags: str) -> None:
        """Register a meter whose count is computed when it is read, as the total of other meters."""
        self._family(group, type, name, MetricKind.COUNTER).kept[_tags(tags)] = function

    def enumerate(
        self,
        group: str,
        type: str,
        name: str,
        kind: MetricKind,
        read: Callable[[], Labelled],
        *,
        is_on_demand: bool = False,
    ) -> None:
        """Register a family whose members are enumerated when they are read. A family with `is_on_demand` has a member
        for each partition, and is shown only to readers that request metrics of partitions."""
        family = self._family(group, type, name, kind)
        family.read, family.is_on_demand = read, is_on_demand

    def together(
        self,
        group: str,
        type: str,
        names: Iterable[str],
        look: Callable[[], ScanSteps],
        *,
        kind: MetricKind = MetricKind.GAUGE,
        **tags: str,
    ) -> None:
        """Register gauges or counters whose values come from one shared scan, which runs at the beginning of each
        reading."""
        shared = SharedScan(look)
        self._looks.append(shared)
        for name in names:
            self._family(group, type, name, kind).kept[_tags(tags)] = partial(shared.value, name)

    def remove(self, group: str, type: str, name: str, **tags: str) -> None:
        """Remove one metric, because its topic was deleted. The time that this takes does not depend on the number of
        metrics."""
        family, key = self._families.get((group, type, name)), _tags(tags)
        if family is not None:
            family.kept.pop(key, None)
            family.starts.pop(key, None)

    def _family(self, group: str, type: str, name: str, kind: MetricKind) -> MetricFamily:
        key = (group, type, name)
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = MetricFamily(MetricName(*key), kind, is_on_demand=False)
        require(family.kind is kind, f"metric {family.name.mbean} is a {family.kind.value}, not a {kind.value}")
        return family

    # reading

    def families_shown(self, *, partitions: bool) -> Iterator[MetricFamily]:
        """Return every metric family; families with a member per partition only if `partitions` is True."""
        return (family for family in self._families.values() if partitions or not family.is_on_demand)

    def scan_in_steps(self) -> Iterator[None]:
        """Begin a reading: run all shared scans. Other tasks may run at each step."""
        return chain.from_iterable(look.steps() for look in self._looks)

    def readings(self) -> Iterator[tuple[MetricName, float]]:
        """Return the current value of every metric; for a histogram its count."""
        self._scan()
        for family in self._families.values():
            for tags, value in family.members():
                yield family.name._replace(tags=tags), value.count if isinstance(value, Histogram) else value

    def value(self, group: str, type: str, name: str, /, **tags: str) -> float | None:
        """Return the current value of a meter, counter or gauge, or the count of a histogram; None if no metric has
        this name."""
        family = self._families.get((group, type, name))
        wanted = _tags(tags)
        self._scan()
        for found, value in () if family is None else family.members():
            if found == wanted:
                return value.count if isinstance(value, Histogram) else value
        return None

    def exposition(self, *, partitions: bool = False) -> bytes:
        """Return the text that a Prometheus server scrapes. `text_in_steps` produces the same text while other tasks
        run."""
        return "".join(text_in_steps(self, partitions=partitions)).encode()

    def _scan(self) -> None:
        for _ in self.scan_in_steps():
            pass


def _tags(labels: dict[str, str]) -> Tags:
    return tuple(sorted(labels.items()))
