"""Finds the node for a fault that names a role: the node that has the role at that time. Some roles exist only for a
moment.

The answers come from committed metadata and from the nodes' state, never from responses to clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.group_targets import GroupTargets
from kraft.sim.nemesis.share_targets import ShareTargets
from kraft.sim.nemesis.transaction_targets import TransactionTargets


class Targets:
    """Finds which nodes of one cluster have which role."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        watch = cluster.watch
        self._holders: Mapping[str, Callable[[], list[int]]] = {
            plan.ACTIVE_CONTROLLER: lambda: _if_any(watch.active_controller),
            plan.A_LEADER: self._leaders,
            plan.SHRUNK_LEADER: lambda: _if_any(watch.chronicle.shrunk_leader),
            plan.UNCOMMITTED_CONTROLLER: lambda: _if_any(self.controller_with_uncommitted_record()),
            plan.UNCOMMITTED_LEADER: lambda: _if_any(self.leaders_with_uncommitted_records()),
            **TransactionTargets(cluster).holders,
            **GroupTargets(cluster).holders,
            **ShareTargets(cluster).holders,
        }

    def holders(self, role: str) -> list[int]:
        """Return the nodes that have this role now. A node that leads several partitions is listed once for each."""
        return self._holders[role]()

    def _leaders(self) -> list[int]:
        states = (state for topic in self._cluster.image.topics for _, state in topic.partitions())
        return [state.leader for state in states if state.leader > 0]

    def controller_with_uncommitted_record(self) -> int | None:
        """Return the active controller, if its log has an uncommitted record."""
        active = self._cluster.watch.active_controller
        observer = self._cluster.watch.nodes.get(active or 0)
        raft = None if observer is None else observer.node.quorum.replica
        is_behind = raft is not None and raft.log.end_offset > (raft.high_watermark or 0)
        return active if is_behind else None

    def leaders_with_uncommitted_records(self) -> int | None:
        """Return the leaders of partitions with an uncommitted record."""
        for topic in self._cluster.image.topics:
            for index, state in topic.partitions():
                marks = self._cluster.marks(state.leader, topic.name, index)
                if marks is not None and marks[0] < marks[1]:
                    return state.leader
        return None


def _if_any(node: int | None) -> list[int]:
    return [] if node is None else [node]
