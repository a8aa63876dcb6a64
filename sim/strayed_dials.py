"""Finds dials of an application to addresses that belong to no node. A dial to a wrong address waits like a dial to a
broker that is down; only an observer of the whole simulated world can distinguish the two.
"""

from __future__ import annotations

from kraft.seam import Address, CloseReason, DialOutcome, Peer
from kraft.sim.cluster.shape import BROKER_PORT, CONTROLLER_PORT, ClusterShape, host_name
from kraft.sim.world.endpoint import FakeEndpoint


class StrayedDials:
    """An observer of a world: collects the failed dials of `dialler` to addresses that belong to no node."""

    def __init__(self, dialler: str, shape: ClusterShape) -> None:
        self._dialler = dialler
        self._bootstrap_servers = shape.bootstrap_servers
        brokers = [Address(host_name(node), BROKER_PORT) for node in shape.broker_ids]
        controllers = [Address(host_name(node), CONTROLLER_PORT) for node in shape.controller_ids]
        self._known = frozenset([*brokers, *controllers])
        self._strayed: dict[Address, None] = {}

    def __str__(self) -> str:
        """Return a sentence about the wrong addresses, for the author of the application; "" if it dialled
        only nodes."""
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

    def sending(self, endpoint: FakeEndpoint, data: bytes) -> None: ...

    def receiving(self, endpoint: FakeEndpoint, count: int) -> None: ...

    def received(self, endpoint: FakeEndpoint, count: int) -> None: ...

    def ended(self, endpoint: FakeEndpoint, reason: CloseReason) -> None: ...
