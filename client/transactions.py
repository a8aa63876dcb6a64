"""The transactions of a producer: a task that sends the requests of its state machine, and calls that wait for that
task.

Once the application has called for a commit or an abort, the task carries it out, even if the caller is cancelled. So
after a cancelled commit the transaction may be committed or aborted.
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
"""Purpose of the connections to coordinators. Connections are shared by the requests of one purpose."""
FEATURE = "transaction.version"
V2 = 2
CLOSE_TIMEOUT_MS = 3_000
OVER = (ProducerTransactionState.ABORTABLE_ERROR, ProducerTransactionState.FATAL_ERROR)
LOST = CoordinatorAnswer(ErrorCode.NETWORK_EXCEPTION)

Offsets = Mapping[TopicPartition, CommittedOffset | int]


class ProducerTransactions:
    """The transactions of one producer, one after another. `pause_ms(failures)` returns the backoff of retries in ms.
    `changed()` is called when more batches may be sent, and when buffer memory was freed."""

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
        """The outcome that the application requested by a call that timed out; None if no call did. Until the same call
        succeeds, no other call is allowed."""
        self._interrupted: tuple[Outcome, int] | None = None
        """The commit or abort that was cancelled or timed out before the transaction ended, and the number of its
        transaction. The application may repeat that call."""
        self._changed = trio.Event()
        self._wake = trio.Event()

    # the background task

    async def run(self) -> None:
        """Send requests to coordinators until the task is cancelled."""
        while True:
            self._wake = trio.Event()
            now_ms = self._clock.monotonic_ms()
            request = self.machine.next_request(now_ms, is_drained=self._is_drained())
            self._apply(wakes=False)
            if request is None:
                left_ms = self.machine.retry_at_ms - now_ms
                with trio.move_on_after(left_ms / 1000 if left_ms > 0 else float("inf")):
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
        """Apply the machine's state to the batches: fail them, or use the new producer identity. Wake the tasks that
        wait for a state."""
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

    # calls from the producer and its sender

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Whether batches of this partition may be sent now."""
        return self.machine.may_send(topic_partition)

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Make this partition part of the transaction, because a record for it was queued. Raises the errors of
        `require_open`."""
        self.machine.add_partition(topic_partition)
        self._wake.set()

    def require_open(self) -> None:
        """Raise an error unless records can be sent now: RuntimeError if no transaction is open,
        AbortableTransactionError if the transaction must be aborted, ProducerFenced or another KafkaError if the
        producer can only be closed."""
        self.machine.require_open()

    def record_refused(self, refusal: KafkaError) -> None:
        """Fail the open transaction, because a record was not queued. A transaction that is already committing never
        had this record."""
        if self.machine.state is ProducerTransactionState.IN_TRANSACTION:
            self.machine.fail_transaction(refusal.code, f"a record was refused: {refusal.message}")
            self._apply()

    def batch_failed(self, failure: DeliveryFailed) -> None:
        """Fail the transaction or the producer, because a batch was not delivered or its outcome is unknown."""
        self.machine.batch_failed(failure)

    def batches_changed(self) -> None:
        """Check what can be sent next, because batches were acknowledged or have failed."""
        self._apply(wakes=False)
        self._wake.set()

    # calls that wait

    async def initialize(self) -> None:
        """Wait until a transaction can be begun. The first call gets a producer id. This aborts the transaction that an
        earlier producer with the same transactional id left open, and fences that producer."""
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
        # No checkpoint from here on, so a call that is cancelled has not begun a transaction.
        self._require_confirmed(None)
        self.machine.begin()
        return self.machine.number

    async def commit(self, *, aborts_itself: bool = False) -> None:
        """Commit the transaction and wait until it has ended. Raise AbortableTransactionError if it must be aborted.
        With `aborts_itself`, it is aborted at once, and TransactionAborted is raised after that. Raise
        CommitOutcomeUnknown after `max.block.ms`."""
        self._require_confirmed(Outcome.COMMITTED)
        result = self.machine.result
        if aborts_itself or not self._is_repeated(Outcome.COMMITTED):
            self.machine.commit(aborts_itself=aborts_itself)
            self._accumulator.close_waiting()
            self._apply()
        try:
            await self._wait_end(Outcome.COMMITTED, OVER)
        except TimedOut:
            text = f"the commit did not finish within max.block.ms={self._config.max_block_ms}; call it again"
            raise CommitOutcomeUnknown(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if result.outcome is Outcome.ABORTED:
            error = result.error or KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "it was aborted")
            raise TransactionAborted(error.code, f"the transaction was aborted: {error.message}") from error

    async def abort(self) -> None:
        """Abort the transaction and wait until it has ended. Raise TimedOut after `max.block.ms`; the producer still
        tries to abort it, and the call may be repeated."""
        self._require_confirmed(Outcome.ABORTED)
        if not self._is_repeated(Outcome.ABORTED):
            self.abort_nowait()
        await self._wait_end(Outcome.ABORTED, (ProducerTransactionState.FATAL_ERROR,))

    def _is_repeated(self, call: Outcome) -> bool:
        """Whether the application made the same call for this transaction before, and that call was cancelled or timed
        out."""
        return self._interrupted == (call, self.machine.number)

    async def _wait_end(self, call: Outcome, failed: tuple[ProducerTransactionState, ...]) -> None:
        """Wait until the transaction has ended. Raise the machine's error if it reaches one of the `failed` states
        instead, and TimedOut after `max.block.ms`."""
        machine, result = self.machine, self.machine.result
        waited = self._interrupted = (call, machine.number)  # until the wait below has ended
        try:
            await self._until(
                lambda: result.outcome is not None or machine.state in failed, "the transaction did not end"
            )
        except TimedOut:
            self._unconfirmed = call
            raise
        if self._interrupted == waited:  # another task may already wait for the end of the next transaction
            self._unconfirmed = self._interrupted = None
        if result.outcome is None:
            machine.require_not_failed()

    def abort_nowait(self) -> None:
        """Start an abort without waiting for its end."""
        self.machine.abort()
        self._apply()

    def leave_to_task(self) -> None:
        """Allow other calls although an abort timed out. The background task finishes the abort; the next transaction
        waits for it."""
        self._unconfirmed = None

    def let_abort_itself(self, number: int) -> None:
        """If the commit of this transaction was cancelled and has not ended, let the background task abort the
        transaction when something in it fails."""
        if self.machine.number == number and self.machine.state is ProducerTransactionState.COMMITTING:
            self.machine.commit(aborts_itself=True)

    def is_open(self, number: int) -> bool:
        """Whether this transaction is open and neither its commit nor its abort has started."""
        states = (ProducerTransactionState.IN_TRANSACTION, ProducerTransactionState.ABORTABLE_ERROR)
        return self.machine.number == number and self.machine.state in states

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction. Wait until the group's coordinator has stored them. Raise
        TypeError or ValueError for a value that the request cannot have."""
        if not isinstance(group, GroupMetadata) or not isinstance(group.group_id, str):
            raise TypeError(f"group_metadata={group!r}: expected consumer.group_metadata() or a group id")
        entries = {tp: _valid_offset(tp, entry) for tp, entry in offsets.items()}
        machine = self.machine
        pending = machine.add_offsets(group, entries)
        number, result = machine.number, machine.result
        self._apply()
        try:
            await self._until(lambda: pending.is_done or self._is_lost(number), "")
        except TimedOut:
            limit = f"max.block.ms={self._config.max_block_ms}"
            text = f"the offsets of group {group.group_id} were not stored within {limit}"
            machine.fail_transaction(ErrorCode.REQUEST_TIMED_OUT, text)
            self._apply()
        if not pending.is_done:
            if result.error is not None:
                raise type(result.error)(result.error.code, result.error.message) from result.error
            text = f"the offsets of group {group.group_id} were not stored before the transaction ended"
            raise AbortableTransactionError(ErrorCode.TRANSACTION_ABORTABLE, text)

    def _is_lost(self, number: int) -> bool:
        """Whether the offsets of this transaction can no longer be stored, because it has ended or will not be
        committed."""
        machine = self.machine
        return machine.number != number or machine.outcome is not None or machine.drops_batches

    async def finish(self) -> None:
        """Abort the open transaction, if any. Wait at most CLOSE_TIMEOUT_MS until no transaction is being committed or
        aborted."""
        if self.machine.state in (ProducerTransactionState.IN_TRANSACTION, ProducerTransactionState.ABORTABLE_ERROR):
            self.abort_nowait()
        ending = (ProducerTransactionState.COMMITTING, ProducerTransactionState.ABORTING)
        with trio.move_on_after(CLOSE_TIMEOUT_MS / 1000, shield=True):
            while self.machine.state in ending:
                await self._changed.wait()

    def _require_confirmed(self, call: Outcome | None) -> None:
        """Raise RuntimeError if a commit or abort other than `call` has timed out, so that the outcome is unknown."""
        if self._unconfirmed not in (None, call):
            name = "commit_transaction" if self._unconfirmed is Outcome.COMMITTED else "abort_transaction"
            raise RuntimeError(f"{name} timed out and its outcome is unknown: call it again")

    async def _until(self, is_over: Callable[[], bool], problem: str) -> None:
        """Wait until `is_over()` is true. Raise TimedOut with the text `problem` after `max.block.ms`."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(self._config.max_block_ms / 1000):
            while not is_over():
                await self._changed.wait()
        if not is_over():
            raise TimedOut(f"{problem} within max.block.ms={self._config.max_block_ms}")


def _valid_offset(topic_partition: TopicPartition, given: CommittedOffset | int) -> CommittedOffset:
    """Return the offset to commit for this partition. Raise TypeError or ValueError if a request cannot have it: the
    error would appear only in the background task."""
    entry = given if isinstance(given, CommittedOffset) else CommittedOffset(given)
    topic, partition = topic_partition
    if not isinstance(topic, str) or not isinstance(entry.metadata, str):
        raise TypeError(f"{topic_partition!r}: {entry!r}: expected a topic and metadata of type str")
    for name, number, first, end in (
        ("partition", partition, 0, 1 << 31),
        ("offset", entry.offset, 0, 1 << 63),
        ("leader_epoch", entry.leader_epoch, -1, 1 << 31),
    ):
        if not isinstance(number, int):
            raise TypeError(f"{topic_partition!r}: {name}={number!r}: expected an integer")
        if not first <= number < end:
            raise ValueError(f"{topic_partition!r}: {name}={number}: expected {first} to {end - 1}")
    return entry


class TransactionBlock:
    """The value of `producer.transaction()`: an async context manager. The transaction is committed at the end of the
    block, and aborted if the block raises an exception."""

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
            transactions.let_abort_itself(self._number)
            if kind is None:
                transactions.machine.require_not_failed()
            return  # the code in the block has committed or aborted its transaction
        if kind is None:
            await transactions.commit(aborts_itself=True)
            return
        try:
            # `abort` starts the abort before its first checkpoint, so a cancellation cannot prevent it.
            await transactions.abort()
        except TimedOut:
            transactions.leave_to_task()
        except KafkaError as fatal:
            if isinstance(error, KafkaError):
                raise fatal from error
