"""What a world tells whoever watches it. Watching changes nothing: no time passes and no chance is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kraft.seam import DialOutcome, Peer
    from kraft.sim.world.endpoint import Endpoint


class WorldObserver(Protocol):
    """All are called in the order of events, on the world's one thread."""

    def handled(self, node: str) -> None:
        """A node has handled what came in; nothing that it wants to send has left yet."""
        ...

    def sending(self, endpoint: Endpoint, data: bytes) -> None:
        """These bytes leave a node now."""
        ...

    def dial_failed(self, node: str, peer: Peer, outcome: DialOutcome) -> None:
        """A node's dial did not give a connection."""
        ...
