"""The gauges of the data plane, with Kafka's names; each is computed when somebody asks. Source: Kafka's ReplicaManager
and FetchSessionCache."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.node.metrics import Metrics

if TYPE_CHECKING:
    from kraft.broker.node.partition import Partition
    from kraft.broker.node.replica_manager import ReplicaManager

GROUP = "kafka.server"
REPLICAS = "ReplicaManager"


def register_replica_metrics(manager: ReplicaManager, metrics: Metrics) -> None:
    """Register them once, when the manager is made."""

    def count(name: str, holds: str) -> None:
        predicate = PREDICATES[holds]
        metrics.gauge(GROUP, REPLICAS, name, lambda: sum(map(predicate, manager.hosted)))

    metrics.gauge(GROUP, REPLICAS, "PartitionCount", lambda: len(manager.hosted))
    count("LeaderCount", "leads")
    count("UnderReplicatedPartitions", "under_replicated")
    count("UnderMinIsrPartitionCount", "under_min_isr")
    count("AtMinIsrPartitionCount", "at_min_isr")
    count("OfflineReplicaCount", "offline")
    sessions = "FetchSessionCache"
    metrics.gauge(GROUP, sessions, "NumIncrementalFetchSessions", lambda: len(manager.fetch_sessions))
    metrics.gauge(GROUP, sessions, "NumIncrementalFetchPartitionsCached", lambda: manager.fetch_sessions.partitions)
    metrics.gauge(GROUP, "DelayedOperationPurgatory", "PurgatorySize", lambda: len(manager.deadlines))
    offline = lambda: len(manager.directories.all) - len(manager.directories.online)  # noqa: E731
    metrics.gauge("kafka.log", "LogManager", "OfflineLogDirectoryCount", offline)


def _leads(partition: Partition) -> bool:
    return partition.leads


def _in_sync(partition: Partition) -> int | None:
    """How many are in sync, if this broker leads. A log that nobody uses yet is not open; then metadata tell."""
    if partition.state is None or not partition.leads:
        return None
    return len(partition.state.isr if partition.leader is None else partition.leader.isr.committed)


def _effective_min_isr(partition: Partition) -> int:
    replicas = () if partition.state is None else partition.state.replicas
    return min(partition.config.min_insync_replicas, len(replicas))


def _is_under_replicated(partition: Partition) -> bool:
    """Fewer in sync than assigned, those that are only being added not counted."""
    in_sync, state = _in_sync(partition), partition.state
    return in_sync is not None and state is not None and in_sync < len(set(state.replicas) - set(state.adding))


def _is_under_min_isr(partition: Partition) -> bool:
    in_sync = _in_sync(partition)
    return in_sync is not None and in_sync < _effective_min_isr(partition)


def _is_at_min_isr(partition: Partition) -> bool:
    return _in_sync(partition) == _effective_min_isr(partition)


def _is_offline(partition: Partition) -> bool:
    return partition.is_offline


PREDICATES = MappingProxyType(
    {
        "leads": _leads,
        "under_replicated": _is_under_replicated,
        "under_min_isr": _is_under_min_isr,
        "at_min_isr": _is_at_min_isr,
        "offline": _is_offline,
    }
)
