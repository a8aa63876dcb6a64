"""Finds the nodes that faults wait for: the brokers that serve the share groups, at certain moments.

The state comes from the memory of leaders and share coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.node.broker import Broker
from kraft.broker.share_partition.share_partition import NO_WRITE, SharePartition
from kraft.broker.share_partition.states import RecordState
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis import plan


def leader_roles_of(state: SharePartition) -> tuple[str, ...]:
    """Return the roles that the leader of a share partition has now."""
    held = [run.value for run in state.runs if run.value.state is RecordState.ACQUIRED]
    if not held:
        return ()
    is_acknowledging = any(delivery.write != NO_WRITE for delivery in held)
    return (plan.SHARE_LEADER, plan.ACKNOWLEDGING_LEADER) if is_acknowledging else (plan.SHARE_LEADER,)


class ShareTargets:
    """Finder of the brokers that serve the share groups of one cluster."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.holders: Mapping[str, Callable[[], list[int]]] = MappingProxyType(
            {
                plan.SHARE_LEADER: lambda: self._leaders(plan.SHARE_LEADER),
                plan.ACKNOWLEDGING_LEADER: lambda: self._leaders(plan.ACKNOWLEDGING_LEADER),
                plan.WRITING_SHARE_COORDINATOR: self._writing_coordinators,
            }
        )
        """Role → function that returns the nodes with that role."""

    def _brokers(self) -> Iterator[tuple[int, Broker]]:
        for node in self._cluster.shape.broker_ids:
            observer = self._cluster.watch.nodes.get(node)
            if observer is not None and observer.node.broker is not None:
                yield node, observer.node.broker.broker

    def _leaders(self, role: str) -> list[int]:
        return [
            node
            for node, broker in self._brokers()
            for shares in broker.shares._by_group.values()
            for share in shares.values()
            if share.state is not None and role in leader_roles_of(share.state)
        ]

    def _writing_coordinators(self) -> list[int]:
        return [
            node
            for node, broker in self._brokers()
            for _, shard in sorted(broker.share_coordinators.shards.items())
            if shard.state is ShardState.ACTIVE
            and shard.machine is not None
            and shard.machine.end_offset > shard.partition.high_watermark
        ]
