"""InitProducerId: return a producer id for an idempotent producer, or the next producer id and epoch of a transactional
id.

Any broker gives out producer ids from its block of ids. A request with a transactional id goes to the transaction
coordinator.
Source: InitProducerIdRequest 0 to 5, KIP-98, KIP-360.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.api.transactions import error_for, transaction_resource
from kraft.broker.serving.gates import Operation, ResourceType
from kraft.broker.serving.request_versions import answer, read, respond
from kraft.broker.serving.session import Session
from kraft.broker.txn.requests import InitReply, InitRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FIRST_WITH_PRODUCER_FENCED = 4
"""First version whose clients know PRODUCER_FENCED."""


def handle_init_producer_id(context: HandlerContext, request: Request, session: Session) -> None:
    """Answer an idempotent producer from this broker's block of ids, at once or when the next block has arrived. Pass a
    request with a transactional id to its coordinator."""
    message = read(request)
    gates = context.gates
    if message.transactional_id is not None:
        _ask_coordinator(context, request, session, message)
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


def _ask_coordinator(context: HandlerContext, request: Request, session: Session, message: Any) -> None:
    def reply(answered: InitReply) -> None:
        if answered.error is ErrorCode.NONE:
            fields = {"producer_id": answered.producer_id, "producer_epoch": answered.producer_epoch}
            answer(request, respond(ApiKey.INIT_PRODUCER_ID, **fields))
        else:
            _refuse(request, error_for(request.api_version, FIRST_WITH_PRODUCER_FENCED, answered.error))

    if not context.gates.authorize(session, Operation.WRITE, transaction_resource(message.transactional_id)):
        _refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not message.transactional_id:
        _refuse(request, ErrorCode.INVALID_REQUEST)
    else:
        init = InitRequest(
            message.transactional_id,
            milliseconds(message.transaction_timeout),
            message.producer_id,
            message.producer_epoch,
        )
        context.transactions.submit(init, partial(context.finish, request, reply))


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
