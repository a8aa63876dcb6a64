"""The verbs that break the links of a cluster: what is cut, and what fares badly, from node to node.

Invariant: what is said of a link holds until it is ended or all is healed, also for nodes that are started meanwhile.
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
"""A node, or several, on one side of a partition."""


class BreakableLinks(ABC):
    """See the module. A part of `BreakableCluster`, which has the nodes."""

    fault_kinds: ClassVar[tuple[str, ...]] = EVERYWHERE
    """The kinds of faults (kraft.sim.nemesis.plan.Fault) that `carry_out` takes."""

    cut_manners: ClassVar[tuple[str, ...]] = (plan.HANG,)
    """How links can be cut here, some of kraft.sim.nemesis.plan.CUT_MANNERS."""

    def __init__(self) -> None:
        self._cuts: dict[tuple[int, int], str] = {}
        """Links that are cut, from source to target, and the manner: those of a partition are here both ways."""
        self._qualities: dict[tuple[int, int], LinkQuality] = {}
        """Of links on which bytes fare badly, from source to target."""

    def partition(self, *groups: Group) -> None:
        """Cut the links between nodes of different groups until `heal`, as a broken switch does: nothing passes, and
        nobody is told. A node in no group reaches all; clients do too."""
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
        """End the partition of these groups, and no other."""
        self.join(between(*({group} if isinstance(group, int) else group for group in groups)))

    def cut(self, pairs: Iterable[Pair], *, manner: str = plan.HANG) -> None:
        """Let nothing pass between the two of each pair, either way, until `heal`, as with `partition`. Partitions of
        certain shapes are such pairs: see `kraft.sim.nemesis.partition_shapes`; 0 (`CLIENTS`) stands for all clients,
        where they can be cut off. `manner`: one of this cluster's `cut_manners`."""
        self._require_manner(manner)
        links = [link for one, other in _checked(pairs) for link in ((one, other), (other, one))]
        for link in links:
            self._require_link(*link)
        self._cuts.update(dict.fromkeys(links, manner))
        self._cut_links()

    def join(self, pairs: Iterable[Pair]) -> None:
        """End the cuts between the two of each pair, and no other."""
        for one, other in _checked(pairs):
            self._cuts.pop((one, other), None)
            self._cuts.pop((other, one), None)
        self._cut_links()

    def cut_one_way(self, source: int, target: int) -> None:
        """Let nothing that one node sends to another arrive until `heal`, or `join` of these two: it arrives then."""
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
        """Let what one node sends to another fare badly until `heal` or `restore`: it takes `latency_ms` longer, and up
        to `jitter_ms` more; it comes with so many `bytes_per_second`; each connection ends when `bytes_max` have
        passed, wherever in a frame that is. 0: no limit. What was said before of this link holds no more."""
        self._require_link(source, target)
        if min(latency_ms, jitter_ms, bytes_per_second, bytes_max) < 0:
            raise ClusterError("latency, jitter, bytes per second and bytes are 0 or more")
        self._qualities[source, target] = LinkQuality(
            latency_ms=latency_ms, jitter_ms=jitter_ms, bytes_per_second=bytes_per_second, bytes_max=bytes_max
        )
        self._cut_links()

    def restore(self, source: int, target: int) -> None:
        """What one node sends to another fares well again."""
        self._qualities.pop((source, target), None)
        self._cut_links()

    def _require_manner(self, manner: str) -> None:
        if manner not in self.cut_manners:
            raise ClusterError(f"links cannot be cut by {manner!r} here: {', '.join(self.cut_manners)} can be had")

    def _links_of(self, node: int) -> list[tuple[int, int]]:
        """All links of a node, or of clients, both ways; those of a node with clients only where they can be broken."""
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
        """Whether anything ever passes between these two here."""
        return True

    def is_cut(self, source: int, target: int) -> bool:
        """Whether nothing passes from one node to another; 0 stands for clients."""
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
        """ClusterError if there is no such node, or it does not run as it should."""

    @abstractmethod
    def _cut_links(self) -> None:
        """Make the links as `_cuts` and `_qualities` say."""


def _checked(pairs: Iterable[Pair]) -> list[Pair]:
    given = list(pairs)
    for pair in given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ClusterError(f"what is cut are pairs of nodes, as [(1, 2), (1, 3)]: {pair!r} is none")
    return given
