"""A controller without a quorum: it decides like a controller, but has an image instead of a log."""

from __future__ import annotations

from typing import Any

from kraft.broker.serving.controller_channel import ForwardRefused
from kraft.broker.serving.session import Session
from kraft.config import NodeConfig
from kraft.control import AdminRequest, AllocateProducerIds, Context, Requester, decide
from kraft.control.decision import Authorize, allow_all
from kraft.image import MetadataImage, replay
from kraft.node.peers import CallOutcome, PeerRequestFailed
from kraft.seam import Address, Peer
from kraft.wire import messages
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import AllocateProducerIdsResponse


class DecidingController:
    """Stands in for ControllerChannel: decides requests on `image`. `failing` makes every request fail."""

    def __init__(self, image: MetadataImage, config: NodeConfig, *, authorize: Authorize = allow_all) -> None:
        self.image = image
        self.config = config
        self.authorize = authorize
        self.failing: ErrorCode | CallOutcome | None = None
        self.requests: list[tuple[Session, int, int]] = []
        self._seed = 0

    async def forward(
        self, session: Session, api_key: int, body: bytes, *, timeout_ms: int, version: int | None = None
    ) -> bytes:
        self.requests.append((session, api_key, timeout_ms))
        if isinstance(self.failing, CallOutcome):
            raise PeerRequestFailed(Peer(None, "CONTROLLER", Address("c1", 9192)), self.failing)
        if self.failing is not None:
            raise ForwardRefused(self.failing)
        newest = messages.newest_version(api_key) if version is None else version
        requester = Requester(session.principal, session.client_address, session.client_id)
        request = messages.decode_request(api_key, newest, body)
        reply = self._decide(AdminRequest(api_key=api_key, request=request, requester=requester))
        return messages.encode_response(api_key, newest, reply)

    async def request(self, message: Any, *, timeout_ms: int = 30_000) -> AllocateProducerIdsResponse:
        """Answer a request for a block of producer ids."""
        if isinstance(self.failing, CallOutcome):
            raise PeerRequestFailed(Peer(None, "CONTROLLER", Address("c1", 9192)), self.failing)
        reply = self._decide(AllocateProducerIds(broker_id=message.broker_id, broker_epoch=message.broker_epoch))
        return AllocateProducerIdsResponse(
            error_code=int(reply.error_code), first_producer_id=reply.first_producer_id, count=reply.count
        )

    def _decide(self, command: Any) -> Any:
        self._seed += 1
        context = Context(
            now_ms=0,
            next_offset=self.image.offset,
            seed=self._seed,
            config=self.config,
            cluster_id="Some-cluster-id-1234AB",
            authorize=self.authorize,
        )
        reply = None
        while command is not None:
            decision = decide(self.image, context, command)
            end = self.image.offset + len(decision.events)
            self.image = replay(self.image, decision.events, end, 1)
            command, reply = decision.follow_up, decision.reply
        return reply
