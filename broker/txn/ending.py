"""The end of a transaction: the decision, the markers, and the record that all markers are written.

The order is that of two-phase commit. When the record PREPARE_COMMIT or PREPARE_ABORT is committed, the outcome is
decided. Then the reply is sent, and markers are written to every partition. When all leaders have confirmed their
markers, COMPLETE_COMMIT or COMPLETE_ABORT is written, and the next transaction may begin.

With transaction.version 2 the Prepare record also raises the producer epoch, so that a late EndTxn of this transaction
cannot end the next one. If the epochs of the producer id are used up, the Prepare record names the next producer id,
and the Complete record switches to it.
Source: KIP-98, KIP-890, Kafka's TransactionCoordinator and TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kraft.broker.txn.records import NO_PRODUCER_ID, TopicPartition, TransactionValue
from kraft.broker.txn.requests import NO_EPOCH, EndReply, EndRequest, Ticket
from kraft.broker.txn.shard import TransactionShard, TransactionTimer, TransactionTimerKind
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.step import Markers, StepBuilder
from kraft.broker.txn.transaction import LAST_USABLE_EPOCH, Transaction, UnconfirmedMarkers
from kraft.seam import require
from kraft.wire.error_codes import ErrorCode

FIRST_BUMPING_VERSION = 2
"""Lowest transaction.version at which the end of each transaction raises the producer epoch (KIP-890, part 2)."""

COMPLETES: Mapping[TransactionState, TransactionState] = MappingProxyType(
    {
        TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
        TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
    }
)

COMMIT, ABORT = True, False

Outcomes = Mapping[tuple[TransactionState, bool], ErrorCode]

PLAIN_OUTCOMES: Outcomes = MappingProxyType(
    {
        (TransactionState.PREPARE_COMMIT, COMMIT): ErrorCode.CONCURRENT_TRANSACTIONS,
        (TransactionState.PREPARE_COMMIT, ABORT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.PREPARE_ABORT, COMMIT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.PREPARE_ABORT, ABORT): ErrorCode.CONCURRENT_TRANSACTIONS,
        (TransactionState.COMPLETE_COMMIT, COMMIT): ErrorCode.NONE,
        (TransactionState.COMPLETE_COMMIT, ABORT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.COMPLETE_ABORT, COMMIT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.COMPLETE_ABORT, ABORT): ErrorCode.NONE,
        (TransactionState.EMPTY, COMMIT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.EMPTY, ABORT): ErrorCode.INVALID_TXN_STATE,
    }
)
"""Response to EndTxn 0 to 4, by the state of the transaction and by whether the request commits.

NONE answers a retry of an EndTxn that is complete. ONGOING is absent, because there the request ends the transaction.
"""

RETRY_OUTCOMES: Outcomes = MappingProxyType(
    {
        (TransactionState.PREPARE_COMMIT, COMMIT): ErrorCode.CONCURRENT_TRANSACTIONS,
        (TransactionState.PREPARE_COMMIT, ABORT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.PREPARE_ABORT, COMMIT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.PREPARE_ABORT, ABORT): ErrorCode.CONCURRENT_TRANSACTIONS,
        (TransactionState.COMPLETE_COMMIT, COMMIT): ErrorCode.NONE,
        (TransactionState.COMPLETE_COMMIT, ABORT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.COMPLETE_ABORT, COMMIT): ErrorCode.INVALID_TXN_STATE,
        (TransactionState.COMPLETE_ABORT, ABORT): ErrorCode.NONE,
    }
)
"""Response to an EndTxn 5 whose epoch is the one before the stored epoch, by state and by whether the request commits.

The first such request was carried out and its reply was lost, so this one is a retry. In a state that is not listed,
the request cannot be such a retry, and its producer is fenced."""


def end_transaction(shard: TransactionShard, request: EndRequest, ticket: Ticket, builder: StepBuilder) -> None:
    """Commit or abort the transaction, and reply when the decision is committed. Otherwise reply with an error."""
    transaction = shard.transactions.get(request.transactional_id)
    if transaction is None or transaction.value is None:
        builder.reply(ticket, EndReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    elif request.producer_epoch > LAST_USABLE_EPOCH:
        builder.reply(ticket, EndReply(ErrorCode.PRODUCER_FENCED))
    elif request.bumps_epoch:
        _end_bumping(shard, transaction, transaction.value, request, ticket, builder)
    else:
        _end_plain(shard, transaction, transaction.value, request, ticket, builder)


def _end_plain(
    shard: TransactionShard,
    transaction: Transaction,
    value: TransactionValue,
    request: EndRequest,
    ticket: Ticket,
    builder: StepBuilder,
) -> None:
    error = ErrorCode.NONE
    if request.producer_id != value.producer_id:
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    elif request.producer_epoch != value.producer_epoch:
        error = ErrorCode.PRODUCER_FENCED
    elif transaction.pending is not None:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    elif value.state is TransactionState.ONGOING:
        prepared = _prepared(value, builder, is_commit=request.is_commit)
        shard.write(
            builder,
            transaction,
            prepared,
            last_epoch=transaction.last_epoch,
            ticket=ticket,
            request=request,
            reply=EndReply(ErrorCode.NONE),
        )
        return
    else:
        error = PLAIN_OUTCOMES[value.state, request.is_commit]
    builder.reply(ticket, EndReply(error))


def _end_bumping(
    shard: TransactionShard,
    transaction: Transaction,
    value: TransactionValue,
    request: EndRequest,
    ticket: Ticket,
    builder: StepBuilder,
) -> None:
    if transaction.pending is not None or transaction.is_next_id(request.producer_id):
        builder.reply(ticket, EndReply(ErrorCode.CONCURRENT_TRANSACTIONS))
    elif transaction.has_identity(request.producer_id, request.producer_epoch):
        _end_current(shard, transaction, value, request, ticket, builder)
    elif _is_retry(value, request):
        error = RETRY_OUTCOMES.get((value.state, request.is_commit), ErrorCode.PRODUCER_FENCED)
        is_done = error is ErrorCode.NONE
        builder.reply(ticket, EndReply(error, value.producer_id, value.producer_epoch) if is_done else EndReply(error))
    elif request.producer_id != value.producer_id:
        builder.reply(ticket, EndReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    else:
        builder.reply(ticket, EndReply(ErrorCode.PRODUCER_FENCED))


def _is_retry(value: TransactionValue, request: EndRequest) -> bool:
    """Return whether the request has the epoch before the stored epoch, and the last EndTxn raised the epoch. An EndTxn
    before version 5 did not: then a producer with that epoch is not the one that ended the transaction."""
    if value.client_version < FIRST_BUMPING_VERSION:
        return False
    if request.producer_id == value.producer_id:
        return request.producer_epoch + 1 == value.producer_epoch
    was_rotated = request.producer_id == value.previous_producer_id and value.producer_epoch == 0
    return was_rotated and request.producer_epoch == LAST_USABLE_EPOCH


def _end_current(
    shard: TransactionShard,
    transaction: Transaction,
    value: TransactionValue,
    request: EndRequest,
    ticket: Ticket,
    builder: StepBuilder,
) -> None:
    """End the transaction for a request with the stored producer id and epoch. An abort without an open transaction
    raises the epoch too, because the producer may have sent batches that have not arrived yet. While the last
    transaction is being completed, the producer must retry: it may abort the next one before its first batch arrives.
    """
    if value.state.is_prepared:
        builder.reply(ticket, EndReply(ErrorCode.CONCURRENT_TRANSACTIONS))
        return
    if request.is_commit and value.state is not TransactionState.ONGOING:
        builder.reply(ticket, EndReply(ErrorCode.INVALID_TXN_STATE))
        return
    bumped = _bumped(shard, _prepared(value, builder, is_commit=request.is_commit))
    if bumped is None:
        builder.reply(ticket, EndReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    shard.write(
        builder,
        transaction,
        bumped,
        last_epoch=value.producer_epoch,
        ticket=ticket,
        request=request,
        reply=EndReply(ErrorCode.NONE, *_next_identity(bumped)),
    )


def _prepared(value: TransactionValue, builder: StepBuilder, *, is_commit: bool) -> TransactionValue:
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    is_open = value.state is TransactionState.ONGOING
    return value._replace(
        state=state,
        partitions=value.partitions if is_open else frozenset(),
        update_ms=builder.now.wall_ms,
        start_ms=value.start_ms if is_open else builder.now.wall_ms,
        client_version=0,
    )


def _bumped(shard: TransactionShard, value: TransactionValue) -> TransactionValue | None:
    """Return the value with the next epoch. If the epoch was the last usable one, name the next producer id as well;
    return None if no producer id is available."""
    next_producer_id = NO_PRODUCER_ID
    if value.producer_epoch >= LAST_USABLE_EPOCH:
        taken = shard.take_producer_id()
        if taken is None:
            return None
        next_producer_id = taken
    return value._replace(
        producer_epoch=value.producer_epoch + 1,
        next_producer_id=next_producer_id,
        client_version=FIRST_BUMPING_VERSION,
    )


def _next_identity(value: TransactionValue) -> tuple[int, int]:
    """Return the producer id and epoch that are valid after the transaction is complete."""
    if value.next_producer_id != NO_PRODUCER_ID:
        return value.next_producer_id, 0
    return value.producer_id, value.producer_epoch


def fence(
    shard: TransactionShard, transaction: Transaction, builder: StepBuilder, *, is_replaced: bool = False
) -> bool:
    """Abort an open transaction with a higher epoch, so that its producer can no longer write. Return False if this
    needs a new producer id and none is available.

    `is_replaced`: another producer takes the transactional id. With transaction.version 2 this skips an epoch, because
    an EndTxn with the epoch before the stored one is answered as a retry, with the identity of the next transaction."""
    value = transaction.value
    require(value is not None and value.state is TransactionState.ONGOING, "only an open transaction is fenced")
    assert value is not None
    prepared = _prepared(value, builder, is_commit=False)
    if shard.transaction_version >= FIRST_BUMPING_VERSION:
        if is_replaced:
            prepared = prepared._replace(producer_epoch=min(value.producer_epoch + 1, LAST_USABLE_EPOCH))
        bumped = _bumped(shard, prepared)
        if bumped is None:
            return False
        prepared = bumped
    else:
        prepared = prepared._replace(producer_epoch=value.producer_epoch + 1)
    shard.write(builder, transaction, prepared, last_epoch=NO_EPOCH)
    return True


# markers


def begin_completion(shard: TransactionShard, transaction: Transaction, builder: StepBuilder) -> None:
    """Write the markers of a transaction whose decision is committed. A transaction without partitions is complete at
    once."""
    value = transaction.value
    require(value is not None and value.state.is_prepared, "markers are written after the decision")
    assert value is not None
    shard.timers.cancel(TransactionTimer(TransactionTimerKind.TIMEOUT, transaction.transactional_id))
    shard.writes += 1
    transaction.completion = UnconfirmedMarkers(shard.writes, builder.now.monotonic_ms, set(value.partitions))
    if not value.partitions:
        complete(shard, transaction, builder)
        return
    builder.markers.append(
        Markers(
            transaction.transactional_id,
            shard.writes,
            value.producer_id,
            value.producer_epoch,
            value.state is TransactionState.PREPARE_COMMIT,
            value.partitions,
            value.client_version,
        )
    )


def marked(
    shard: TransactionShard, transactional_id: str, attempt: int, partition: TopicPartition, builder: StepBuilder
) -> None:
    """Record that the marker of this partition is written, or that the partition no longer exists. No effect if
    `attempt` is not the current attempt."""
    transaction = shard.transactions.get(transactional_id)
    completion = None if transaction is None else transaction.completion
    if transaction is None or completion is None or completion.attempt != attempt:
        return
    completion.left.discard(partition)
    if not completion.left and transaction.pending is None:
        complete(shard, transaction, builder)


def complete(shard: TransactionShard, transaction: Transaction, builder: StepBuilder) -> None:
    """Write the Complete record, because all markers are written. It switches to the next producer id if there is
    one."""
    value = transaction.value
    assert value is not None
    producer_id, epoch = _next_identity(value)
    is_new_id = producer_id != value.producer_id
    done = value._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        state=COMPLETES[value.state],
        partitions=frozenset(),
        update_ms=builder.now.wall_ms,
        previous_producer_id=value.producer_id if is_new_id else NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
    )
    shard.write(builder, transaction, done, last_epoch=LAST_USABLE_EPOCH if is_new_id else transaction.last_epoch)
