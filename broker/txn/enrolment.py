"""Enrolment: which partitions are part of an open transaction.

A partition is enrolled before the first transactional batch is appended to it, because only enrolled partitions get
markers when the transaction ends. Source: AddPartitionsToTxnRequest, KIP-98, KIP-890.
"""

from __future__ import annotations

from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import AddRequest, ErrorReply, Ticket, VerifyReply, VerifyRequest
from kraft.broker.txn.shard import TransactionShard
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.step import StepBuilder
from kraft.broker.txn.transaction import LAST_USABLE_EPOCH, Transaction
from kraft.broker.txn.waiting import take_waiting, wait_if_short
from kraft.wire.error_codes import ErrorCode


def add_partitions(shard: TransactionShard, request: AddRequest, ticket: Ticket, builder: StepBuilder) -> None:
    """Add partitions to the transaction, and reply when that is committed. The first partitions begin a transaction."""
    transaction = shard.transactions.get(request.transactional_id)
    value = None if transaction is None else transaction.value
    if transaction is None or value is None:
        builder.reply(ticket, ErrorReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return
    error = _conflict(transaction, value, request)
    is_busy = error is ErrorCode.CONCURRENT_TRANSACTIONS
    if is_busy and wait_if_short(shard, transaction, request, ticket, builder):
        return
    if error is not ErrorCode.NONE:
        builder.reply(ticket, ErrorReply(error))
        return
    is_open = value.state is TransactionState.ONGOING
    if is_open and request.partitions <= value.partitions:
        builder.reply(ticket, ErrorReply(ErrorCode.NONE))
        return
    enrolled = value._replace(
        state=TransactionState.ONGOING,
        partitions=value.partitions | request.partitions if is_open else request.partitions,
        update_ms=builder.now.wall_ms,
        start_ms=value.start_ms if is_open else builder.now.wall_ms,
    )
    shard.write(
        builder,
        transaction,
        enrolled,
        last_epoch=transaction.last_epoch,
        ticket=ticket,
        request=request,
        reply=ErrorReply(ErrorCode.NONE),
    )


def add_waiting(shard: TransactionShard, transaction: Transaction, builder: StepBuilder) -> None:
    """Enrol what has waited for a write that is committed now. It waits on if another write is in its way."""
    for request, ticket in take_waiting(shard, transaction):
        add_partitions(shard, request, ticket, builder)


def _conflict(transaction: Transaction, value: TransactionValue, request: AddRequest) -> ErrorCode:
    if not transaction.has_id(request.producer_id):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.pending is not None or value.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if request.producer_epoch != value.producer_epoch or request.producer_epoch > LAST_USABLE_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def verify_partitions(shard: TransactionShard, request: VerifyRequest, ticket: Ticket, builder: StepBuilder) -> None:
    """Reply with the partitions that are not enrolled. A write in flight does not matter: it can only add
    partitions."""
    transaction = shard.transactions.get(request.transactional_id)
    value = None if transaction is None else transaction.value
    if transaction is None or value is None or not transaction.has_id(request.producer_id):
        reply = VerifyReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif value.state.is_prepared:
        reply = VerifyReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    elif request.producer_epoch != value.producer_epoch or request.producer_epoch > LAST_USABLE_EPOCH:
        reply = VerifyReply(ErrorCode.PRODUCER_FENCED)
    else:
        enrolled = value.partitions if value.state is TransactionState.ONGOING else frozenset()
        reply = VerifyReply(ErrorCode.NONE, request.partitions - enrolled)
    builder.reply(ticket, reply)
