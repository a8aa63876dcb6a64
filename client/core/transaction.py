"""The transactional producer as a state machine, without network and time.

The application's calls change the state (`begin`, `add_partition`, `add_offsets`, `commit`, `abort`). The driver sends
the request that `next_request` returns and passes the response to `answered`. The sender asks `may_send` and reports
failed batches. One coordinator request is outstanding at a time.

- transaction.version 0 and 1: a partition is added to the transaction before its first batch is sent, and the group's
  offsets partition before its offsets. After an abortable error the next epoch is requested (KIP-360).
- transaction.version 2: leaders and group coordinators add partitions. EndTxn returns the identity of the next
  transaction (KIP-890). The version of a transaction is decided before it begins.
- A request whose response was lost is repeated until its result is known, before the transaction ends. Otherwise a
  partition could be added after the end, and its transaction would stay open.

Source: Kafka's TransactionManager, KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kraft.client.core.batch import NO_IDENTITY, ProducerIdentity
from kraft.client.core.records import CommittedOffset, DeliveryFailed, GroupMetadata, KafkaError, TopicPartition
from kraft.client.core.topology import BrokerEndpoint
from kraft.client.core.transaction_errors import (
    FATAL_PRODUCE_ERRORS,
    IN_DOUBT,
    REFUSED,
    AbortableTransactionError,
    CoordinatorReaction,
    fatal_error,
    reaction_to,
)
from kraft.client.core.transaction_requests import (
    END_TXN_MAX_BEFORE_V2,
    TXN_OFFSET_COMMIT_MAX_BEFORE_V2,
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    CoordinatorAnswer,
    EndTransaction,
    FindCoordinator,
    InitProducerId,
    TransactionRequest,
)
from kraft.client.core.transaction_state import PREDECESSORS, Outcome, ProducerTransactionState
from kraft.wire.error_codes import ErrorCode

S = ProducerTransactionState
RETRY_SOON_MS = 20
SEVERITY = (
    CoordinatorReaction.DONE,
    CoordinatorReaction.RETRY_SOON,
    CoordinatorReaction.RETRY,
    CoordinatorReaction.FIND_COORDINATOR,
    CoordinatorReaction.ABORT,
    CoordinatorReaction.FATAL,
)
"""Reactions from the mildest to the most severe. If the partitions of a response have different errors, the reaction
that comes last in this list decides."""
SENDING = frozenset({S.IN_TRANSACTION, S.COMMITTING})
DROPPING = frozenset({S.ABORTABLE_ERROR, S.ABORTING, S.FATAL_ERROR})


@dataclass(slots=True, eq=False)
class PendingOffsets:
    """A group's offsets that are to be committed with the transaction. `offsets` has only the partitions for which the
    group coordinator has not confirmed the offset yet."""

    group: GroupMetadata
    offsets: dict[TopicPartition, CommittedOffset]
    is_group_added: bool = False
    is_done: bool = False


@dataclass(slots=True, eq=False)
class TransactionResult:
    """The result of one transaction. `outcome` is None while it is open. `error` is why it must be aborted or was
    aborted, or why the producer can only be closed; None without an error."""

    outcome: Outcome | None = None
    error: KafkaError | None = None


class TransactionMachine:
    """State of a transactional producer and of its current transaction. `pause_ms(failures)` returns the backoff in ms
    after this number of consecutive failures."""

    def __init__(self, transactional_id: str, pause_ms: Callable[[int], int]) -> None:
        self.transactional_id = transactional_id
        self.state = S.UNINITIALIZED
        self.identity = NO_IDENTITY
        self.is_v2 = False
        """Whether the current transaction uses the protocol of transaction.version 2."""
        self.result = TransactionResult()
        """The result of the newest transaction. Each transaction has its own, so that a task may wait for it."""
        self.number = 0
        """Number of transactions that this producer has begun."""
        self.retry_at_ms = 0
        self._pause_ms = pause_ms
        self._failures = 0
        self._outstanding: TransactionRequest | None = None
        self._doubtful: AddPartitions | AddOffsets | None = None
        """A request that the coordinator may have carried out, although no response confirms it. None if there is no
        such request."""
        self._coordinator: BrokerEndpoint | None = None
        self._group_coordinators: dict[str, BrokerEndpoint] = {}
        self._wanted: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._offsets: deque[PendingOffsets] = deque()
        self._has_begun = False
        """Whether the coordinator may have partitions or offsets of the current transaction."""
        self._is_begin_doubtful = False
        """Whether the coordinator may also have nothing of the current transaction, although `_has_begun` is true."""
        self._must_bump = False
        self._aborts_itself = False

    @property
    def outcome(self) -> Outcome | None:
        return self.result.outcome

    @property
    def error(self) -> KafkaError | None:
        return self.result.error

    def _enter(self, state: S) -> None:
        if self.state not in PREDECESSORS[state]:
            raise AssertionError(f"{state.name} cannot follow {self.state.name}")
        self.state = state

    # calls from the application

    def initialize(self) -> None:
        """Start requesting a producer id, unless it was requested before."""
        if self.state is S.UNINITIALIZED:
            self._enter(S.INITIALIZING)

    def begin(self) -> None:
        """Begin a transaction. Raise RuntimeError unless the state is READY, or the error of a producer that failed."""
        self._require(S.READY, "begin a transaction")
        self._enter(S.IN_TRANSACTION)
        self.number += 1
        self.result = TransactionResult()
        self._aborts_itself = False

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Make this partition part of the transaction, because a record for it was queued."""
        self.require_open()
        if self.is_v2:
            self._has_begun = True
        elif topic_partition not in self._added:
            self._wanted[topic_partition] = None

    def add_offsets(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]) -> PendingOffsets:
        """Queue a group's offsets that are to be committed with the transaction."""
        self.require_open()
        pending = PendingOffsets(group, dict(offsets), is_group_added=self.is_v2)
        if offsets:
            self._has_begun = self._has_begun or self.is_v2
            self._offsets.append(pending)
        else:
            pending.is_done = True
        return pending

    def commit(self, *, aborts_itself: bool) -> None:
        """Start to commit: the transaction is committed when all its batches are acknowledged. No effect if the commit
        has already started. With `aborts_itself`, the transaction is aborted without a call of `abort` if anything in
        it fails."""
        if aborts_itself and self.state is S.ABORTABLE_ERROR:
            self._enter(S.ABORTING)
        elif self.state is not S.COMMITTING:
            self._require(S.IN_TRANSACTION, "commit")
            self._enter(S.COMMITTING)
        self._aborts_itself = self._aborts_itself or aborts_itself

    def abort(self) -> None:
        """Start to abort the transaction. No effect if the abort has already started."""
        if self.state is S.ABORTING:
            return
        if self.state is not S.ABORTABLE_ERROR:
            self._require(S.IN_TRANSACTION, "abort")
        self._enter(S.ABORTING)
        self._offsets.clear()

    def require_open(self) -> None:
        """Raise an error unless records and offsets can be added now."""
        self._require(S.IN_TRANSACTION, "send")

    def require_not_failed(self) -> None:
        """Raise the stored error if the transaction can only be aborted or the producer can only be closed."""
        if self.state in (S.ABORTABLE_ERROR, S.FATAL_ERROR) and self.error is not None:
            raise type(self.error)(self.error.code, self.error.message) from self.error

    def _require(self, state: S, action: str) -> None:
        if self.state is state:
            return
        self.require_not_failed()
        raise RuntimeError(
            f"the producer with transactional id {self.transactional_id} cannot {action} now: {self.state.value}"
        )

    # calls from the sender

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Whether batches of this partition may be sent now."""
        return self.state in SENDING and (self.is_v2 or topic_partition in self._added)

    @property
    def drops_batches(self) -> bool:
        """Whether batches that are not in flight must fail because the transaction will not be committed."""
        return self.state in DROPPING

    def batch_failed(self, failure: DeliveryFailed) -> None:
        """Fail the transaction or the producer, because a batch was not delivered or its outcome is unknown."""
        if self.state in SENDING:
            if failure.code in FATAL_PRODUCE_ERRORS:
                self._fail(failure.code, failure.message)
            else:
                self.fail_transaction(failure.code, f"a batch failed: {failure.message}")
        elif self.state is S.ABORTING:
            self.require_bump()  # the sequence of its partition has a gap

    def require_bump(self) -> None:
        """Request the next producer epoch after this transaction, because brokers may lack a sequence number that was
        used. With transaction.version 2 this is not needed: each transaction has a new epoch."""
        self._must_bump = not self.is_v2

    def fail_transaction(self, code: ErrorCode, text: str) -> None:
        """Store an error in the open transaction, so that it can only be aborted."""
        if self.state not in SENDING:
            return
        self.result.error = AbortableTransactionError(code, text)
        self.require_bump()
        self._offsets.clear()
        self._enter(S.ABORTING if self._aborts_itself else S.ABORTABLE_ERROR)

    def _fail(self, code: ErrorCode, text: str) -> None:
        self.result.error = fatal_error(code, text)
        self._enter(S.FATAL_ERROR)

    # requests

    def next_request(self, now_ms: int, *, is_drained: bool) -> TransactionRequest | None:
        """Return the request to send now; None if none can be sent yet. `is_drained` is true if no batch is waiting or
        in flight."""
        if self._outstanding is not None or now_ms < self.retry_at_ms:
            return None
        wanted = self._next(is_drained)
        if wanted is None:
            return None
        if isinstance(wanted, CommitOffsets):
            if wanted.group.group_id not in self._group_coordinators:
                wanted = FindCoordinator(wanted.group.group_id, is_group=True)
        elif self._coordinator is None:
            wanted = FindCoordinator(self.transactional_id)
        self._outstanding = wanted
        return wanted

    def _next(self, is_drained: bool) -> TransactionRequest | None:
        if self.state in (S.COMMITTING, S.ABORTING) and is_drained and self._is_empty():
            self._ended(None, self.is_v2)
        if self.state is S.INITIALIZING:
            return InitProducerId(self.identity)
        if self.state in SENDING and (addition := self._addition()) is not None:
            return addition
        if self.state is S.ABORTING and self._doubtful is not None:
            return self._doubtful
        if self.state in (S.COMMITTING, S.ABORTING) and is_drained:
            newest = None if self.is_v2 else END_TXN_MAX_BEFORE_V2
            return EndTransaction(self.identity, self.state is S.COMMITTING, newest)
        return None

    def _is_empty(self) -> bool:
        """Whether the coordinator has nothing of this transaction, so that the transaction ends without a request."""
        return not (self._has_begun or self._doubtful or self._offsets or (self.state in SENDING and self._wanted))

    def _addition(self) -> TransactionRequest | None:
        if self._doubtful is not None:
            return self._doubtful
        if self._wanted:
            return AddPartitions(self.identity, tuple(self._wanted))
        if not self._offsets:
            return None
        pending = self._offsets[0]
        if not pending.is_group_added:
            return AddOffsets(self.identity, pending.group.group_id)
        newest = None if self.is_v2 else TXN_OFFSET_COMMIT_MAX_BEFORE_V2
        return CommitOffsets(self.identity, pending.group, dict(pending.offsets), newest)

    def endpoint_of(self, request: TransactionRequest) -> BrokerEndpoint | None:
        """Return the broker to which this request must be sent; None if any broker can answer it."""
        if isinstance(request, FindCoordinator):
            return None
        if isinstance(request, CommitOffsets):
            return self._group_coordinators[request.group.group_id]
        return self._coordinator

    # responses

    def answered(
        self, request: TransactionRequest, answer: CoordinatorAnswer, now_ms: int, *, is_v2_finalized: bool
    ) -> None:
        """Process the response to the outstanding request. `is_v2_finalized` is true if the finalized level of
        transaction.version in the cluster is now 2 or higher."""
        self._outstanding = None
        code = _deciding_code(request, answer)
        if self._is_begin_doubtful and isinstance(request, EndTransaction) and code is ErrorCode.INVALID_TXN_STATE:
            code = ErrorCode.NONE  # the coordinator had nothing that the abort could end
        reaction = reaction_to(request.api, code)
        if isinstance(request, AddPartitions | AddOffsets):
            self._judge_addition(request, code, reaction)
        elif isinstance(request, CommitOffsets) and self.state is S.ABORTING and code in IN_DOUBT:
            self.require_bump()  # it may still arrive, and must not be taken for one of the next transaction
        self._back_off(reaction, now_ms)
        if reaction is CoordinatorReaction.DONE:
            self._succeeded(request, answer, is_v2_finalized)
        elif reaction is CoordinatorReaction.FIND_COORDINATOR:
            self._forget_coordinator(request)
        elif reaction is CoordinatorReaction.ABORT and not self._is_last_resort(request):
            self.fail_transaction(code, answer.message or f"the coordinator rejected {request.api.name}")
        elif reaction in (CoordinatorReaction.ABORT, CoordinatorReaction.FATAL) and self.state is not S.FATAL_ERROR:
            self._fail(code, self._why(request, answer))
        if isinstance(request, CommitOffsets):
            self._keep_unfinished(request, answer)

    def _judge_addition(
        self, request: AddPartitions | AddOffsets, code: ErrorCode, reaction: CoordinatorReaction
    ) -> None:
        """Decide whether this addition must be repeated before the transaction ends, because the coordinator may have
        carried it out. A repeat that is refused does not show what happened to the first request."""
        is_repeat_refused = self.state is S.ABORTING and code in REFUSED
        if reaction is CoordinatorReaction.DONE:
            self._doubtful = None
            self._is_begin_doubtful = False
        elif code in IN_DOUBT:
            self._doubtful = request
        elif reaction in (CoordinatorReaction.ABORT, CoordinatorReaction.FATAL) or is_repeat_refused:
            if self._doubtful is not None:
                self._is_begin_doubtful = self._is_begin_doubtful or not self._has_begun
                self._has_begun = True
                self.require_bump()
            self._doubtful = None

    def _back_off(self, reaction: CoordinatorReaction, now_ms: int) -> None:
        self.retry_at_ms = 0
        if reaction is CoordinatorReaction.RETRY_SOON:
            self.retry_at_ms = now_ms + RETRY_SOON_MS
        elif reaction in (CoordinatorReaction.RETRY, CoordinatorReaction.FIND_COORDINATOR):
            self.retry_at_ms = now_ms + self._pause_ms(self._failures)
            self._failures += 1
        else:
            self._failures = 0

    def _is_last_resort(self, request: TransactionRequest) -> bool:
        """Whether an abort cannot cure an abortable error of this request, because the request is itself an abort or no
        transaction is open."""
        return self.state is S.INITIALIZING or (isinstance(request, EndTransaction) and not request.is_commit)

    def _why(self, request: TransactionRequest, answer: CoordinatorAnswer) -> str:
        what = (
            answer.message or f"the coordinator of transactional id {self.transactional_id} rejected {request.api.name}"
        )
        if isinstance(request, EndTransaction) and request.is_commit:
            what += "; the transaction may be committed or aborted"
        return what

    def _forget_coordinator(self, request: TransactionRequest) -> None:
        if isinstance(request, CommitOffsets):
            self._group_coordinators.pop(request.group.group_id, None)
        else:
            self._coordinator = None

    def _succeeded(self, request: TransactionRequest, answer: CoordinatorAnswer, is_v2_finalized: bool) -> None:
        if isinstance(request, FindCoordinator):
            assert answer.coordinator is not None
            if request.is_group:
                self._group_coordinators[request.key] = answer.coordinator
            else:
                self._coordinator = answer.coordinator
        elif isinstance(request, InitProducerId):
            assert answer.identity is not None
            self.identity = answer.identity
            self.is_v2 = is_v2_finalized
            self._enter(S.READY)
        elif isinstance(request, AddPartitions):
            self._has_begun = True
            self._added.update(request.partitions)
            for topic_partition in request.partitions:
                self._wanted.pop(topic_partition, None)
        elif isinstance(request, AddOffsets):
            self._has_begun = True
            for pending in self._offsets:
                pending.is_group_added |= pending.group.group_id == request.group_id
        elif isinstance(request, EndTransaction) and self.state in (S.COMMITTING, S.ABORTING):
            self._ended(answer.identity if self.is_v2 else None, is_v2_finalized)

    def _keep_unfinished(self, request: CommitOffsets, answer: CoordinatorAnswer) -> None:
        """Drop the offsets that the group coordinator has stored. The offsets of all other partitions remain queued."""
        if not self._offsets or self._offsets[0].group is not request.group:
            return
        pending = self._offsets[0]
        for topic_partition, code in answer.partitions.items():
            if code is ErrorCode.NONE:
                pending.offsets.pop(topic_partition, None)
        if not pending.offsets:
            pending.is_done = True
            self._offsets.popleft()

    def _ended(self, identity: ProducerIdentity | None, is_v2_finalized: bool) -> None:
        """Finish the transaction, which is now committed or aborted. Request the next producer epoch if the next
        transaction needs one."""
        self.result.outcome = Outcome.COMMITTED if self.state is S.COMMITTING else Outcome.ABORTED
        self._wanted.clear()
        self._added.clear()
        self._offsets.clear()
        self._has_begun = self._is_begin_doubtful = False
        is_raised = is_v2_finalized and not self.is_v2
        must_bump = is_raised or (self._must_bump and identity is None)
        self._must_bump = False
        self.is_v2 = is_v2_finalized
        if identity is not None:
            self.identity = identity
        self._enter(S.INITIALIZING if must_bump else S.READY)


def _deciding_code(request: TransactionRequest, answer: CoordinatorAnswer) -> ErrorCode:
    """Return the error of the whole response or, if it has none, the most severe error of its partitions."""
    if answer.code is not ErrorCode.NONE:
        return answer.code
    codes = answer.partitions.values()
    return max(codes, key=lambda code: SEVERITY.index(reaction_to(request.api, code)), default=ErrorCode.NONE)
