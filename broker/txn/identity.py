"""InitProducerId for a transactional id: return a producer id and epoch, and fence the producer that had the id before.

A transactional id that is new, or whose epochs are used up, gets another producer id. Any other gets the next epoch. An
open transaction of the previous producer is aborted first; until that is complete, the new producer must retry.
Source: KIP-98, KIP-360, KIP-890, Kafka's TransactionCoordinator.
"""

from __future__ import annotations

from kraft.broker.txn.ending import fence
from kraft.broker.txn.records import NO_PRODUCER_ID, NO_TIMESTAMP, TransactionValue
from kraft.broker.txn.requests import NO_EPOCH, InitReply, InitRequest, Ticket
from kraft.broker.txn.shard import TransactionShard
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.step import StepBuilder
from kraft.broker.txn.transaction import LAST_USABLE_EPOCH, Transaction
from kraft.wire.error_codes import ErrorCode


def init_producer_id(shard: TransactionShard, request: InitRequest, ticket: Ticket, builder: StepBuilder) -> None:
    """Reply with the producer id and epoch when they are committed, or with an error."""
    error = _request_error(shard, request)
    transaction = shard.transactions.get(request.transactional_id)
    if error is ErrorCode.NONE and transaction is not None:
        error = _conflict(transaction, request)
    if error is not ErrorCode.NONE:
        builder.reply(ticket, InitReply(error))
    elif transaction is None or transaction.value is None:
        _begin(shard, request, ticket, builder)
    elif transaction.value.state is TransactionState.ONGOING:
        fence(shard, transaction, builder, is_replaced=True)
        builder.reply(ticket, InitReply(ErrorCode.CONCURRENT_TRANSACTIONS))
    elif transaction.is_exhausted and request.producer_epoch in (NO_EPOCH, transaction.value.producer_epoch):
        _rotate(shard, transaction, request, ticket, builder)
    else:
        _bump(shard, transaction, request, ticket, builder)


def _request_error(shard: TransactionShard, request: InitRequest) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.timeout_ms <= shard.settings.timeout_ms_max:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _conflict(transaction: Transaction, request: InitRequest) -> ErrorCode:
    """Return an error if the request names an outdated identity, or if another change of this id is in progress."""
    value = transaction.value
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if value is None:
        return ErrorCode.NONE
    if request.producer_epoch > LAST_USABLE_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    if transaction.is_next_id(request.producer_id):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if request.producer_id not in (NO_PRODUCER_ID, value.producer_id):
        was_rotated = request.producer_id == value.previous_producer_id and request.producer_epoch >= LAST_USABLE_EPOCH
        if not was_rotated:
            return ErrorCode.PRODUCER_FENCED
    if value.state is TransactionState.ONGOING and request.producer_epoch not in (NO_EPOCH, value.producer_epoch):
        return ErrorCode.PRODUCER_FENCED  # a delayed request, which must not abort the transaction
    return ErrorCode.CONCURRENT_TRANSACTIONS if value.state.is_prepared else ErrorCode.NONE


def _begin(shard: TransactionShard, request: InitRequest, ticket: Ticket, builder: StepBuilder) -> None:
    producer_id = shard.take_producer_id()
    if producer_id is None:
        builder.reply(ticket, InitReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    name = request.transactional_id
    transaction = shard.transactions.setdefault(name, Transaction(name))
    value = TransactionValue(producer_id, 0, request.timeout_ms, TransactionState.EMPTY, update_ms=builder.now.wall_ms)
    _write_identity(shard, transaction, value, NO_EPOCH, request, ticket, builder)


def _rotate(
    shard: TransactionShard, transaction: Transaction, request: InitRequest, ticket: Ticket, builder: StepBuilder
) -> None:
    """Write a new producer id, with epoch 0."""
    value = transaction.value
    assert value is not None
    producer_id = shard.take_producer_id()
    if producer_id is None:
        builder.reply(ticket, InitReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    is_same_producer = request.producer_epoch != NO_EPOCH
    rotated = _idle(value, request, builder)._replace(
        producer_id=producer_id,
        producer_epoch=0,
        previous_producer_id=value.producer_id if is_same_producer else NO_PRODUCER_ID,
    )
    last_epoch = value.producer_epoch if is_same_producer else NO_EPOCH
    _write_identity(shard, transaction, rotated, last_epoch, request, ticket, builder)


def _bump(
    shard: TransactionShard, transaction: Transaction, request: InitRequest, ticket: Ticket, builder: StepBuilder
) -> None:
    """Write the next epoch. A producer whose last reply was lost gets the same epoch again."""
    value, expected = transaction.value, request.producer_epoch
    assert value is not None
    is_rotated = request.producer_id not in (NO_PRODUCER_ID, value.producer_id)
    if expected == NO_EPOCH:
        epoch, last_epoch = value.producer_epoch + 1, NO_EPOCH
    elif expected == value.producer_epoch and not is_rotated:
        epoch, last_epoch = value.producer_epoch + 1, value.producer_epoch
    elif expected == transaction.last_epoch:
        epoch, last_epoch = value.producer_epoch, transaction.last_epoch
    else:
        builder.reply(ticket, InitReply(ErrorCode.PRODUCER_FENCED))
        return
    bumped = _idle(value, request, builder)._replace(producer_epoch=epoch)
    if epoch != value.producer_epoch:
        bumped = bumped._replace(previous_producer_id=NO_PRODUCER_ID)
    _write_identity(shard, transaction, bumped, last_epoch, request, ticket, builder)


def _idle(value: TransactionValue, request: InitRequest, builder: StepBuilder) -> TransactionValue:
    return value._replace(
        state=TransactionState.EMPTY,
        timeout_ms=request.timeout_ms,
        partitions=frozenset(),
        update_ms=builder.now.wall_ms,
        start_ms=NO_TIMESTAMP,
        next_producer_id=NO_PRODUCER_ID,
    )


def _write_identity(
    shard: TransactionShard,
    transaction: Transaction,
    value: TransactionValue,
    last_epoch: int,
    request: InitRequest,
    ticket: Ticket,
    builder: StepBuilder,
) -> None:
    reply = InitReply(ErrorCode.NONE, value.producer_id, value.producer_epoch)
    shard.write(builder, transaction, value, last_epoch=last_epoch, ticket=ticket, request=request, reply=reply)
