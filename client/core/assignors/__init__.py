"""Pure: assignors, which divide partitions among the members of a consumer group. One assignor per module, with Kafka's
names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kraft.client.core.assignors.base import Assignor, SubscribedMember
from kraft.client.core.assignors.range import RangeAssignor
from kraft.client.core.assignors.round_robin import RoundRobinAssignor
from kraft.client.core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "SubscribedMember",
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
    """Return the assignors with these names. An assignor object in place of a name is returned as it is. Raise
    ValueError for an unknown name."""
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
    """Whether members keep their partitions during a rebalance. True only if every assignor that may be chosen allows
    it."""
    return all(assignor.is_cooperative for assignor in assignors)
