"""Forwarding: a client's request goes to the active controller in its newest version, and comes back in the client's.

When no controller answers in time the outcome is unknown and the client is told REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraft.broker.serving.controller_channel import FORWARD_TIMEOUT_MS, ForwardRefused
from kraft.broker.serving.gates import QuotaKind
from kraft.broker.serving.request_versions import answer, throttled
from kraft.broker.serving.session import Session
from kraft.node.peers import RequestFailed
from kraft.wire import messages
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker

COUNTED_BYTES_MAX = 64 * 1024
"""The errors in an answer that is passed on are counted up to this size: to read more would hold up the loop."""

NOT_ANSWERED = "no controller answered in time; it is not known whether the request was carried out"

Finish = Callable[[Any], Any]
"""From the controller's response (newest class) to the client's: adds what this broker answers itself."""

Failure = Callable[[ErrorCode, str], Any]
"""The response (newest class) when the controller did not decide: error and text for every forwarded element."""


def forward(
    broker: Broker,
    request: Request,
    session: Session,
    message: Any,
    failure: Failure,
    *,
    finish: Finish | None = None,
    timeout_ms: int = FORWARD_TIMEOUT_MS,
    mutations: int = 0,
) -> None:
    """Forward `message` (newest class) and complete `request` when the answer is there. `mutations` is what counts
    against the quota of controller mutations: partitions created or deleted. What nothing is added to here goes to the
    controller and back in the client's version, as it is."""
    throttle_ms = broker.gates.throttle(session, QuotaKind.CONTROLLER_MUTATIONS, mutations) if mutations else 0
    if finish is None and throttle_ms == 0:
        broker.answer_later(
            request, _carry_as_it_is, broker, request, session, bytes(request.body), failure, timeout_ms
        )
        return
    body = messages.encode_request(request.api_key, messages.newest_version(request.api_key), message)

    async def carry() -> None:
        response = await _decided(broker, request.api_key, session, body, failure, timeout_ms)
        if finish is not None:
            response = finish(response)
        answer(request, throttled(response, throttle_ms))

    broker.answer_later(request, carry)


async def _carry_as_it_is(
    broker: Broker, request: Request, session: Session, body: bytes, failure: Failure, timeout_ms: int
) -> None:
    timeout_ms = max(1, min(timeout_ms, FORWARD_TIMEOUT_MS))
    key, version = request.api_key, request.api_version
    try:
        reply = await broker.controller.forward(session, key, body, version=version, timeout_ms=timeout_ms)
    except RequestFailed:
        answer(request, failure(ErrorCode.REQUEST_TIMED_OUT, NOT_ANSWERED))
    except ForwardRefused as refused:
        answer(request, failure(refused.error, str(refused)))
    else:
        request.respond(reply)
        if len(reply) <= COUNTED_BYTES_MAX:
            request.connection.meter.count_answer(key, messages.decode_response(key, version, reply))


async def _decided(
    broker: Broker, api_key: int, session: Session, body: bytes, failure: Failure, timeout_ms: int
) -> Any:
    timeout_ms = max(1, min(timeout_ms, FORWARD_TIMEOUT_MS))
    try:
        reply = await broker.controller.forward(session, api_key, body, timeout_ms=timeout_ms)
    except RequestFailed:
        return failure(ErrorCode.REQUEST_TIMED_OUT, NOT_ANSWERED)
    except ForwardRefused as refused:
        return failure(refused.error, str(refused))
    return messages.decode_response(api_key, messages.newest_version(api_key), reply)
