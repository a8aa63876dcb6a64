"""Operations that break the links between the nodes of a cluster: cuts and degraded quality.

Invariant: a link stays in its state until a call restores it or `heal` restores all links. This includes links of nodes
that are started meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from kraft.seam import LinkQuality
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import EVERYWHERE
from kraft.sim.nemesis.partition_shapes import CLIENTS, Pair, between
from kraft.sim.shapes import ClusterError

Group = int | Iterable[int]
"""A node or several nodes on one side of a partition."""


class BreakableLinks(ABC):
    """A cluster whose links can be broken; see the module. Base class of `BreakableCluster`, which adds operations on
    nodes and requests."""

    fault_kinds: ClassVar[tuple[str, ...]] = EVERYWHERE
    """Kinds of faults (kraft.sim.nemesis.plan.Fault) that `carry_out` accepts."""

    cut_manners: ClassVar[tuple[str, ...]] = (plan.HANG,)
    """Ways in which this cluster can cut links: a selection of kraft.sim.nemesis.plan.CUT_MANNERS."""

    def __init__(self) -> None:
        self._cuts: dict[tuple[int, int], str] = {}
        """(source, target) of each cut link → manner of the cut. A partition cuts both directions, so it has two
        entries per pair."""
        self._qualities: dict[tuple[int, int], LinkQuality] = {}
        """(source, target) of each slow or lossy link → its quality."""

    def partition(self, *groups: Group) -> None:
        """Cut the links between nodes of different groups until `heal`, as a broken switch does: nothing passes, and no
        node gets an error. A node in no group keeps its links to all nodes. Clients still reach all nodes."""
        sides = [frozenset({group} if isinstance(group, int) else group) for group in groups]
        if len(sides) < 2 or not all(sides):
            raise ClusterError("a partition has two groups of nodes at least, as partition({1}, {2, 3})")
        members = [node for side in sides for node in sorted(side)]
        for node in members:
            self._require(node)
        if len(members) != len(set(members)):
            raise ClusterError(f"a node is on one side of a partition, not on two: {members}")
        self.cut(between(*map(sorted, sides)))

    def rejoin(self, *groups: Group) -> None:
        """End the partition between these groups. Other partitions remain."""
        self.join(between(*({group} if isinstance(group, int) else group for group in groups)))

    def cut(self, pairs: Iterable[Pair], *, manner: str = plan.HANG) -> None:
        """Cut the link between the two ends of each pair in both directions until `heal`, as `partition` does.
        `kraft.sim.nemesis.partition_shapes` returns such pairs for partitions of other shapes. 0 (`CLIENTS`) stands for
        all clients, where clients can be cut off. `manner`: one of this cluster's `cut_manners`."""
        self._require_manner(manner)
        links = [link for one, other in _checked(pairs) for link in ((one, other), (other, one))]
        for link in links:
            self._require_link(*link)
        self._cuts.update(dict.fromkeys(links, manner))
        self._cut_links()

    def join(self, pairs: Iterable[Pair]) -> None:
        """End the cuts between the two ends of each pair. Other cuts remain."""
        for one, other in _checked(pairs):
            self._cuts.pop((one, other), None)
            self._cuts.pop((other, one), None)
        self._cut_links()

    def cut_one_way(self, source: int, target: int) -> None:
        """Hold back everything that one node sends to another until `heal`, or until `join` of these two. The held data
        arrives then."""
        self._require_link(source, target)
        self._cuts[source, target] = plan.HANG
        self._cut_links()

    def degrade(
        self,
        source: int,
        target: int,
        *,
        latency_ms: int = 0,
        jitter_ms: int = 0,
        bytes_per_second: int = 0,
        bytes_max: int = 0,
    ) -> None:
        """Degrade the link from one node to another until `heal` or `restore`. Data takes `latency_ms` longer, plus up
        to `jitter_ms`, and arrives at `bytes_per_second`. Each connection ends when `bytes_max` have passed, even
        within a frame. 0: no limit. This replaces the link's earlier quality."""
        self._require_link(source, target)
        if min(latency_ms, jitter_ms, bytes_per_second, bytes_max) < 0:
            raise ClusterError("latency, jitter, bytes per second and bytes are 0 or more")
        self._qualities[source, target] = LinkQuality(
            latency_ms=latency_ms, jitter_ms=jitter_ms, bytes_per_second=bytes_per_second, bytes_max=bytes_max
        )
        self._cut_links()

    def restore(self, source: int, target: int) -> None:
        """Restore the normal quality of the link from one node to another."""
        self._qualities.pop((source, target), None)
        self._cut_links()

    def _require_manner(self, manner: str) -> None:
        if manner not in self.cut_manners:
            raise ClusterError(f"links cannot be cut by {manner!r} here: {', '.join(self.cut_manners)} can be had")

    def _links_of(self, node: int) -> list[tuple[int, int]]:
        """Return all links of a node, or of clients, in both directions. Links between a node and clients are included
        only where they can be broken."""
        if node == CLIENTS:
            return [link for broker in self.broker_ids for link in ((node, broker), (broker, node))]
        clients = [CLIENTS] if plan.CLIENTS_CUT in self.fault_kinds and node in self.broker_ids else []
        peers = [*clients, *(peer for peer in self.node_ids if peer != node)]
        return [link for peer in peers for link in ((node, peer), (peer, node))]

    def _restore_all(self, links: Iterable[tuple[int, int]]) -> None:
        for link in links:
            self._qualities.pop(link, None)
        self._cut_links()

    def _require_link(self, source: int, target: int) -> None:
        if source == target:
            raise ClusterError(f"a link has two ends, and this has {source} twice")
        if CLIENTS in (source, target) and plan.CLIENTS_CUT not in self.fault_kinds:
            raise ClusterError("clients cannot be cut off here: brokers serve them and each other at the same address")
        for node in {source, target} - {CLIENTS}:
            self._require(node)

    def has_link(self, source: int, target: int) -> bool:
        """Return whether this cluster has a link between these two ends."""
        return True

    def is_cut(self, source: int, target: int) -> bool:
        """Return whether nothing passes from one node to another; 0 means clients."""
        for node in {source, target} - {CLIENTS}:
            self._require(node)
        return (source, target) in self._cuts

    def _end_cut(self, link: tuple[int, int]) -> None:
        self._cuts.pop(link, None)
        self._cut_links()

    # primitives

    @property
    @abstractmethod
    def node_ids(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def broker_ids(self) -> tuple[int, ...]: ...

    @abstractmethod
    def _require(self, node: int, *, running: bool | None = None) -> None:
        """Raise ClusterError if the node does not exist or is not in the required state."""

    @abstractmethod
    def _cut_links(self) -> None:
        """Bring the links into the states that `_cuts` and `_qualities` require."""


def _checked(pairs: Iterable[Pair]) -> list[Pair]:
    given = list(pairs)
    for pair in given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ClusterError(f"what is cut are pairs of nodes, as [(1, 2), (1, 3)]: {pair!r} is none")
    return given
