"""The metrics of the group coordinator, under Kafka's names; gauges are computed when they are read. Source: Kafka's
GroupMetadataManager, GroupCoordinatorMetrics and CoordinatorRuntimeMetrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.consumer_group.state import ConsumerGroupState
from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.group.classic_group import GroupState
from kraft.broker.serving.metrics.metric_registry import PIECES_PER_STEP, Labelled, MetricKind, Metrics, ScanSteps

if TYPE_CHECKING:
    from kraft.broker.coordinator.group_coordinators import GroupCoordinators
    from kraft.broker.group.coordinator import GroupCoordinator
    from kraft.broker.serving.metrics.rates import Rates

GROUP = "kafka.coordinator.group"
GROUPS, RUNTIME = "GroupMetadataManager", "group-coordinator-metrics"
OFFSETS = "NumOffsets"
STATES = MappingProxyType({ShardState.LOADING: "loading", ShardState.ACTIVE: "active"})


def register_group_metrics(coordinators: GroupCoordinators, rates: Rates, metrics: Metrics) -> None:
    """Register the metrics of the group coordinator."""
    states = (*GroupState, None)
    names = {state: "NumGroups" if state is None else f"NumGroups{state.value}" for state in states}
    of_consumers = dict.fromkeys(ConsumerGroupState, 0)
    metrics.together(GROUP, GROUPS, names.values(), lambda: _count_groups(coordinators, names, of_consumers))
    metrics.together(GROUP, GROUPS, (OFFSETS,), lambda: _count_offsets(coordinators))
    metrics.enumerate(GROUP, RUNTIME, "group-count", MetricKind.GAUGE, lambda: _protocols(coordinators))
    metrics.enumerate(GROUP, RUNTIME, "consumer-group-count", MetricKind.GAUGE, lambda: _states(of_consumers))
    counts, load_ms = coordinators.counts, coordinators.load_ms

    def counted(name: str, value: Callable[[], float]) -> None:
        metrics.counter(GROUP, RUNTIME, f"{name}-count", value)
        metrics.gauge(GROUP, RUNTIME, f"{name}-rate", rates.of(value))

    counted("offset-commit", lambda: counts.commits)
    counted("offset-expiration", lambda: counts.expired_offsets)
    counted("offset-deletion", lambda: counts.deleted_offsets)
    counted("group-completed-rebalance", lambda: counts.completed_rebalances)
    counted("consumer-group-rebalance", lambda: counts.consumer_rebalances)
    metrics.gauge(GROUP, RUNTIME, "partition-load-time-max", lambda: max(load_ms.samples, default=0))
    metrics.gauge(GROUP, RUNTIME, "partition-load-time-avg", lambda: load_ms.mean)
    metrics.gauge(GROUP, RUNTIME, "event-queue-size", lambda: _waiting(coordinators))
    metrics.enumerate(GROUP, RUNTIME, "num-partitions", MetricKind.GAUGE, lambda: _partitions(coordinators))


def _count_groups(
    coordinators: GroupCoordinators,
    names: dict[GroupState | None, str],
    of_consumers: dict[ConsumerGroupState, int],
) -> ScanSteps:
    """Count the classic groups. Also put the number of consumer groups in each state into `of_consumers`."""
    found: Counter[ConsumerGroupState] = Counter()
    counts: dict[str, float] = dict.fromkeys(names.values(), 0)
    for machine in _machines(coordinators):
        counts[names[None]] += len(machine.groups)
        for number, group in enumerate(list(machine.groups.values()), 1):
            counts[names[group.state]] += 1
            if not number % PIECES_PER_STEP:
                yield
        looked_at = 0
        for consumers in list(machine.committed.consumers.values()):
            found[consumers.state] += 1
            looked_at += 1 + len(consumers.members)
            if looked_at >= PIECES_PER_STEP:
                yield
                looked_at = 0
    of_consumers.update({state: found[state] for state in ConsumerGroupState})
    return counts


def _states(of_consumers: dict[ConsumerGroupState, int]) -> Labelled:
    return [({"state": state.value.lower()}, of_consumers[state]) for state in ConsumerGroupState]


def _count_offsets(coordinators: GroupCoordinators) -> ScanSteps:
    total = 0
    for machine in _machines(coordinators):
        for number, offsets in enumerate(list(machine.committed.offsets.values()), 1):
            total += len(offsets)
            if not number % PIECES_PER_STEP:
                yield
    return {OFFSETS: total}


def _protocols(coordinators: GroupCoordinators) -> Labelled:
    machines = _machines(coordinators)
    classic = sum(len(machine.groups) for machine in machines)
    consumer = sum(len(machine.committed.consumers) for machine in machines)
    return [({"protocol": "classic"}, classic), ({"protocol": "consumer"}, consumer)]


def _machines(coordinators: GroupCoordinators) -> list[GroupCoordinator]:
    return [shard.machine for shard in coordinators.shards.values() if shard.machine is not None]


def _waiting(coordinators: GroupCoordinators) -> int:
    return sum(shard.waiting_requests for shard in coordinators.shards.values())


def _partitions(coordinators: GroupCoordinators) -> Labelled:
    found = Counter(shard.state for shard in coordinators.shards.values())
    return [({"state": name}, found[state]) for state, name in STATES.items()]
