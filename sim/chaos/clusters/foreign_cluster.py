"""ForeignCluster: the common part of all clusters whose nodes are not this package's processes.

Their state is what their brokers return, and their requests cannot be tampered with: there is no hook for that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NoReturn

from kraft.sim.breakable_cluster import BreakableCluster, FoundPartition
from kraft.sim.shapes import ClusterError
from kraft.wire.reply_policy import ReplyRule


class ForeignCluster(BreakableCluster):
    """A cluster whose nodes are not processes of this package; see the module."""

    no_rules: ClassVar[str]
    """Error text for a fault of requests."""

    @abstractmethod
    def _addresses(self) -> Mapping[int, str]:
        """Return the addresses of the brokers that can answer now."""

    def active_controller(self) -> int | None:
        from kraft.sim.chaos.clusters.cluster_queries import find_controller

        return find_controller(",".join(self._addresses().values()))

    def _add_rule(self, node: int, rule: ReplyRule) -> int:
        self._refuse_rules()

    def _remove_rule(self, node: int, number: int) -> None:
        self._refuse_rules()

    def _applied(self, node: int, number: int) -> int:
        self._refuse_rules()

    def _refuse_rules(self) -> NoReturn:
        raise ClusterError(self.no_rules)

    def _partitions(self) -> list[FoundPartition] | None:
        from kraft.sim.chaos.clusters.cluster_queries import find_partitions

        found = find_partitions(",".join(self._addresses().values()))
        return None if found is None else [FoundPartition(one.leader, one.isr, one.replicas) for one in found]

    def _find(self, topic: str, partition: int) -> tuple[int | None, Sequence[int]]:
        from kraft.sim.chaos.clusters.cluster_queries import find_partition

        found = find_partition(self._addresses(), topic, partition)
        return found.leader, found.isr
