"""Each controller's own registration, by which the active controller learns every controller's endpoints and feature
levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from kraft.control import RegisterControllerCommand
from kraft.control.features import SUPPORTED_FEATURES
from kraft.image import ControllerRegistration, Endpoint
from kraft.node.peers import PeerRequestFailed
from kraft.seam import Address, Peer
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import RegisterControllerRequest

if TYPE_CHECKING:
    from uuid import UUID

    from kraft.config import NodeConfig
    from kraft.controller.command_queue import CommandQueue
    from kraft.node.peers import Peers
    from kraft.quorum.publisher import MetadataPublisher
    from kraft.quorum.quorum import Quorum
    from kraft.seam import Clock

log = structlog.get_logger("kraft.controller")

TIMEOUT_MS = 5_000
BACKOFF_MS = 50
BACKOFF_MS_MAX = 2_000
PURPOSE = "controller-registration"


class OwnRegistration:
    """Registers this controller with the active one, whenever its registration in the committed image is missing or
    outdated."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        quorum: Quorum,
        publisher: MetadataPublisher,
        peers: Peers,
        queue: CommandQueue,
        *,
        cluster_id: str,
        incarnation_id: UUID,
    ) -> None:
        self._config = config
        self._clock = clock
        self._quorum = quorum
        self._publisher = publisher
        self._peers = peers
        self._queue = queue
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._changed = trio.Event()
        self.endpoints: tuple[Endpoint, ...] = ()

    def changed(self) -> None:
        """Check whether the registration is outdated, after a change of the leader or of the image."""
        self._changed.set()

    def listening(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Set the advertised listeners, once they are bound."""
        self.endpoints = endpoints
        self.changed()

    async def run(self) -> None:
        """Keep the registration up to date until cancelled."""
        backoff_ms = BACKOFF_MS
        while True:
            self._changed = trio.Event()
            if await self._is_settled():
                backoff_ms = BACKOFF_MS
                await self._changed.wait()
            else:
                await self._clock.sleep_ms(backoff_ms)
                backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)

    async def _is_settled(self) -> bool:
        """Register with the active controller if that is needed. Return False if it must be tried again."""
        own = ControllerRegistration(self._config.node_id, self._incarnation_id, self.endpoints, SUPPORTED_FEATURES)
        leader_id = self._publisher.leader_id
        is_known = self._publisher.image.controllers.get(self._config.node_id) == own
        if is_known or leader_id is None or not self.endpoints:
            return True
        if leader_id == self._config.node_id:
            if self._queue.is_active:
                self._queue.submit(self._command())
            return True
        return await self._register_at(leader_id)

    def _command(self) -> RegisterControllerCommand:
        return RegisterControllerCommand(
            cluster_id=self._cluster_id,
            controller_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            endpoints=self.endpoints,
            features=SUPPORTED_FEATURES,
        )

    async def _register_at(self, leader_id: int) -> bool:
        peer = self._leader(leader_id)
        if peer is None:
            return False
        command = self._command()
        message = RegisterControllerRequest(
            cluster_id=command.cluster_id,
            controller_id=command.controller_id,
            incarnation_id=command.incarnation_id,
            endpoints=command.endpoints,
            features=command.features,
        )
        try:
            answer = await self._peers.request(peer, message, timeout_ms=TIMEOUT_MS, purpose=PURPOSE)
        except PeerRequestFailed:
            return False
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER):
            log.warning("registration refused", error=ErrorCode.of(answer.error_code).name, why=answer.error_message)
        if answer.error_code != ErrorCode.NONE:
            return False
        await self._clock.wait_at_most(self._changed, TIMEOUT_MS)
        return True

    def _leader(self, leader_id: int) -> Peer | None:
        listener = self._config.controller_listener_names[0]
        for node_id, host, port in self._quorum.describe().endpoints:
            if node_id == leader_id:
                return Peer(node_id, listener, Address(host, port), self._config.dial_tls(listener))
        return None
