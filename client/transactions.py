"""The transactions of a producer: one task that sends the requests of its state machine, and the calls that wait.

Once a transaction is to end, this task ends it, whether or not the caller still waits. So cancelling a caller leaves a
transaction that will be committed or aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType

import trio

from kraft.client.cluster import METADATA_TIMEOUT_MS, Cluster, ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, TimedOut, VersionMismatch
from kraft.client.core.accumulator import Accumulator
from kraft.client.core.batch import NO_IDENTITY
from kraft.client.core.configs import ProducerConfig
from kraft.client.core.records import CommittedOffset, DeliveryFailed, GroupMetadata, KafkaError, TopicPartition
from kraft.client.core.transaction import TransactionMachine
from kraft.client.core.transaction_errors import (
    AbortableTransactionError,
    CommitOutcomeUnknown,
    TransactionAborted,
)
from kraft.client.core.transaction_requests import (
    CoordinatorAnswer,
    FindCoordinator,
    TransactionRequest,
    read_answer,
)
from kraft.client.core.transaction_state import Outcome, ProducerTransactionState
from kraft.seam import Seam, WireError
from kraft.wire.error_codes import ErrorCode

PURPOSE = "transactions"
"""Purpose of the connections to coordinators."""
FEATURE = "transaction.version"
V2 = 2
CLOSE_TIMEOUT_MS = 3_000
OVER = (ProducerTransactionState.ABORTABLE_ERROR, ProducerTransactionState.FATAL_ERROR)
LOST = CoordinatorAnswer(ErrorCode.NETWORK_EXCEPTION)

Offsets = Mapping[TopicPartition, CommittedOffset | int]


class ProducerTransactions:
    """The transactions of one producer, one at a time. `pause_ms(failures)` is the backoff of retries. `changed()` is
    called when batches may be sent that could not be sent before, and when memory was freed."""

    def __init__(
        self,
        config: ProducerConfig,
        seam: Seam,
        cluster: Cluster,
        accumulator: Accumulator,
        pause_ms: Callable[[int], int],
        changed: Callable[[], None],
    ) -> None:
        assert config.transactional_id is not None
        self.machine = TransactionMachine(config.transactional_id, pause_ms)
        self._config = config
        self._clock = seam.clock
        self._cluster = cluster
        self._accumulator = accumulator
        self._on_changed = changed
        self._unconfirmed: Outcome | None = None
        """What a call that timed out was to achieve. Only the same call is possible until it has succeeded."""
        self._interrupted: tuple[Outcome, int] | None = None
        """The call whose end was not awaited, and the number of its transaction. It may be repeated."""
        self._changed = trio.Event()
        self._wake = trio.Event()

    # the task

    async def run(self) -> None:
        """Send requests to coordinators until cancelled."""
        while True:
            self._wake = trio.Event()
            request = self.machine.next_request(self._clock.monotonic_ms(), is_drained=self._is_drained())
            self._apply(wakes=False)
            if request is None:
                left_ms = self.machine.retry_at_ms - self._clock.monotonic_ms()
                with trio.move_on_after(max(left_ms, 1) / 1000 if self.machine.retry_at_ms else float("inf")):
                    await self._wake.wait()
                continue
            answer = await self._ask(request)
            is_v2 = self._cluster.links.finalized_level(FEATURE) >= V2
            self.machine.answered(request, answer, self._clock.monotonic_ms(), is_v2_finalized=is_v2)
            self._apply()

    def _is_drained(self) -> bool:
        return not self._accumulator.partitions()

    async def _ask(self, request: TransactionRequest) -> CoordinatorAnswer:
        endpoint = self.machine.endpoint_of(request)
        message = request.message(self.machine.transactional_id, self._config.transaction_timeout_ms)
        try:
            if isinstance(request, FindCoordinator) or endpoint is None:
                found = await self._cluster.ask_any(
                    request.api, message, timeout_ms=float("inf"), answer_ms=METADATA_TIMEOUT_MS
                )
                return read_answer(request, found)
            link = await self._cluster.links.get(endpoint.address, PURPOSE)
            response = await link.request(
                request.api,
                message,
                timeout_ms=self._config.request_timeout_ms,
                version_max=request.version_max,
            )
            return read_answer(request, response)
        except VersionMismatch as problem:
            return CoordinatorAnswer(ErrorCode.UNSUPPORTED_VERSION, str(problem))
        except (*CONNECTION_FAILURES, ClusterUnreachable, KafkaError, WireError):
            live = None if endpoint is None else self._cluster.links.live(endpoint.address, PURPOSE)
            if live is not None:
                live.close()  # so that a late response is not mistaken for that of another request
            return LOST

    def _apply(self, *, wakes: bool = True) -> None:
        """Carry over to the batches what the machine has decided, and wake whoever waits for its state."""
        machine, accumulator = self.machine, self._accumulator
        if machine.drops_batches:
            error = machine.error
            code = ErrorCode.TRANSACTION_ABORTABLE if error is None else error.code
            why = "" if error is None else f": {error.message}"
            count, was_sent = accumulator.fail_waiting(code, f"the transaction is not committed{why}")
            if was_sent:
                machine.require_bump()
            if count:
                self._on_changed()
        elif machine.identity not in (NO_IDENTITY, accumulator.identity):
            accumulator.renew(machine.identity)
        self._changed.set()
        self._changed = trio.Event()
        if wakes:
            self._wake.set()
            self._on_changed()

    # the sender

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Whether batches of this partition may be sent now."""
        return self.machine.may_send(topic_partition)

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """A record of this partition was queued. Raises the errors of `require_open`."""
        self.machine.add_partition(topic_partition)
        self._wake.set()

    def require_open(self) -> None:
        """Raise an error unless records can be sent now: RuntimeError outside of a transaction,
        AbortableTransactionError, ProducerFenced or another KafkaError after an error."""
        self.machine.require_open()

    def batch_failed(self, failure: DeliveryFailed) -> None:
        """A batch was not delivered, or its outcome is unknown."""
        self.machine.batch_failed(failure)

    def batches_changed(self) -> None:
        """Batches were acknowledged or have failed."""
        self._apply(wakes=False)
        self._wake.set()

    # calls that wait

    async def initialize(self) -> None:
        """Get a producer id, which aborts what an earlier producer of this transactional id left open and fences it.
        Wait for the end of the last transaction."""
        self.machine.initialize()
        self._apply()
        ready = (ProducerTransactionState.UNINITIALIZED, ProducerTransactionState.INITIALIZING)
        ending = (ProducerTransactionState.COMMITTING, ProducerTransactionState.ABORTING)
        await self._until(lambda: self.machine.state not in (*ready, *ending), "no transaction could be begun")
        if self.machine.state is ProducerTransactionState.FATAL_ERROR:
            self.machine.require_open()

    async def begin(self) -> int:
        """Begin a transaction and return its number."""
        self._require_confirmed(None)
        await self.initialize()
        # No checkpoint from here on: a cancelled call has begun nothing.
        self._require_confirmed(None)
        self.machine.begin()
        return self.machine.number

    async def commit(self, *, aborts_itself: bool = False) -> None:
        """Commit. AbortableTransactionError if the transaction must be aborted instead (TransactionAborted if
        `aborts_itself`, once it is), CommitOutcomeUnknown after `max.block.ms`."""
        self._require_confirmed(Outcome.COMMITTED)
        machine = self.machine
        if not self._is_repeated(Outcome.COMMITTED):
            machine.commit(aborts_itself=aborts_itself)
            self._accumulator.close_waiting()
            self._apply()
        try:
            await self._wait_end(Outcome.COMMITTED, OVER)
        except TimedOut:
            text = f"the commit did not finish within max.block.ms={self._config.max_block_ms}; call it again"
            raise CommitOutcomeUnknown(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if machine.outcome is Outcome.ABORTED:
            error = machine.error or KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "it was aborted")
            raise TransactionAborted(error.code, f"the transaction was aborted: {error.message}") from error

    async def abort(self) -> None:
        """Abort. TimedOut after `max.block.ms`: the producer still tries to, and the call may be repeated."""
        self._require_confirmed(Outcome.ABORTED)
        if not self._is_repeated(Outcome.ABORTED):
            self.abort_nowait()
        await self._wait_end(Outcome.ABORTED, (ProducerTransactionState.FATAL_ERROR,))

    def _is_repeated(self, call: Outcome) -> bool:
        """Whether the same call was made for this transaction before, but was cancelled or timed out."""
        return self._interrupted == (call, self.machine.number)

    async def _wait_end(self, call: Outcome, failed: tuple[ProducerTransactionState, ...]) -> None:
        """Wait until the transaction has ended, or the machine is in one of the `failed` states: raise its error."""
        machine = self.machine
        self._interrupted = (call, machine.number)  # until the wait is over
        try:
            await self._until(
                lambda: machine.outcome is not None or machine.state in failed, "the transaction did not end"
            )
        except TimedOut:
            self._unconfirmed = call
            raise
        self._unconfirmed = self._interrupted = None
        if machine.outcome is None:
            machine.require_not_failed()

    def abort_nowait(self) -> None:
        """Let the task abort the transaction."""
        self.machine.abort()
        self._apply()

    def leave_to_task(self) -> None:
        """Let the task finish an end that timed out. The next transaction waits for it."""
        self._unconfirmed = None

    def is_open(self, number: int) -> bool:
        """Whether this transaction is neither ended nor about to be."""
        states = (ProducerTransactionState.IN_TRANSACTION, ProducerTransactionState.ABORTABLE_ERROR)
        return self.machine.number == number and self.machine.state in states

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit these offsets with the transaction. Wait until the group's coordinator has them."""
        entries = {
            tp: entry if isinstance(entry, CommittedOffset) else CommittedOffset(entry) for tp, entry in offsets.items()
        }
        machine = self.machine
        pending = machine.add_offsets(group, entries)
        number = machine.number
        self._apply()
        try:
            await self._until(lambda: pending.is_done or self._is_lost(number), "")
        except TimedOut:
            limit = f"max.block.ms={self._config.max_block_ms}"
            text = f"the offsets of group {group.group_id} were not stored within {limit}"
            machine.fail_transaction(ErrorCode.REQUEST_TIMED_OUT, text)
            self._apply()
        if not pending.is_done:
            if machine.number == number and machine.error is not None:
                machine.require_open()  # raises the machine's error
            text = f"the offsets of group {group.group_id} were not stored before the transaction ended"
            raise AbortableTransactionError(ErrorCode.TRANSACTION_ABORTABLE, text)

    def _is_lost(self, number: int) -> bool:
        """Whether this transaction has ended, or will not be committed."""
        machine = self.machine
        return machine.number != number or machine.outcome is not None or machine.drops_batches

    async def finish(self) -> None:
        """Abort an open transaction, and wait for the end of one that is ending, but no longer than
        CLOSE_TIMEOUT_MS."""
        if self.machine.state in (ProducerTransactionState.IN_TRANSACTION, ProducerTransactionState.ABORTABLE_ERROR):
            self.abort_nowait()
        ending = (ProducerTransactionState.COMMITTING, ProducerTransactionState.ABORTING)
        with trio.move_on_after(CLOSE_TIMEOUT_MS / 1000, shield=True):
            while self.machine.state in ending:
                await self._changed.wait()

    def _require_confirmed(self, call: Outcome | None) -> None:
        """RuntimeError if another call timed out, so that its outcome is unknown."""
        if self._unconfirmed not in (None, call):
            name = "commit_transaction" if self._unconfirmed is Outcome.COMMITTED else "abort_transaction"
            raise RuntimeError(f"{name} timed out and its outcome is unknown: call it again")

    async def _until(self, is_over: Callable[[], bool], problem: str) -> None:
        """Wait for a condition. TimedOut if it does not hold within `max.block.ms`."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(self._config.max_block_ms / 1000):
            while not is_over():
                await self._changed.wait()
        if not is_over():
            raise TimedOut(f"{problem} within max.block.ms={self._config.max_block_ms}")


class TransactionBlock:
    """The value of `producer.transaction()`: a transaction that is committed at the end of its block, and aborted if
    an exception leaves it."""

    def __init__(self, transactions: ProducerTransactions) -> None:
        self._transactions = transactions
        self._number = 0

    async def __aenter__(self) -> None:
        self._number = await self._transactions.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transactions = self._transactions
        if not transactions.is_open(self._number):
            if kind is None:
                transactions.machine.require_not_failed()
            return  # the block has ended its transaction itself
        if kind is None:
            await transactions.commit(aborts_itself=True)
            return
        try:
            # The abort begins before the first checkpoint of this call, so cancellation cannot prevent it.
            await transactions.abort()
        except TimedOut:
            transactions.leave_to_task()
        except KafkaError as fatal:
            if isinstance(error, KafkaError):
                raise fatal from error
