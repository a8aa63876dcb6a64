"""InitProducerId: return a producer id for an idempotent producer.

A transactional id needs a transaction coordinator, which this cluster lacks. The request is rejected with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only error that every client treats as final. After any other error, some
clients retry without end.
Source: InitProducerIdRequest 0 to 5, KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.api.absent_features import NO_TRANSACTIONS, warn
from kraft.broker.serving.gates import Operation, ResourceType
from kraft.broker.serving.request_versions import answer, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle_init_producer_id(context: HandlerContext, request: Request, session: Session) -> None:
    """Answer at once from this broker's block of ids, or once the next block has arrived."""
    message = read(request)
    gates = context.gates
    if message.transactional_id is not None:
        if not message.transactional_id:
            _refuse(request, ErrorCode.INVALID_REQUEST)
            return
        warn(context.log_limit, session, "a producer has a transactional.id", NO_TRANSACTIONS)
        _refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if not (
        gates.authorize_cluster(session, Operation.IDEMPOTENT_WRITE)
        or gates.authorize_any(session, Operation.WRITE, ResourceType.TOPIC)
    ):
        _refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_PRODUCER_EPOCH):
        _refuse(request, ErrorCode.INVALID_REQUEST)
        return
    producer_id = context.producer_ids.take_nowait()
    if producer_id is not None:
        _give(request, producer_id)
    else:
        context.answer_later(request, _wait, context, request)


async def _wait(context: HandlerContext, request: Request) -> None:
    producer_id = await context.producer_ids.take()
    if producer_id is None:
        _refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    else:
        _give(request, producer_id)


def _give(request: Request, producer_id: int) -> None:
    answer(request, respond(ApiKey.INIT_PRODUCER_ID, producer_id=producer_id, producer_epoch=0))


def _refuse(request: Request, error: ErrorCode) -> None:
    answer(
        request,
        respond(
            ApiKey.INIT_PRODUCER_ID, error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        ),
    )
