"""AdminListener: bind `kraft.admin.listener`, limit its connections, and decide whether the node is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kraft.broker.serving.metrics.quorum import quorum_state
from kraft.config.admin import LISTENER, admin_address, admin_tls
from kraft.raft.state import Follower
from kraft.seam import Address, Binding, CloseReason, Seam, Transport

if TYPE_CHECKING:
    from kraft.broker.admin.endpoints import Pages
    from kraft.broker.admin.node_view import NodeView
    from kraft.wire.http import HttpConnection

log = structlog.get_logger("kraft.node")

SETTLED = frozenset({"leader", "follower", "observer"})
"""Quorum states in which a node is ready. A voter in any state that is not listed has lost its leader."""
LOOK_MS = 500
"""Milliseconds between two checks for idle connections and for the lag of the applied metadata."""
LAG_MS_MAX = 1_000
"""Milliseconds that the applied metadata may lag behind the committed metadata; after a longer lag the node is not
ready."""
ABOVE_MAX = 16
"""Number of connections beyond the maximum that are still read: on them, probes are answered, and other requests get
503. Any more connections are closed at once."""
ABOVE_IDLE_MS = 5_000
"""Idle time in milliseconds after which a connection beyond the maximum is closed, so that probes can connect."""


class AdminListener:
    """The admin listener of one node. The constructor binds it, and raises AddressInUse, which names the port."""

    def __init__(self, node: NodeView, seam: Seam) -> None:
        config = node.config
        self._node = node
        self._clock = seam.clock
        self._connections: dict[HttpConnection, int] = {}
        """Open connection → idle time in ms after which it is closed."""
        self._connections_max = config.integer("kraft.admin.connections.max")
        self._head_bytes_max = config.integer("kraft.admin.head.bytes.max")
        self._idle_ms = config.integer("kraft.admin.idle.ms")
        self._replayed_ms = self._clock.monotonic_ms()
        """Monotonic time at which the applied metadata last reached the high watermark."""
        self._pages: Pages | None = None
        binding = Binding(LISTENER, Address(*admin_address(config)), admin_tls(config))
        self._bound = seam.network.serve(binding, self._accept)
        self._stats = seam.network.stats.listeners[LISTENER]

    @property
    def address(self) -> Address:
        """The bound address, with the port that the system chose if the configured port is 0."""
        return self._bound.address

    def not_ready(self) -> str | None:
        """Return why clients should not use the node, or None if it is ready. A broker that serves without a controller
        stays ready; otherwise a cluster that loses its controllers would lose its brokers too."""
        if self._node.is_stopping():
            return "the node is stopping"
        reason = self._controller_not_ready() if self._node.config.is_controller else None
        return reason or (self._node.broker.not_ready() if self._node.broker is not None else None)

    def _controller_not_ready(self) -> str | None:
        node = self._node
        state = quorum_state(node.quorum)
        if node.publisher.leader_id is None or state not in SETTLED:
            return f"no leader of the metadata quorum is known; this node is {state}"
        role = None if node.quorum.replica is None else node.quorum.replica.role
        if isinstance(role, Follower) and role.lost_since_ms is not None:
            return f"the leader of the metadata quorum, {node.publisher.leader_id}, does not answer"
        self._look_at_replay()
        if self._clock.monotonic_ms() - self._replayed_ms > LAG_MS_MAX:
            return f"the metadata are replayed to {node.publisher.image.offset} of {node.quorum.high_watermark}"
        return None

    async def run(self) -> None:
        """Close idle connections and check the lag of the applied metadata, until cancelled."""
        while True:
            await self._clock.sleep_ms(LOOK_MS)
            self._look_at_replay()
            now_ms = self._clock.monotonic_ms()
            for connection in [one for one, idle_ms in self._connections.items() if one.moved_ms < now_ms - idle_ms]:
                connection.transport.close(CloseReason.IDLE)

    def close(self) -> None:
        """Stop accepting connections. Open connections end only with the node's network, so that a stopping node still
        reports its state on them."""
        self._bound.close()

    def _look_at_replay(self) -> None:
        if self._node.publisher.image.offset >= self._node.quorum.high_watermark:
            self._replayed_ms = self._clock.monotonic_ms()

    def _accept(self, transport: Transport) -> HttpConnection:
        """Accept a connection. The first connection imports the HTTP module, so that a node without admin connections
        starts sooner and needs less memory."""
        from kraft.broker.admin.endpoints import Pages, answer_above_maximum
        from kraft.wire.http import HttpConnection

        if self._pages is None:
            self._pages = Pages(self._node, self.not_ready, self._stats)
        is_full = len(self._connections) >= self._connections_max
        connection = HttpConnection(
            transport,
            answer_above_maximum(self._pages, self._connections_max) if is_full else self._pages.answer,
            now_ms=self._clock.monotonic_ms,
            ended=self._forget,
            failed=_log_failure,
            head_bytes_max=self._head_bytes_max,
            keeps_alive=not is_full,
        )
        self._connections[connection] = min(self._idle_ms, ABOVE_IDLE_MS) if is_full else self._idle_ms
        if len(self._connections) > self._connections_max + ABOVE_MAX:
            transport.close()
        return connection

    def _forget(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)


def _log_failure(error: Exception) -> None:
    log.error("a page of the admin listener failed", error=repr(error), exc_info=error)
