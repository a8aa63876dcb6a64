"""AdminListener: binds `kraft.admin.listener`, bounds its connections, and decides whether the node is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from kraft.broker.serving.metrics.quorum import quorum_state
from kraft.config.admin import LISTENER, admin_address, admin_tls
from kraft.raft.state import Follower
from kraft.seam import Address, Binding, CloseReason, Seam, Transport

if TYPE_CHECKING:
    from kraft.broker.admin.endpoints import Pages
    from kraft.broker.node.serve import Node
    from kraft.wire.http import HttpConnection

log = structlog.get_logger("kraft.node")

SETTLED = frozenset({"leader", "follower", "observer"})
"""A voter in any other state of the quorum has lost its leader."""
LOOK_MS = 500
"""Between two looks at idle connections and at how far the metadata are replayed."""
LAG_MS_MAX = 1_000
"""A node that has not replayed all that is committed for longer than this is not ready."""
ABOVE_MAX = 16
"""Connections above the maximum that are still read, for probes and to be told 503; further ones are closed at once."""
ABOVE_IDLE_MS = 5_000
"""They end sooner when they are idle, so that probes find room."""


class AdminListener:
    """Bound when it is made. AddressInUse names the port."""

    def __init__(self, node: Node, seam: Seam, version: Callable[[], str]) -> None:
        config = node.config
        self._node = node
        self._clock = seam.clock
        self._connections: dict[HttpConnection, int] = {}
        """Each that is open → after how many ms without a move it ends."""
        self._connections_max = config.integer("kraft.admin.connections.max")
        self._head_bytes_max = config.integer("kraft.admin.head.bytes.max")
        self._idle_ms = config.integer("kraft.admin.idle.ms")
        self._replayed_ms = self._clock.monotonic_ms()
        """When all that is committed was last seen to be replayed."""
        self._version = version
        self._pages: Pages | None = None
        binding = Binding(LISTENER, Address(*admin_address(config)), admin_tls(config))
        self._bound = seam.network.serve(binding, self._accept)
        self._stats = seam.network.stats.listeners[LISTENER]

    @property
    def address(self) -> Address:
        """With the port that was bound."""
        return self._bound.address

    def not_ready(self) -> str | None:
        """Why the node should get no work; None if it should. A broker goes on to serve while there is no controller;
        then it stays ready, or a cluster without controllers would lose its brokers too."""
        if self._node.is_stopping:
            return "the node is stopping"
        reason = self._controller_not_ready() if self._node.config.is_controller else None
        return reason or (self._broker_not_ready() if self._node.config.is_broker else None)

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

    def _broker_not_ready(self) -> str | None:
        from kraft.broker.node.lifecycle import BrokerState  # a controller alone has none of the broker's modules

        assert self._node.broker is not None
        broker = self._node.broker.broker
        state = broker.lifecycle.state
        if state is not BrokerState.RUNNING:
            return f"the broker's state is {state.name}"
        registration = self._node.publisher.image.brokers.get(broker.node_id)
        if registration is None or registration.broker_epoch != broker.lifecycle.broker_epoch:
            return "the broker is not registered"
        return "the broker is fenced" if registration.fenced else None

    async def run(self) -> None:
        """End idle connections, and look at the replay, until cancelled."""
        while True:
            await self._clock.sleep_ms(LOOK_MS)
            self._look_at_replay()
            now_ms = self._clock.monotonic_ms()
            for connection in [one for one, idle_ms in self._connections.items() if one.moved_ms < now_ms - idle_ms]:
                connection.transport.close(CloseReason.IDLE)

    def close(self) -> None:
        """Accept no more. The connections end with the seam, so that a node that stops still says so."""
        self._bound.close()

    def _look_at_replay(self) -> None:
        if self._node.publisher.image.offset >= self._node.quorum.high_watermark:
            self._replayed_ms = self._clock.monotonic_ms()

    def _accept(self, transport: Transport) -> HttpConnection:
        """The first connection imports HTTP: a node starts sooner without it, and is smaller if nobody asks."""
        from kraft.broker.admin.endpoints import Pages, answer_above_maximum
        from kraft.wire.http import HttpConnection

        if self._pages is None:
            self._pages = Pages(self._node, self.not_ready, self._version, self._stats)
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
