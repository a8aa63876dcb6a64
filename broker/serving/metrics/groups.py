"""The gauges of the group coordinator, with Kafka's names; each is computed when somebody asks. Source: Kafka's
GroupMetadataManager and group-coordinator-metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.node.metrics import Meter, Metrics

if TYPE_CHECKING:
    from kraft.broker.node.coordinator import GroupCoordinators

GROUP = "kafka.coordinator.group"
GROUPS = "GroupMetadataManager"


def register_group_metrics(coordinators: GroupCoordinators, metrics: Metrics) -> Meter:
    """Register them once; gives the meter of committed offsets."""

    def groups() -> Iterator[ClassicGroup]:
        for shard in coordinators.shards.values():
            if shard.machine is not None:
                yield from shard.machine.groups.values()

    def count(state: GroupState) -> None:
        metrics.gauge(GROUP, GROUPS, f"NumGroups{state.value}", lambda: sum(one.state is state for one in groups()))

    metrics.gauge(GROUP, GROUPS, "NumGroups", lambda: sum(1 for _ in groups()))
    for state in GroupState:
        count(state)
    metrics.gauge(GROUP, GROUPS, "NumOffsets", lambda: _offsets(coordinators))
    return metrics.meter(GROUP, "group-coordinator-metrics", "offset-commit-count")


def _offsets(coordinators: GroupCoordinators) -> int:
    machines = (shard.machine for shard in coordinators.shards.values() if shard.machine is not None)
    return sum(len(offsets) for machine in machines for offsets in machine.committed.offsets.values())
