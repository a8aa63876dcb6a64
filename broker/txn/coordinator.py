"""TransactionCoordinator: the state machine of one partition of `__transaction_state`, as its driver calls it.

The driver calls `handle` for a request, `fire` for a timer, and `marked` for a marker that is written. When the batch
of an earlier step is committed or has failed, it calls `stored` or `failed` for the step's remaining work. Each call
returns a Step. If the step has entries, the driver calls `appended`, or `failed` for each item of `after`, before the
next call. Calls come one at a time, in the order of the log. Nothing here waits, draws random numbers or reads a clock.
Source: KIP-98, KIP-890, Kafka's TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from kraft.broker.shard.now import Now
from kraft.broker.txn.ending import begin_completion, complete, end_transaction, fence, marked
from kraft.broker.txn.enrolment import add_partitions, add_waiting, verify_partitions
from kraft.broker.txn.identity import init_producer_id
from kraft.broker.txn.records import TopicPartition, TransactionLogEntry, TransactionValue
from kraft.broker.txn.requests import (
    AddRequest,
    DescribeTransactionReply,
    DescribeTransactionRequest,
    EndRequest,
    InitRequest,
    ListTransactionsReply,
    Request,
    Ticket,
    VerifyRequest,
)
from kraft.broker.txn.shard import (
    TransactionCounts,
    TransactionSettings,
    TransactionShard,
    TransactionTimer,
    TransactionTimerKind,
)
from kraft.broker.txn.states import IDLE, TransactionState
from kraft.broker.txn.step import Step, StepBuilder, Written
from kraft.broker.txn.transaction import Transaction, UncommittedWrite
from kraft.broker.txn.waiting import refuse_waiting
from kraft.wire.error_codes import ErrorCode

EXPIRED_PER_STEP = 1_000
EXPIRED_CHARS_PER_STEP = 100_000
"""Maximum total length of the ids removed in one step, in characters, so that their records fit into one batch."""


class TransactionCoordinator:
    """The transactional ids of one partition, from the end of loading to `unload`."""

    def __init__(
        self,
        settings: TransactionSettings,
        state: Mapping[str, TransactionValue],
        end_offset: int,
        take_producer_id: Callable[[], int | None],
        counts: TransactionCounts | None = None,
    ) -> None:
        """`state` has the last value of each transactional id in the log below `end_offset`."""
        counts = counts or TransactionCounts()
        self._shard = TransactionShard(settings, state, end_offset, take_producer_id, counts)

    # for the driver

    @property
    def end_offset(self) -> int:
        """Offset at which the next batch must be appended."""
        return self._shard.end_offset

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The transactions of this partition by transactional id; callers must not change the mapping."""
        return self._shard.transactions

    @property
    def next_timer_ms(self) -> int | None:
        """Time on the monotonic clock at which to call `fire`; None if no timer is set."""
        return self._shard.timers.next_ms

    def set_transaction_version(self, level: int) -> None:
        """Set the finalized level of the feature transaction.version."""
        self._shard.transaction_version = level

    def begin(self, now: Now) -> Step:
        """Continue the transactions that the previous coordinator left: set the timeouts of open ones, and send all
        markers of decided ones. Everything that was loaded is committed."""
        builder = StepBuilder(now)
        for transaction in self._shard.transactions.values():
            value = transaction.value
            if value is not None and value.state is TransactionState.ONGOING:
                self._shard.set_timeout(transaction, builder)
            elif value is not None and value.state.is_prepared:
                begin_completion(self._shard, transaction, builder)
        return builder.step()

    def appended(self, entries: Iterable[TransactionLogEntry], end_offset: int) -> None:
        """Record that a step's entries are in the log, which now ends at `end_offset`."""
        self._shard.end_offset = end_offset

    def advance(self, high_watermark: int) -> None:
        """Do nothing: only `stored` changes values, so no value depends on uncommitted records."""

    def handle(self, request: Request, ticket: Ticket, now: Now) -> Step:
        """Process one request."""
        builder, shard = StepBuilder(now), self._shard
        match request:
            case InitRequest():
                init_producer_id(shard, request, ticket, builder)
            case AddRequest():
                add_partitions(shard, request, ticket, builder)
            case VerifyRequest():
                verify_partitions(shard, request, ticket, builder)
            case EndRequest():
                end_transaction(shard, request, ticket, builder)
            case DescribeTransactionRequest():
                builder.reply(ticket, self._described(request.transactional_id))
            case _:
                builder.reply(ticket, self._listed())
        return builder.step()

    def fire(self, now: Now) -> Step | None:
        """Process one timer that is due. Return None if none is due."""
        timer = self._shard.timers.pop_due(now.monotonic_ms)
        if timer is None:
            return None
        builder = StepBuilder(now)
        transaction = self._shard.transactions.get(timer.transactional_id)
        if transaction is not None and timer.kind is TransactionTimerKind.WAIT:
            refuse_waiting(self._shard, transaction, ErrorCode.CONCURRENT_TRANSACTIONS, builder)
        elif transaction is not None and transaction.pending is None and transaction.value is not None:
            self._fire(timer, transaction, transaction.value, builder)
        return builder.step()

    def marked(self, transactional_id: str, attempt: int, partition: TopicPartition, now: Now) -> Step:
        """Record that the marker of this partition is written, or that the metadata no longer have the partition."""
        builder = StepBuilder(now)
        marked(self._shard, transactional_id, attempt, partition, builder)
        return builder.step()

    def stored(self, after: Written, now: Now) -> Step:
        """Apply a write, because the high watermark has passed its batch."""
        builder = StepBuilder(now)
        transaction, pending = self._written(after)
        if transaction is None or pending is None:
            return builder.step()
        transaction.pending = None
        if pending.ticket is not None and pending.reply is not None:
            builder.reply(pending.ticket, pending.reply)
        if pending.value is None:
            del self._shard.transactions[after.transactional_id]
            self._shard.cancel_timers(transaction)
        else:
            transaction.value, transaction.last_epoch = pending.value, pending.last_epoch
            self._entered(transaction, pending.value, builder)
            add_waiting(self._shard, transaction, builder)
        return builder.step()

    def failed(self, after: Written, error: ErrorCode, now: Now) -> Step:
        """Drop a write, because its batch was not appended or the log's partition has moved. The transactional id keeps
        its value."""
        builder = StepBuilder(now)
        transaction, pending = self._written(after)
        if transaction is None or pending is None:
            return builder.step()
        transaction.pending = None
        if pending.ticket is not None and pending.request is not None:
            builder.reply(pending.ticket, pending.request.refused(error))
        refuse_waiting(self._shard, transaction, error, builder)
        if transaction.value is None:
            del self._shard.transactions[after.transactional_id]
        elif transaction.completion is not None or transaction.value.state is TransactionState.ONGOING:
            self._shard.retry_later(transaction, builder)
        return builder.step()

    def late(self, after: Written, error: ErrorCode, now: Now) -> Step:
        """Reply with an error, because the high watermark has not passed the batch in time. The write continues, and
        its outcome counts. The client does not know the outcome and must retry."""
        builder = StepBuilder(now)
        transaction, pending = self._written(after)
        if transaction is not None and pending is not None and pending.ticket is not None:
            if pending.request is not None:
                builder.reply(pending.ticket, pending.request.refused(error))
            pending.ticket = None
            refuse_waiting(self._shard, transaction, error, builder)
        return builder.step()

    def expire(self, now: Now) -> Step:
        """Remove ids that have been idle for transactional.id.expiration.ms: at most EXPIRED_PER_STEP of them, and no
        more than fit into one batch."""
        builder, oldest_ms = StepBuilder(now), now.wall_ms - self._shard.settings.id_expiration_ms
        expired = (
            transaction
            for transaction in self._shard.transactions.values()
            if transaction.pending is None
            and transaction.value is not None
            and transaction.value.state in IDLE
            and transaction.value.update_ms < oldest_ms
        )
        chars = 0
        for transaction in islice(expired, EXPIRED_PER_STEP):
            chars += len(transaction.transactional_id)
            if chars > EXPIRED_CHARS_PER_STEP and builder.entries:
                break
            self._shard.writes += 1
            transaction.pending = UncommittedWrite(self._shard.writes, None, transaction.last_epoch)
            builder.entries.append(TransactionLogEntry(transaction.transactional_id, None))
            builder.after.append(Written(transaction.transactional_id, self._shard.writes))
        return builder.step()

    def unload(self, now: Now) -> Step:
        """Reject the waiting requests, because this broker is no longer the coordinator."""
        builder = StepBuilder(now)
        for transaction in self._shard.transactions.values():
            pending = transaction.pending
            if pending is not None and pending.ticket is not None and pending.request is not None:
                builder.reply(pending.ticket, pending.request.refused(ErrorCode.NOT_COORDINATOR))
            refuse_waiting(self._shard, transaction, ErrorCode.NOT_COORDINATOR, builder)
        self._shard.transactions.clear()
        return builder.step()

    # states

    def _written(self, after: Written) -> tuple[Transaction | None, UncommittedWrite | None]:
        transaction = self._shard.transactions.get(after.transactional_id)
        if transaction is None or transaction.pending is None or transaction.pending.number != after.number:
            return None, None
        return transaction, transaction.pending

    def _entered(self, transaction: Transaction, value: TransactionValue, builder: StepBuilder) -> None:
        """Do what the new state requires, now that its record is committed."""
        shard = self._shard
        if value.state is TransactionState.ONGOING:
            shard.set_timeout(transaction, builder)
        elif value.state.is_prepared:
            begin_completion(shard, transaction, builder)
        else:
            transaction.completion = None
            shard.cancel_timers(transaction)
            shard.counts.committed += value.state is TransactionState.COMPLETE_COMMIT
            shard.counts.aborted += value.state is TransactionState.COMPLETE_ABORT

    def _fire(
        self, timer: TransactionTimer, transaction: Transaction, value: TransactionValue, builder: StepBuilder
    ) -> None:
        shard, completion = self._shard, transaction.completion
        if value.state is TransactionState.ONGOING:
            left_ms = value.start_ms + value.timeout_ms - builder.now.wall_ms
            if timer.kind is TransactionTimerKind.RETRY and left_ms > 0:
                shard.set_timeout(transaction, builder)
            elif fence(shard, transaction, builder):
                shard.counts.timed_out += 1
            else:
                shard.retry_later(transaction, builder)
        elif completion is not None and not completion.left:
            complete(shard, transaction, builder)

    # replies to describe and list requests

    def _described(self, transactional_id: str) -> DescribeTransactionReply:
        transaction = self._shard.transactions.get(transactional_id)
        if transaction is None or transaction.value is None:
            return DescribeTransactionReply(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return DescribeTransactionReply(ErrorCode.NONE, transaction.value)

    def _listed(self) -> ListTransactionsReply:
        found = ((name, one.value) for name, one in self._shard.transactions.items() if one.value is not None)
        return ListTransactionsReply(ErrorCode.NONE, tuple(found))
