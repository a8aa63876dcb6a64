"""What a world tells whoever watches it. Watching changes nothing: no time passes and no chance is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kraft.seam import CloseReason, DialOutcome, Peer
    from kraft.sim.world.endpoint import Endpoint


class WorldObserver(Protocol):
    """All are called in the order of events, on the world's one thread."""

    def handled(self, node: str) -> None:
        """A node has handled what came in; nothing that it wants to send has left yet."""
        ...

    def sending(self, endpoint: Endpoint, data: bytes) -> None:
        """These bytes leave a node now."""
        ...

    def receiving(self, endpoint: Endpoint, count: int) -> None:
        """The next `count` bytes are about to be handled at this end."""
        ...

    def received(self, endpoint: Endpoint, count: int) -> None:
        """They were handled."""
        ...

    def ended(self, endpoint: Endpoint, reason: CloseReason) -> None:
        """A connection is over, as this end sees it; its owner is not told yet. Not called for a node that crashed."""
        ...

    def dial_failed(self, node: str, peer: Peer, outcome: DialOutcome) -> None:
        """A node's dial did not give a connection."""
        ...
