"""LeaderDialer: find the address of a leader from which this broker fetches, and connect to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from kraft.seam import Address, CloseReason, DialFailed, Network, Peer, Transport
from kraft.wire.client import ClientConnection

if TYPE_CHECKING:
    from kraft.config import NodeConfig
    from kraft.image.image import MetadataImage
    from kraft.image.registrations import Endpoint
    from kraft.wire.budget import MemoryBudget

log = structlog.get_logger("kraft.broker.fetcher")

DIAL_TIMEOUT_MS = 5_000


class LeaderDialer:
    """Connects to leaders, at the addresses that they registered in the newest image. Only `dial` suspends."""

    def __init__(
        self, config: NodeConfig, network: Network, newest_image: Callable[[], MetadataImage], memory: MemoryBudget
    ) -> None:
        """`memory` is the memory budget that the connections use."""
        self._listener = config.inter_broker_listener_name
        self._tls = config.tls(self._listener)
        self._network = network
        self._newest_image = newest_image
        self._memory = memory

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return the address of a broker's inter-broker listener; None if the broker is not registered."""
        broker = self._newest_image().brokers.get(broker_id)
        return None if broker is None else broker.endpoint(self._listener)

    def incarnation(self, broker_id: int) -> UUID | None:
        """Return the incarnation id in a broker's registration."""
        broker = self._newest_image().brokers.get(broker_id)
        return None if broker is None else broker.incarnation_id

    async def dial(
        self,
        broker_id: int,
        endpoint: Endpoint,
        client_id: str,
        on_closed: Callable[[ClientConnection, CloseReason], None],
    ) -> ClientConnection | None:
        """Connect to a broker. Return None if it cannot be reached."""

        def make(transport: Transport) -> ClientConnection:
            return ClientConnection(transport, client_id=client_id, on_closed=on_closed, budget=self._memory)

        peer = Peer(broker_id, endpoint.name, Address(endpoint.host, endpoint.port), self._tls)
        try:
            connection = await self._network.dial(peer, make, timeout_ms=DIAL_TIMEOUT_MS)
        except DialFailed as failure:
            write = log.warning if failure.why else log.debug
            write("leader cannot be reached", leader=broker_id, error=str(failure))
            return None
        return None if connection.is_closed else connection
