"""Whom a fault hits that names a role: who has it when the time comes. Some roles are had for a moment only.

What is asked comes from committed metadata and from what nodes hold, never from what a client was told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis import plan


class Targets:
    """The roles of one cluster's nodes."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        watch = cluster.watch
        self._holders: Mapping[str, Callable[[], list[int]]] = {
            plan.ACTIVE_CONTROLLER: lambda: _if_any(watch.active_controller),
            plan.A_LEADER: self._leaders,
            plan.SHRUNK_LEADER: lambda: _if_any(watch.chronicle.shrunk_leader),
            plan.UNCOMMITTED_CONTROLLER: lambda: _if_any(self.controller_with_news()),
            plan.UNCOMMITTED_LEADER: lambda: _if_any(self.leader_with_news()),
        }

    def holders(self, role: str) -> list[int]:
        """The nodes that have this role now; one that leads several partitions stands for each of them."""
        return self._holders[role]()

    def _leaders(self) -> list[int]:
        states = (state for topic in self._cluster.image.topics for _, state in topic.partitions())
        return [state.leader for state in states if state.leader > 0]

    def controller_with_news(self) -> int | None:
        """The active controller, if something of its log is not committed."""
        active = self._cluster.watch.active_controller
        eye = self._cluster.watch.nodes.get(active or 0)
        raft = None if eye is None else eye.node.quorum.replica
        is_behind = raft is not None and raft.log.end_offset > (raft.high_watermark or 0)
        return active if is_behind else None

    def leader_with_news(self) -> int | None:
        """The leader of a partition in which something is not committed."""
        for topic in self._cluster.image.topics:
            for index, state in topic.partitions():
                marks = self._cluster.marks(state.leader, topic.name, index)
                if marks is not None and marks[0] < marks[1]:
                    return state.leader
        return None


def _if_any(node: int | None) -> list[int]:
    return [] if node is None else [node]
