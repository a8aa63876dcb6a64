"""Forwarding: send a client's request to the active controller, and return its response in the client's version.

When no controller answers in time, the outcome is unknown and the client gets REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kraft.broker.serving.controller_channel import FORWARD_TIMEOUT_MS, ForwardRefused
from kraft.broker.serving.gates import QuotaKind
from kraft.broker.serving.request_versions import answer, throttled
from kraft.broker.serving.session import Session
from kraft.node.peers import PeerRequestFailed
from kraft.wire import messages
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.serving.gates import Gates
    from kraft.image import MetadataImage

COUNTED_BYTES_MAX = 64 * 1024
"""Maximum size in bytes of a forwarded response whose errors are counted in metrics. Decoding a larger one would block
the event loop for too long."""

NOT_ANSWERED = "no controller answered in time; it is not known whether the request was carried out"

Finish = Callable[[Any], Any]
"""Function that turns the controller's response (newest class) into the client's response, by adding the results of
this broker itself."""

Failure = Callable[[ErrorCode, str], Any]
"""Function that builds the response (newest class) when no controller decided: every element gets the same error and
text."""


class Forwarder:
    """Forwards the requests of one broker's clients."""

    def __init__(
        self,
        gates: Gates,
        newest_image: Callable[[], MetadataImage],
        forward: Callable[..., Awaitable[bytes]],
        answer_later: Callable[..., None],
    ) -> None:
        """`forward` is `ControllerChannel.forward`. `answer_later(request, function, *arguments)` awaits the function
        in a task; an error in it fails this request alone."""
        self.gates = gates
        self.newest_image = newest_image
        self._forward = forward
        self._answer_later = answer_later

    def forward(
        self,
        request: Request,
        session: Session,
        message: Any,
        failure: Failure,
        *,
        finish: Finish | None = None,
        timeout_ms: int = FORWARD_TIMEOUT_MS,
        mutations: int = 0,
    ) -> None:
        """Forward `message` (newest class). A task answers `request` with the controller's response.

        `mutations` is the number of partitions created or deleted; it counts against the quota of controller mutations.
        If this broker adds nothing to the response, the response is returned as bytes, in the client's version."""
        throttle_ms = self.gates.throttle(session, QuotaKind.CONTROLLER_MUTATIONS, mutations) if mutations else 0
        if finish is None and throttle_ms == 0:
            self._answer_later(
                request, self._carry_as_it_is, request, session, bytes(request.body), failure, timeout_ms
            )
            return
        body = messages.encode_request(request.api_key, messages.newest_version(request.api_key), message)

        async def carry() -> None:
            response = await self._decided(request.api_key, session, body, failure, timeout_ms)
            if finish is not None:
                response = finish(response)
            answer(request, throttled(response, throttle_ms))

        self._answer_later(request, carry)

    async def _carry_as_it_is(
        self, request: Request, session: Session, body: bytes, failure: Failure, timeout_ms: int
    ) -> None:
        timeout_ms = max(1, min(timeout_ms, FORWARD_TIMEOUT_MS))
        key, version = request.api_key, request.api_version
        try:
            reply = await self._forward(session, key, body, version=version, timeout_ms=timeout_ms)
        except PeerRequestFailed:
            answer(request, failure(ErrorCode.REQUEST_TIMED_OUT, NOT_ANSWERED))
        except ForwardRefused as refused:
            answer(request, failure(refused.error, str(refused)))
        else:
            request.respond(reply)
            if len(reply) <= COUNTED_BYTES_MAX:
                request.connection.meter.count_answer(key, messages.decode_response(key, version, reply))

    async def _decided(self, api_key: int, session: Session, body: bytes, failure: Failure, timeout_ms: int) -> Any:
        timeout_ms = max(1, min(timeout_ms, FORWARD_TIMEOUT_MS))
        try:
            reply = await self._forward(session, api_key, body, timeout_ms=timeout_ms)
        except PeerRequestFailed:
            return failure(ErrorCode.REQUEST_TIMED_OUT, NOT_ANSWERED)
        except ForwardRefused as refused:
            return failure(refused.error, str(refused))
        return messages.decode_response(api_key, messages.newest_version(api_key), reply)
