"""LinkMeter: number of bytes that passed between the nodes of a simulated cluster, and number of connections that
ended.

The names of its figures give source and target. "bytes 1->2" arrived from node 1 at node 2. "connections ended 1->2"
were dropped or closed, as node 2 observed it. Clients are named "clients".
"""

from __future__ import annotations

from collections import Counter

from kraft.seam import CloseReason, DialOutcome, Peer
from kraft.sim.cluster.shape import node_of
from kraft.sim.strayed_dials import StrayedDials
from kraft.sim.world.endpoint import FakeEndpoint

CLIENTS_NAME = "clients"


class LinkMeter:
    """Observer of a simulated world that counts bytes and ended connections. `strayed` is notified of failed dials."""

    def __init__(self, strayed: StrayedDials) -> None:
        self.counts: Counter[str] = Counter()
        self._strayed = strayed
        self._links: dict[tuple[str, str], str] = {}

    def _link(self, endpoint: FakeEndpoint) -> str:
        """Return (source, target) of the bytes that this end receives."""
        ends = (endpoint.incoming.source.name, endpoint.host.name)
        found = self._links.get(ends)
        if found is None:
            found = self._links[ends] = "->".join(str(node_of(end) or CLIENTS_NAME) for end in ends)
        return found

    def received(self, endpoint: FakeEndpoint, count: int) -> None:
        self.counts[f"bytes {self._link(endpoint)}"] += count

    def ended(self, endpoint: FakeEndpoint, reason: CloseReason) -> None:
        self.counts[f"connections ended {self._link(endpoint)}"] += 1

    def dial_failed(self, node: str, peer: Peer, outcome: DialOutcome) -> None:
        self._strayed.dial_failed(node, peer, outcome)

    def handled(self, node: str) -> None: ...

    def sending(self, endpoint: FakeEndpoint, data: bytes) -> None: ...

    def receiving(self, endpoint: FakeEndpoint, count: int) -> None: ...
