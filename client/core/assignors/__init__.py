"""Pure: who reads what in a consumer group. One assignor per module, under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kraft.client.core.assignors.base import Assignor, GroupMember
from kraft.client.core.assignors.range import RangeAssignor
from kraft.client.core.assignors.round_robin import RoundRobinAssignor
from kraft.client.core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignors_named",
    "is_cooperative",
]

ASSIGNORS: Mapping[str, type[Assignor]] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
)


def assignors_named(wanted: Sequence[str | Assignor]) -> list[Assignor]:
    """Assignors by name, or as they are given. ValueError names one that does not exist."""
    chosen = []
    for entry in wanted:
        if isinstance(entry, str):
            if entry not in ASSIGNORS:
                raise ValueError(f"partition_assignment_strategy={entry}: expected {', '.join(ASSIGNORS)}")
            entry = ASSIGNORS[entry]()
        chosen.append(entry)
    if not chosen:
        raise ValueError(f"partition_assignment_strategy is empty: expected some of {', '.join(ASSIGNORS)}")
    return chosen


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Whether members keep what they have through a rebalance: only if every assignor that may be chosen allows it."""
    return all(assignor.is_cooperative for assignor in assignors)
