"""One registry of metrics with Kafka's names, filled by the drivers, exported on demand.

The hot path adds to plain attributes (`meter.count += 1`); nothing is computed until somebody collects. A metric's name
is Kafka's MBean in three parts: group (`kafka.server`), type (`BrokerTopicMetrics`) and name (`MessagesInPerSec`), and
its tags. The Prometheus form joins them in lower case, as the usual JMX exporter rules do.

Invariant: a name has one kind for the life of the process, so its form does not depend on what was registered first.
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


class Kind(Enum):
    """What a metric is for Prometheus. A histogram is a summary: percentiles by the label `quantile`, count and sum. An
    info metric has a text as a label, and is always 1."""

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
    """Counts events; Kafka's `…PerSec` meters. Whoever reads takes the rate from two readings of `count`."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def mark(self, amount: int = 1) -> None:
        self.count += amount


Labelled = Iterable[tuple[dict[str, str], float | Histogram]]
"""(labels, value) of each member of a family; the values of a histogram family are Histograms."""


Look = Generator[None, None, Mapping[str, float]]
"""One look at many objects: a `yield` behind every PIECES_PER_STEP of them, at the end the value of each name."""
PIECES_PER_STEP = 1_000
"""Objects, each read within a microsecond or two, at which a look lets others have a turn of the loop."""


class SharedLook:
    """The newest values of the metrics that come from one look."""

    __slots__ = ("_take", "values")

    def __init__(self, take: Callable[[], Look]) -> None:
        self._take = take
        self.values: Mapping[str, float] = MappingProxyType({})

    def steps(self) -> Iterator[None]:
        """Look again. The values are those of the look before until it is over."""
        self.values = yield from self._take()

    def value(self, name: str) -> float:
        return self.values.get(name, 0)


class Family:
    """All metrics of one name: those that are kept, by their tags, and those that are enumerated when they are read."""

    __slots__ = ("is_on_demand", "kept", "kind", "name", "prometheus", "read", "starts")

    def __init__(self, name: MetricName, kind: Kind, *, is_on_demand: bool) -> None:
        self.name = name
        self.prometheus = name.prometheus
        self.kind = kind
        self.is_on_demand = is_on_demand
        self.kept: dict[Tags, Meter | Histogram | Gauge] = {}
        self.read: Callable[[], Labelled] = tuple
        self.starts: dict[Tags, str] = {}
        """Name and labels as text, kept between scrapes."""

    def members(self) -> Iterator[tuple[Tags, float | Histogram]]:
        """Tags and present value of each. Others may have a turn of the loop between two of them: what is kept may
        come and go meanwhile, and of what is enumerated only families on demand are read while they are written."""
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
    """The registry of one node. Asking for a name twice gives the same object; a gauge's newest function wins."""

    def __init__(self) -> None:
        self._families: dict[tuple[str, str, str], Family] = {}
        self._looks: list[SharedLook] = []

    def meter(self, group: str, type: str, name: str, **tags: str) -> Meter:
        meter = self._family(group, type, name, Kind.COUNTER).kept.setdefault(_tags(tags), Meter())
        assert isinstance(meter, Meter)
        return meter

    def histogram(self, group: str, type: str, name: str, **tags: str) -> Histogram:
        histogram = self._family(group, type, name, Kind.HISTOGRAM).kept.setdefault(_tags(tags), Histogram())
        assert isinstance(histogram, Histogram)
        return histogram

    def expose(self, group: str, type: str, name: str, histogram: Histogram, **tags: str) -> None:
        """Show a histogram that code below this floor fills."""
        self._family(group, type, name, Kind.HISTOGRAM).kept[_tags(tags)] = histogram

    def gauge(self, group: str, type: str, name: str, function: Gauge, **tags: str) -> None:
        self._family(group, type, name, Kind.GAUGE).kept[_tags(tags)] = function

    def counter(self, group: str, type: str, name: str, function: Gauge, **tags: str) -> None:
        """A meter whose count is computed when somebody asks: the total of others."""
        self._family(group, type, name, Kind.COUNTER).kept[_tags(tags)] = function

    def enumerate(
        self, group: str, type: str, name: str, kind: Kind, read: Callable[[], Labelled], *, is_on_demand: bool = False
    ) -> None:
        """A family whose members are enumerated when somebody asks; `is_on_demand`: only who asks for partitions gets
        it, for it has a member for each partition."""
        family = self._family(group, type, name, kind)
        family.read, family.is_on_demand = read, is_on_demand

    def together(
        self,
        group: str,
        type: str,
        names: Iterable[str],
        look: Callable[[], Look],
        *,
        kind: Kind = Kind.GAUGE,
        **tags: str,
    ) -> None:
        """Gauges or counters whose values come from one look, which is taken at the begin of each reading."""
        shared = SharedLook(look)
        self._looks.append(shared)
        for name in names:
            self._family(group, type, name, kind).kept[_tags(tags)] = partial(shared.value, name)

    def remove(self, group: str, type: str, name: str, **tags: str) -> None:
        """Forget one metric: a topic was deleted. Costs the same however many others there are."""
        family, key = self._families.get((group, type, name)), _tags(tags)
        if family is not None:
            family.kept.pop(key, None)
            family.starts.pop(key, None)

    def _family(self, group: str, type: str, name: str, kind: Kind) -> Family:
        key = (group, type, name)
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = Family(MetricName(*key), kind, is_on_demand=False)
        require(family.kind is kind, f"metric {family.name.mbean} is a {family.kind.value}, not a {kind.value}")
        return family

    # reading

    def families_shown(self, *, partitions: bool) -> Iterator[Family]:
        """Every name; those with a member per partition only with `partitions`."""
        return (family for family in self._families.values() if partitions or not family.is_on_demand)

    def look_in_steps(self) -> Iterator[None]:
        """Begin a reading: take all shared looks. Others may have a turn of the loop at each step."""
        return chain.from_iterable(look.steps() for look in self._looks)

    def readings(self) -> Iterator[tuple[MetricName, float]]:
        """Every metric's present value; of a histogram its count."""
        self._look()
        for family in self._families.values():
            for tags, value in family.members():
                yield family.name._replace(tags=tags), value.count if isinstance(value, Histogram) else value

    def value(self, group: str, type: str, name: str, **tags: str) -> float | None:
        """The present value of a meter, counter or gauge, or the count of a histogram; None if there is none of this
        name."""
        family = self._families.get((group, type, name))
        wanted = _tags(tags)
        self._look()
        for found, value in () if family is None else family.members():
            if found == wanted:
                return value.count if isinstance(value, Histogram) else value
        return None

    def exposition(self, *, partitions: bool = False) -> bytes:
        """The text that a Prometheus server scrapes; see `text_in_steps` for how to share the loop meanwhile."""
        return "".join(text_in_steps(self, partitions=partitions)).encode()

    def _look(self) -> None:
        for _ in self.look_in_steps():
            pass


def _tags(labels: dict[str, str]) -> Tags:
    return tuple(sorted(labels.items()))
