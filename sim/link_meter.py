"""LinkMeter: bytes that passed between the nodes of a simulated cluster, and connections that ended.

Names are those of an observer's facts: "bytes 1->2" arrived from node 1 at node 2, "connections ended 1->2" were
dropped or closed, as the node that is named last was told. Clients are "clients".
"""

from __future__ import annotations

from collections import Counter

from kraft.seam import CloseReason, DialOutcome, Peer
from kraft.sim.cluster.shape import node_of
from kraft.sim.strayed_dials import StrayedDials
from kraft.sim.world.endpoint import Endpoint

CLIENTS_NAME = "clients"


class LinkMeter:
    """A world's observer. `strayed` is told of dials that failed."""

    def __init__(self, strayed: StrayedDials) -> None:
        self.counts: Counter[str] = Counter()
        self._strayed = strayed
        self._links: dict[tuple[str, str], str] = {}

    def _link(self, endpoint: Endpoint) -> str:
        """From whom this end hears, and whose it is."""
        ends = (endpoint.incoming.source.name, endpoint.host.name)
        found = self._links.get(ends)
        if found is None:
            found = self._links[ends] = "->".join(str(node_of(end) or CLIENTS_NAME) for end in ends)
        return found

    def received(self, endpoint: Endpoint, count: int) -> None:
        self.counts[f"bytes {self._link(endpoint)}"] += count

    def ended(self, endpoint: Endpoint, reason: CloseReason) -> None:
        self.counts[f"connections ended {self._link(endpoint)}"] += 1

    def dial_failed(self, node: str, peer: Peer, outcome: DialOutcome) -> None:
        self._strayed.dial_failed(node, peer, outcome)

    def handled(self, node: str) -> None: ...

    def sending(self, endpoint: Endpoint, data: bytes) -> None: ...

    def receiving(self, endpoint: Endpoint, count: int) -> None: ...
