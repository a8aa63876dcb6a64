"""Callbacks of a world for an observer. Observing changes nothing: it takes no time and draws no random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kraft.seam import CloseReason, DialOutcome, Peer
    from kraft.sim.world.endpoint import FakeEndpoint


class WorldObserver(Protocol):
    """Callbacks for an observer of a world. All run in the order of events, in the world's one thread."""

    def handled(self, node: str) -> None:
        """Called when a node has handled incoming data; nothing that it wants to send has been sent yet."""
        ...

    def sending(self, endpoint: FakeEndpoint, data: bytes) -> None:
        """Called when a node sends these bytes."""
        ...

    def receiving(self, endpoint: FakeEndpoint, count: int) -> None:
        """Called when the next `count` bytes are about to be handled at this end."""
        ...

    def received(self, endpoint: FakeEndpoint, count: int) -> None:
        """Called when these bytes were handled."""
        ...

    def ended(self, endpoint: FakeEndpoint, reason: CloseReason) -> None:
        """Called when a connection ended at this end; its owner is not notified yet. Not called for a node that
        crashed."""
        ...

    def dial_failed(self, node: str, peer: Peer, outcome: DialOutcome) -> None:
        """Called when a node's dial failed."""
        ...
