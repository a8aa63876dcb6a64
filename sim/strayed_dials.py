"""Where an application looks for its cluster, and there is none: a wrong address waits like a broker that is down, and
only who knows the whole world can tell the two apart."""

from __future__ import annotations

from kraft.seam import Address, CloseReason, DialOutcome, Peer
from kraft.sim.cluster.shape import BROKER_PORT, CONTROLLER_PORT, ClusterShape, host_name
from kraft.sim.world.endpoint import Endpoint


class StrayedDials:
    """A world's observer: of what `dialler` dials in vain, it keeps what is no node's address."""

    def __init__(self, dialler: str, shape: ClusterShape) -> None:
        self._dialler = dialler
        self._bootstrap_servers = shape.bootstrap_servers
        brokers = [Address(host_name(node), BROKER_PORT) for node in shape.broker_ids]
        controllers = [Address(host_name(node), CONTROLLER_PORT) for node in shape.controller_ids]
        self._known = frozenset([*brokers, *controllers])
        self._strayed: dict[Address, None] = {}

    def __str__(self) -> str:
        """A sentence for whoever wrote the application; "" if it dialled nothing but nodes."""
        if not self._strayed:
            return ""
        where = ", ".join(map(str, self._strayed))
        return (
            f"the application dialled {where}, where no node of this simulated cluster is; its bootstrap_servers are "
            f"{self._bootstrap_servers}"
        )

    def dial_failed(self, node: str, peer: Peer, outcome: DialOutcome) -> None:
        if node == self._dialler and peer.address not in self._known:
            self._strayed[peer.address] = None

    def handled(self, node: str) -> None: ...

    def sending(self, endpoint: Endpoint, data: bytes) -> None: ...

    def receiving(self, endpoint: Endpoint, count: int) -> None: ...

    def received(self, endpoint: Endpoint, count: int) -> None: ...

    def ended(self, endpoint: Endpoint, reason: CloseReason) -> None: ...
