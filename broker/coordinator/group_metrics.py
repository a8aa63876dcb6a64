"""The metrics of group coordinators and share coordinators, under Kafka's names. Gauges are computed when they are
read. Source: Kafka's GroupMetadataManager, GroupCoordinatorMetrics, ShareCoordinatorMetrics and
CoordinatorRuntimeMetrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.consumer_group.state import ConsumerGroupState
from kraft.broker.coordinator.internal_topics import SHARE_TOPIC
from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.group.classic_group import GroupState
from kraft.broker.serving.metrics.metric_registry import PIECES_PER_STEP, Labelled, MetricKind, Metrics, ScanSteps
from kraft.broker.share_group.state import ShareGroupState

if TYPE_CHECKING:
    from kraft.broker.coordinator.group_coordinators import GroupCoordinators
    from kraft.broker.coordinator.share_coordinators import ShareCoordinators
    from kraft.broker.group.coordinator import GroupCoordinator
    from kraft.broker.serving.metrics.rates import Rates

GROUP = "kafka.coordinator.group"
GROUPS, RUNTIME = "GroupMetadataManager", "group-coordinator-metrics"
SERVER, SHARES = "kafka.server", "share-coordinator-metrics"
OFFSETS = "NumOffsets"
STATES = MappingProxyType({ShardState.LOADING: "loading", ShardState.ACTIVE: "active"})


def register_group_metrics(coordinators: GroupCoordinators, rates: Rates, metrics: Metrics) -> None:
    """Register the metrics of the group coordinator."""
    states = (*GroupState, None)
    names = {state: "NumGroups" if state is None else f"NumGroups{state.value}" for state in states}
    of_consumers, of_shares = dict.fromkeys(ConsumerGroupState, 0), dict.fromkeys(ShareGroupState, 0)
    metrics.together(GROUP, GROUPS, names.values(), lambda: _count_groups(coordinators, names, of_consumers, of_shares))
    metrics.together(GROUP, GROUPS, (OFFSETS,), lambda: _count_offsets(coordinators))
    metrics.enumerate(GROUP, RUNTIME, "group-count", MetricKind.GAUGE, lambda: _protocols(coordinators))
    metrics.enumerate(GROUP, RUNTIME, "consumer-group-count", MetricKind.GAUGE, lambda: _states(of_consumers))
    metrics.enumerate(GROUP, RUNTIME, "share-group-count", MetricKind.GAUGE, lambda: _states(of_shares))
    counts = coordinators.counts

    def counted(name: str, value: Callable[[], float]) -> None:
        metrics.counter(GROUP, RUNTIME, f"{name}-count", value)
        metrics.gauge(GROUP, RUNTIME, f"{name}-rate", rates.of(value))

    counted("offset-commit", lambda: counts.commits)
    counted("offset-expiration", lambda: counts.expired_offsets)
    counted("offset-deletion", lambda: counts.deleted_offsets)
    counted("group-completed-rebalance", lambda: counts.completed_rebalances)
    counted("consumer-group-rebalance", lambda: counts.consumer_rebalances)
    counted("share-group-rebalance", lambda: counts.share_rebalances)
    _register_runtime(GROUP, RUNTIME, coordinators, metrics)


def register_share_coordinator_metrics(coordinators: ShareCoordinators, rates: Rates, metrics: Metrics) -> None:
    """Register the metrics of the share coordinator."""
    write_ms = coordinators.write_ms
    metrics.counter(SERVER, SHARES, "write-total", lambda: write_ms.count)
    metrics.gauge(SERVER, SHARES, "write-rate", rates.of(lambda: write_ms.count))
    metrics.gauge(SERVER, SHARES, "write-latency-avg", lambda: write_ms.mean)
    metrics.gauge(SERVER, SHARES, "write-latency-max", lambda: max(write_ms.samples, default=0))
    metrics.enumerate(SERVER, SHARES, "last-pruned-offset", MetricKind.GAUGE, lambda: _pruned(coordinators))
    _register_runtime(SERVER, SHARES, coordinators, metrics)


def _pruned(coordinators: ShareCoordinators) -> Labelled:
    return [
        ({"topic": SHARE_TOPIC, "partition": str(index)}, shard.partition.log.log_start_offset)
        for index, shard in coordinators.shards.items()
        if shard.partition.log is not None
    ]


def _register_runtime(
    group: str, type: str, coordinators: GroupCoordinators | ShareCoordinators, metrics: Metrics
) -> None:
    """Register the metrics that all coordinators have."""
    load_ms = coordinators.load_ms
    metrics.gauge(group, type, "partition-load-time-max", lambda: max(load_ms.samples, default=0))
    metrics.gauge(group, type, "partition-load-time-avg", lambda: load_ms.mean)
    metrics.gauge(group, type, "event-queue-size", lambda: _waiting(coordinators))
    metrics.enumerate(group, type, "num-partitions", MetricKind.GAUGE, lambda: _partitions(coordinators))


def _count_groups(
    coordinators: GroupCoordinators,
    names: dict[GroupState | None, str],
    of_consumers: dict[ConsumerGroupState, int],
    of_shares: dict[ShareGroupState, int],
) -> ScanSteps:
    """Count the classic groups. Also put the number of consumer groups in each state into `of_consumers`, and that of
    share groups into `of_shares`."""
    found: Counter[ConsumerGroupState] = Counter()
    found_shares: Counter[ShareGroupState] = Counter()
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
        for number, shares in enumerate(list(machine.committed.shares.values()), 1):
            found_shares[shares.state] += 1
            if not number % PIECES_PER_STEP:
                yield
    of_consumers.update({state: found[state] for state in ConsumerGroupState})
    of_shares.update({state: found_shares[state] for state in ShareGroupState})
    return counts


def _states(counts: dict[ConsumerGroupState, int] | dict[ShareGroupState, int]) -> Labelled:
    return [({"state": state.value.lower()}, count) for state, count in counts.items()]


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
    share = sum(len(machine.committed.shares) for machine in machines)
    return [({"protocol": "classic"}, classic), ({"protocol": "consumer"}, consumer), ({"protocol": "share"}, share)]


def _machines(coordinators: GroupCoordinators) -> list[GroupCoordinator]:
    return [shard.machine for shard in coordinators.shards.values() if shard.machine is not None]


def _waiting(coordinators: GroupCoordinators | ShareCoordinators) -> int:
    return sum(shard.waiting_requests for shard in coordinators.shards.values())


def _partitions(coordinators: GroupCoordinators | ShareCoordinators) -> Labelled:
    found = Counter(shard.state for shard in coordinators.shards.values())
    return [({"state": name}, found[state]) for state, name in STATES.items()]
