"""MetricRow and MetricScope: the types of the rows in the table of metrics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from kraft.broker.serving.metrics.metric_registry import MetricKind


class MetricScope(Flag):
    """The nodes that have a metric."""

    BROKER = auto()
    CONTROLLER = auto()
    PROCESS = auto()
    """Nodes with either role that run as their own process; not nodes inside an application's tests."""
    BOTH = BROKER | CONTROLLER


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric. With `is_on_demand`, it has a member per partition, and is shown only to readers that request metrics
    of partitions."""

    group: str
    type: str
    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()
    where: MetricScope = MetricScope.BROKER
    is_on_demand: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.type, self.name


BROKER, CONTROLLER, PROCESS, BOTH = MetricScope.BROKER, MetricScope.CONTROLLER, MetricScope.PROCESS, MetricScope.BOTH
GAUGE, COUNTER, HISTOGRAM, INFO = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM, MetricKind.INFO


def rows(
    group: str,
    type: str,
    kind: MetricKind,
    where: MetricScope,
    meanings: dict[str, str],
    *,
    labels: tuple[str, ...] = (),
    is_on_demand: bool = False,
) -> tuple[MetricRow, ...]:
    return tuple(
        MetricRow(group, type, name, kind, meaning, labels, where, is_on_demand) for name, meaning in meanings.items()
    )
