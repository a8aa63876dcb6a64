"""Finds the active group coordinators of a cluster, for what looks into their memory."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.broker.coordinator.group_coordinators import GroupShard
from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.group.coordinator import GroupCoordinator
from kraft.sim.cluster.cluster import SimCluster


def active_group_coordinators(cluster: SimCluster) -> Iterator[tuple[int, GroupShard, GroupCoordinator]]:
    """Yield (node, shard, state machine) of all partitions of groups that are coordinated, in the order of nodes and
    partitions."""
    for node in cluster.shape.broker_ids:
        observer = cluster.watch.nodes.get(node)
        broker = None if observer is None else observer.node.broker
        for _, shard in sorted(broker.broker.groups.shards.items()) if broker is not None else ():
            if shard.state is ShardState.ACTIVE and shard.machine is not None:
                yield node, shard, shard.machine
