"""What a row of the table says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from kraft.broker.serving.metrics.metric_registry import Kind


class Where(Flag):
    """Which nodes have a metric."""

    BROKER = auto()
    CONTROLLER = auto()
    PROCESS = auto()
    """Nodes of either role that are a process of their own; not those inside of an application's tests."""
    BOTH = BROKER | CONTROLLER


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. `is_on_demand`: it has a member per partition, and is shown only to who asks for partitions."""

    group: str
    type: str
    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    where: Where = Where.BROKER
    is_on_demand: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.type, self.name


BROKER, CONTROLLER, PROCESS, BOTH = Where.BROKER, Where.CONTROLLER, Where.PROCESS, Where.BOTH
GAUGE, COUNTER, HISTOGRAM, INFO = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM, Kind.INFO


def rows(
    group: str,
    type: str,
    kind: Kind,
    where: Where,
    meanings: dict[str, str],
    *,
    labels: tuple[str, ...] = (),
    is_on_demand: bool = False,
) -> tuple[Row, ...]:
    return tuple(
        Row(group, type, name, kind, meaning, labels, where, is_on_demand) for name, meaning in meanings.items()
    )
