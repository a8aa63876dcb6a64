"""Tests of the state machine of a transactional producer: tables of every call in every state and of every error of
every request, and the exact requests of transaction.version 0 and 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft.client.core.batch import NO_IDENTITY, ProducerIdentity
from kraft.client.core.records import CommittedOffset, DeliveryFailed, GroupMetadata, KafkaError
from kraft.client.core.topology import BrokerEndpoint
from kraft.client.core.transaction import TransactionMachine
from kraft.client.core.transaction_errors import REACTIONS, AbortableTransactionError, ProducerFenced
from kraft.client.core.transaction_requests import (
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
from kraft.seam import Address
from kraft.wire.error_codes import ErrorCode

S = ProducerTransactionState
A, B = ("orders", 0), ("orders", 1)
FIRST = ProducerIdentity(4000, 0)
SECOND = ProducerIdentity(4000, 1)
NODE = BrokerEndpoint(1, Address("b1", 9092))
GROUP = GroupMetadata("billing", 3, "member-1")
OFFSETS = {A: CommittedOffset(7), B: CommittedOffset(8)}
LEVELS = pytest.mark.parametrize("is_v2", [False, True])


class Conversation:
    """Drives a TransactionMachine, and answers its requests as the test decides. `asked`: all requests so far, in
    order."""

    def __init__(self, is_v2: bool = False) -> None:
        self.machine = TransactionMachine("payments", lambda failures: 100 << failures)
        self.is_v2 = is_v2
        self.now_ms = 1_000
        self.is_drained = True
        self.asked: list[TransactionRequest] = []

    def next(self) -> TransactionRequest | None:
        """Advance the clock until the next request is due, and return that request; None if there is none."""
        self.now_ms = max(self.now_ms, self.machine.retry_at_ms)
        request = self.machine.next_request(self.now_ms, is_drained=self.is_drained)
        if request is not None:
            self.asked.append(request)
        return request

    def answer(self, code: ErrorCode = ErrorCode.NONE, **values: Any) -> None:
        """Pass a response to the last request to the machine: a success, or the error `code`."""
        request = self.asked[-1]
        if code is ErrorCode.NONE and isinstance(request, FindCoordinator):
            values.setdefault("coordinator", NODE)
        if code is ErrorCode.NONE and isinstance(request, InitProducerId):
            epoch = request.identity.producer_epoch + 1 if request.identity != NO_IDENTITY else 0
            values.setdefault("identity", ProducerIdentity(4000, epoch))
        if code is ErrorCode.NONE and isinstance(request, EndTransaction) and request.version_max is None:
            old = request.identity
            values.setdefault("identity", ProducerIdentity(old.producer_id, old.producer_epoch + 1))
        if code is ErrorCode.NONE and isinstance(request, AddPartitions):
            values.setdefault("partitions", dict.fromkeys(request.partitions, ErrorCode.NONE))
        if code is ErrorCode.NONE and isinstance(request, CommitOffsets):
            values.setdefault("partitions", dict.fromkeys(request.offsets, ErrorCode.NONE))
        answered = CoordinatorAnswer(code, **values)
        self.machine.answered(request, answered, self.now_ms, is_v2_finalized=self.is_v2)

    def run(self) -> list[TransactionRequest]:
        """Answer requests with success until there are no more, and return these requests."""
        before = len(self.asked)
        while self.next() is not None:
            self.answer()
        return self.asked[before:]

    def until(self, kind: type) -> TransactionRequest:
        """Answer requests with success up to the first request of this kind. Return this request, which stays
        unanswered."""
        while not isinstance(request := self.next(), kind):
            assert request is not None, f"there is no {kind.__name__}"
            self.answer()
        return request


def ready(is_v2: bool = False) -> Conversation:
    talk = Conversation(is_v2)
    talk.machine.initialize()
    talk.run()
    talk.asked.clear()
    return talk


def in_transaction(is_v2: bool = False, *partitions: tuple[str, int]) -> Conversation:
    talk = ready(is_v2)
    talk.machine.begin()
    for partition in partitions:
        talk.machine.add_partition(partition)
    talk.run()
    talk.asked.clear()
    return talk


def failure(code: ErrorCode) -> DeliveryFailed:
    return DeliveryFailed(code, "the broker rejected the batch", certain=False)


def in_state(state: S, is_v2: bool) -> Conversation:
    """Return a conversation whose machine is in this state. If a transaction is open, it has a partition."""
    if state is S.UNINITIALIZED:
        return Conversation(is_v2)
    if state is S.INITIALIZING:
        talk = Conversation(is_v2)
        talk.machine.initialize()
        return talk
    if state is S.READY:
        return ready(is_v2)
    talk = in_transaction(is_v2, A)
    if state is S.COMMITTING:
        talk.machine.commit(aborts_itself=False)
    if state is S.ABORTING:
        talk.machine.abort()
    if state is S.ABORTABLE_ERROR:
        talk.machine.batch_failed(failure(ErrorCode.INVALID_RECORD))
    if state is S.FATAL_ERROR:
        talk.machine.batch_failed(failure(ErrorCode.PRODUCER_FENCED))
    return talk


# every call in every state: the expected state after the call, or the expected error

CALLS: dict[str, Callable[[TransactionMachine], object]] = {
    "initialize": lambda machine: machine.initialize(),
    "begin": lambda machine: machine.begin(),
    "add_partition": lambda machine: machine.add_partition(B),
    "add_offsets": lambda machine: machine.add_offsets(GROUP, OFFSETS),
    "commit": lambda machine: machine.commit(aborts_itself=False),
    "commit or abort": lambda machine: machine.commit(aborts_itself=True),
    "abort": lambda machine: machine.abort(),
}
WRONG, MUST_ABORT, FENCED = RuntimeError, AbortableTransactionError, ProducerFenced
TABLE: dict[S, tuple[S | type[Exception], ...]] = {
    # initialize, begin, add_partition, add_offsets, commit, commit or abort, abort
    S.UNINITIALIZED: (S.INITIALIZING, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG),
    S.INITIALIZING: (S.INITIALIZING, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG),
    S.READY: (S.READY, S.IN_TRANSACTION, WRONG, WRONG, WRONG, WRONG, WRONG),
    S.IN_TRANSACTION: (
        S.IN_TRANSACTION,
        WRONG,
        S.IN_TRANSACTION,
        S.IN_TRANSACTION,
        S.COMMITTING,
        S.COMMITTING,
        S.ABORTING,
    ),
    S.COMMITTING: (S.COMMITTING, WRONG, WRONG, WRONG, S.COMMITTING, S.COMMITTING, WRONG),
    S.ABORTING: (S.ABORTING, WRONG, WRONG, WRONG, WRONG, WRONG, S.ABORTING),
    S.ABORTABLE_ERROR: (S.ABORTABLE_ERROR, MUST_ABORT, MUST_ABORT, MUST_ABORT, MUST_ABORT, S.ABORTING, S.ABORTING),
    S.FATAL_ERROR: (S.FATAL_ERROR, FENCED, FENCED, FENCED, FENCED, FENCED, FENCED),
}


@LEVELS
@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("call", list(CALLS))
def test_each_producer_call_in_each_transaction_state_gives_the_listed_state_or_error(
    is_v2: bool, state: S, call: str
) -> None:
    machine = in_state(state, is_v2).machine
    assert machine.state is state
    expected = TABLE[state][list(CALLS).index(call)]
    if isinstance(expected, S):
        CALLS[call](machine)
        assert machine.state is expected
        assert expected is state or state in PREDECESSORS[expected]
    else:
        with pytest.raises(expected):
            CALLS[call](machine)
        assert machine.state is state


@pytest.mark.parametrize("state", list(S))
def test_batches_are_sent_in_open_and_committing_transactions_and_dropped_after_an_error_or_abort(state: S) -> None:
    machine = in_state(state, is_v2=False).machine
    assert machine.may_send(A) == (state in (S.IN_TRANSACTION, S.COMMITTING))
    assert not machine.may_send(B), "it was not added to the transaction"
    assert machine.drops_batches == (state in (S.ABORTING, S.ABORTABLE_ERROR, S.FATAL_ERROR))
    assert in_state(state, is_v2=True).machine.may_send(B) == (state in (S.IN_TRANSACTION, S.COMMITTING))


# every error of every request, with the expected reaction

AGAIN, SOON, FIND, ABORT, FATAL, FENCE = "again", "soon", "find", "abort", "fatal", "fenced"
MOVES = {
    ErrorCode.NOT_COORDINATOR: FIND,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: FIND,
    ErrorCode.REQUEST_TIMED_OUT: FIND,
    ErrorCode.NETWORK_EXCEPTION: FIND,
}
ENDS = {
    ErrorCode.INVALID_PRODUCER_EPOCH: FENCE,
    ErrorCode.PRODUCER_FENCED: FENCE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: FATAL,
    ErrorCode.INVALID_TXN_STATE: FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
    ErrorCode.UNKNOWN_SERVER_ERROR: FATAL,
    ErrorCode.UNSUPPORTED_VERSION: FATAL,
    ErrorCode.INVALID_REQUEST: FATAL,
}
BUSY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: AGAIN}
REACTION_TABLE: dict[type, dict[ErrorCode, str]] = {
    FindCoordinator: dict.fromkeys(MOVES, AGAIN) | BUSY | ENDS,
    InitProducerId: MOVES
    | BUSY
    | ENDS
    | {
        ErrorCode.CONCURRENT_TRANSACTIONS: AGAIN,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: FATAL,
        ErrorCode.TRANSACTION_ABORTABLE: FATAL,
    },
    AddPartitions: MOVES
    | BUSY
    | ENDS
    | {
        ErrorCode.CONCURRENT_TRANSACTIONS: SOON,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: AGAIN,
        ErrorCode.OPERATION_NOT_ATTEMPTED: AGAIN,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ABORT,
        ErrorCode.TRANSACTION_ABORTABLE: ABORT,
    },
    AddOffsets: MOVES
    | BUSY
    | ENDS
    | {
        ErrorCode.CONCURRENT_TRANSACTIONS: SOON,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: AGAIN,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ABORT,
        ErrorCode.TRANSACTION_ABORTABLE: ABORT,
    },
    CommitOffsets: MOVES
    | BUSY
    | ENDS
    | {
        ErrorCode.CONCURRENT_TRANSACTIONS: SOON,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: AGAIN,
        ErrorCode.NOT_ENOUGH_REPLICAS: AGAIN,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ABORT,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ABORT,
        ErrorCode.FENCED_INSTANCE_ID: ABORT,
        ErrorCode.ILLEGAL_GENERATION: ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: ABORT,
        ErrorCode.TRANSACTION_ABORTABLE: ABORT,
    },
    EndTransaction: MOVES
    | BUSY
    | ENDS
    | {ErrorCode.CONCURRENT_TRANSACTIONS: AGAIN, ErrorCode.TRANSACTION_ABORTABLE: ABORT},
}
ROWS = [(kind, code, expected) for kind, row in REACTION_TABLE.items() for code, expected in row.items()]


def asking(kind: type) -> Conversation:
    """Return a conversation whose last request is of this kind and has no response yet."""
    if kind in (FindCoordinator, InitProducerId):
        talk = Conversation()
        talk.machine.initialize()
    elif kind is AddPartitions:
        talk = in_transaction()
        talk.machine.add_partition(A)
    else:
        talk = in_transaction(False, A)
        if kind is EndTransaction:
            talk.machine.commit(aborts_itself=False)
        else:
            talk.machine.add_offsets(GROUP, OFFSETS)
    talk.until(kind)
    return talk


@pytest.mark.parametrize(("kind", "code", "expected"), ROWS)
def test_each_error_of_each_coordinator_request_gives_the_listed_reaction(
    kind: type, code: ErrorCode, expected: str
) -> None:
    talk = asking(kind)
    request, state = talk.asked[-1], talk.machine.state
    talk.answer(code)
    machine = talk.machine
    if expected in (AGAIN, SOON, FIND):
        assert machine.state is state
        assert machine.next_request(talk.now_ms, is_drained=True) is None, "it backs off first"
        assert machine.retry_at_ms - talk.now_ms == (20 if expected == SOON else 100)
        following = talk.next()
        if expected == FIND:
            is_group = kind is CommitOffsets
            assert following == FindCoordinator("billing" if is_group else "payments", is_group)
            talk.answer()
            following = talk.next()
        assert following == request
        talk.answer()
        assert machine.state not in (S.ABORTABLE_ERROR, S.FATAL_ERROR)
    elif expected == ABORT:
        assert machine.state is S.ABORTABLE_ERROR
        assert isinstance(machine.error, AbortableTransactionError)
        assert machine.error.code is code
        assert talk.next() is None
    else:
        assert machine.state is S.FATAL_ERROR
        assert type(machine.error) is (ProducerFenced if expected == FENCE else KafkaError)
        assert machine.error is not None
        assert machine.error.code is code
        assert talk.next() is None


def test_the_listed_errors_include_every_error_for_which_the_producer_has_a_reaction() -> None:
    """Each error for which the producer has a reaction is in the table above. Left out are errors with the same meaning
    as one in the table."""
    kinds = {kind.api: kind for kind in REACTION_TABLE}
    same = {
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
    for api, reactions in REACTIONS.items():
        left = reactions.keys() - REACTION_TABLE[kinds[api]].keys() - same
        assert left == ({ErrorCode.GROUP_AUTHORIZATION_FAILED} if kinds[api] is FindCoordinator else set()), api


def test_a_transaction_must_be_aborted_if_find_coordinator_rejects_its_group() -> None:
    talk = in_transaction(True)
    talk.machine.add_offsets(GROUP, OFFSETS)
    talk.until(FindCoordinator)
    talk.answer(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert talk.machine.state is S.ABORTABLE_ERROR


PRODUCE_ERRORS = {
    ErrorCode.PRODUCER_FENCED: S.FATAL_ERROR,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: S.FATAL_ERROR,
    ErrorCode.INVALID_TXN_STATE: S.FATAL_ERROR,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: S.FATAL_ERROR,
    ErrorCode.INVALID_PRODUCER_EPOCH: S.ABORTABLE_ERROR,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: S.ABORTABLE_ERROR,
    ErrorCode.UNKNOWN_PRODUCER_ID: S.ABORTABLE_ERROR,
    ErrorCode.TRANSACTION_ABORTABLE: S.ABORTABLE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT: S.ABORTABLE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE: S.ABORTABLE_ERROR,
}


@pytest.mark.parametrize(("code", "expected"), PRODUCE_ERRORS.items())
@pytest.mark.parametrize("state", [S.IN_TRANSACTION, S.COMMITTING])
def test_a_produce_error_fails_the_transaction_or_the_producer_depending_on_its_code(
    code: ErrorCode, expected: S, state: S
) -> None:
    talk = in_state(state, is_v2=True)
    talk.machine.batch_failed(failure(code))
    assert talk.machine.state is expected


@LEVELS
@pytest.mark.parametrize("state", [S.READY, S.ABORTING, S.ABORTABLE_ERROR, S.FATAL_ERROR])
def test_a_failed_batch_does_not_change_the_state_unless_the_transaction_is_open_or_committing(
    is_v2: bool, state: S
) -> None:
    talk = in_state(state, is_v2)
    talk.machine.batch_failed(failure(ErrorCode.PRODUCER_FENCED))
    assert talk.machine.state is state


# the exact requests of a transaction


def test_a_producer_before_transaction_version_2_adds_partitions_and_groups_and_keeps_its_epoch() -> None:
    talk = Conversation(is_v2=False)
    machine = talk.machine
    machine.initialize()
    assert talk.run() == [FindCoordinator("payments"), InitProducerId(NO_IDENTITY)]
    machine.begin()
    assert talk.run() == []
    machine.add_partition(A)
    machine.add_partition(B)
    machine.add_partition(A)
    assert not machine.may_send(A)
    assert talk.run() == [AddPartitions(FIRST, (A, B))]
    assert machine.may_send(A)
    machine.add_partition(B)
    assert talk.run() == [], "it is already in the transaction"
    pending = machine.add_offsets(GROUP, OFFSETS)
    assert talk.run() == [
        AddOffsets(FIRST, "billing"),
        FindCoordinator("billing", is_group=True),
        CommitOffsets(FIRST, GROUP, OFFSETS, 4),
    ]
    assert pending.is_done
    machine.commit(aborts_itself=False)
    talk.is_drained = False
    assert talk.run() == [], "batches are still unacknowledged"
    talk.is_drained = True
    assert talk.run() == [EndTransaction(FIRST, True, 4)]
    assert (machine.state, machine.outcome, machine.identity) == (S.READY, Outcome.COMMITTED, FIRST)
    machine.begin()
    assert not machine.may_send(A), "each transaction adds its partitions"


def test_a_producer_with_transaction_version_2_adds_nothing_and_gets_its_next_epoch_from_end_txn() -> None:
    talk = ready(is_v2=True)
    machine = talk.machine
    machine.begin()
    machine.add_partition(A)
    machine.add_offsets(GROUP, OFFSETS)
    assert talk.run() == [FindCoordinator("billing", is_group=True), CommitOffsets(FIRST, GROUP, OFFSETS, None)]
    machine.commit(aborts_itself=False)
    assert talk.run() == [EndTransaction(FIRST, True, None)]
    assert (machine.state, machine.outcome, machine.identity) == (S.READY, Outcome.COMMITTED, SECOND)
    machine.begin()
    machine.add_partition(A)
    machine.abort()
    assert talk.run() == [EndTransaction(SECOND, False, None)]
    assert machine.identity == ProducerIdentity(4000, 2)


def test_a_producer_uses_the_new_producer_id_that_end_txn_returns_after_the_last_epoch() -> None:
    talk = in_transaction(True, A)
    talk.machine.commit(aborts_itself=False)
    talk.until(EndTransaction)
    talk.answer(identity=ProducerIdentity(4001, 0))
    assert talk.machine.identity == ProducerIdentity(4001, 0)


@LEVELS
@pytest.mark.parametrize("is_commit", [False, True])
def test_an_empty_transaction_is_committed_or_aborted_without_a_request(is_v2: bool, is_commit: bool) -> None:
    talk = in_transaction(is_v2)
    if is_commit:
        talk.machine.commit(aborts_itself=False)
    else:
        talk.machine.abort()
    assert talk.run() == []
    assert talk.machine.state is S.READY
    assert talk.machine.outcome is (Outcome.COMMITTED if is_commit else Outcome.ABORTED)


def test_an_abort_before_add_partitions_to_txn_was_sent_needs_no_request() -> None:
    talk = in_transaction(False)
    talk.machine.add_partition(A)
    talk.machine.abort()
    assert talk.run() == []
    assert talk.machine.outcome is Outcome.ABORTED


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR])
def test_add_partitions_to_txn_without_a_known_result_is_repeated_before_the_abort(code: ErrorCode) -> None:
    talk = in_transaction(False)
    talk.machine.add_partition(A)
    lost = talk.until(AddPartitions)
    talk.answer(code)
    talk.next()
    talk.answer(coordinator=NODE)
    talk.next()
    # this response does not show whether the first attempt was carried out
    talk.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    talk.machine.abort()
    assert talk.run() == [lost, EndTransaction(FIRST, False, 4)]


def after_a_refused_repeat(code: ErrorCode) -> Conversation:
    """Return a conversation that aborts a transaction. The response to its only AddPartitionsToTxn was lost, and the
    repeat was refused with this error."""
    talk = in_transaction(False)
    talk.machine.add_partition(A)
    talk.until(AddPartitions)
    talk.answer(ErrorCode.NETWORK_EXCEPTION)
    talk.machine.abort()
    talk.until(AddPartitions)
    talk.answer(code)
    talk.asked.clear()
    return talk


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_abort_is_sent_after_the_repeat_of_a_lost_add_partitions_to_txn_was_refused(code: ErrorCode) -> None:
    talk = after_a_refused_repeat(code)
    assert talk.run() == [EndTransaction(FIRST, False, 4), InitProducerId(FIRST)]
    assert talk.machine.outcome is Outcome.ABORTED


def test_an_abort_succeeds_if_the_coordinator_has_nothing_because_a_lost_add_partitions_to_txn_was_not_done() -> None:
    talk = after_a_refused_repeat(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    talk.until(EndTransaction)
    talk.answer(ErrorCode.INVALID_TXN_STATE)
    assert talk.machine.outcome is Outcome.ABORTED
    assert talk.run() == [InitProducerId(FIRST)]
    talk.machine.begin()
    talk.machine.add_partition(A)
    talk.run()
    talk.machine.abort()
    talk.until(EndTransaction)
    talk.answer(ErrorCode.INVALID_TXN_STATE)
    assert talk.machine.state is S.FATAL_ERROR, "the coordinator has confirmed the addition"


def test_a_rejected_add_partitions_to_txn_is_not_repeated_before_the_abort() -> None:
    talk = in_transaction(False)
    talk.machine.add_partition(A)
    talk.until(AddPartitions)
    talk.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    talk.machine.abort()
    assert talk.run() == [InitProducerId(FIRST)]


def test_an_abort_waits_for_the_response_to_the_outstanding_coordinator_request() -> None:
    talk = in_transaction(False)
    talk.machine.add_partition(A)
    talk.until(AddPartitions)
    talk.machine.abort()
    assert talk.next() is None
    talk.answer()
    assert talk.run() == [EndTransaction(FIRST, False, 4)]


# errors and producer epochs


def test_after_an_abortable_error_before_transaction_version_2_init_producer_id_gives_the_next_epoch() -> None:
    talk = in_state(S.ABORTABLE_ERROR, is_v2=False)
    talk.machine.abort()
    assert talk.run() == [EndTransaction(FIRST, False, 4), InitProducerId(FIRST)]
    assert (talk.machine.state, talk.machine.identity) == (S.READY, SECOND)


def test_after_an_abortable_error_with_transaction_version_2_end_txn_gives_the_next_epoch() -> None:
    talk = in_state(S.ABORTABLE_ERROR, is_v2=True)
    talk.machine.abort()
    assert talk.run() == [EndTransaction(FIRST, False, None)]
    assert (talk.machine.state, talk.machine.identity) == (S.READY, SECOND)


def test_an_abort_that_drops_batches_sent_before_is_followed_by_a_request_for_the_next_epoch() -> None:
    talk = in_transaction(False, A)
    talk.machine.abort()
    talk.machine.require_bump()
    assert talk.run() == [EndTransaction(FIRST, False, 4), InitProducerId(FIRST)]


def test_an_abort_during_which_a_batch_is_rejected_is_followed_by_a_request_for_the_next_epoch() -> None:
    talk = in_state(S.ABORTING, is_v2=False)
    talk.is_drained = False
    assert talk.run() == []
    talk.machine.batch_failed(failure(ErrorCode.INVALID_RECORD))
    talk.is_drained = True
    assert talk.run() == [EndTransaction(FIRST, False, 4), InitProducerId(FIRST)]


def test_an_abort_with_offsets_in_doubt_is_followed_by_a_request_for_the_next_epoch() -> None:
    """A TxnOffsetCommit that arrives late must not be taken for one of the next transaction."""
    talk = in_transaction()
    talk.machine.add_offsets(GROUP, OFFSETS)
    talk.until(CommitOffsets)
    talk.machine.abort()
    talk.answer(ErrorCode.NETWORK_EXCEPTION)
    assert [type(request) for request in talk.run()] == [EndTransaction, InitProducerId]


def test_a_commit_has_its_outcome_before_the_next_epoch_is_received() -> None:
    talk = in_transaction(False, A)
    talk.is_v2 = True
    talk.machine.commit(aborts_itself=False)
    talk.until(EndTransaction)
    talk.answer()
    assert (talk.machine.state, talk.machine.outcome) == (S.INITIALIZING, Outcome.COMMITTED)


def test_a_raised_transaction_version_takes_effect_after_the_open_transaction_with_a_new_epoch() -> None:
    talk = in_transaction(False, A)
    talk.is_v2 = True
    talk.machine.add_partition(B)
    talk.machine.commit(aborts_itself=False)
    assert talk.run() == [AddPartitions(FIRST, (B,)), EndTransaction(FIRST, True, 4), InitProducerId(FIRST)]
    assert talk.machine.is_v2


def test_a_lowered_transaction_version_takes_effect_after_the_open_transaction() -> None:
    talk = in_transaction(True, A)
    talk.is_v2 = False
    talk.machine.commit(aborts_itself=False)
    assert talk.run() == [EndTransaction(FIRST, True, None)]
    assert not talk.machine.is_v2
    talk.machine.begin()
    talk.machine.add_partition(A)
    assert talk.run() == [AddPartitions(SECOND, (A,))]


def test_a_commit_with_aborts_itself_aborts_the_transaction_without_another_call_if_a_batch_fails() -> None:
    talk = in_transaction(True, A)
    talk.is_drained = False
    talk.machine.commit(aborts_itself=True)
    talk.machine.batch_failed(failure(ErrorCode.REQUEST_TIMED_OUT))
    assert talk.machine.state is S.ABORTING
    talk.is_drained = True
    assert talk.run() == [EndTransaction(FIRST, False, None)]
    assert talk.machine.outcome is Outcome.ABORTED
    assert talk.machine.error is not None
    talk.machine.begin()
    assert talk.machine.error is None


def test_a_transaction_abortable_error_in_the_response_to_an_abort_is_fatal() -> None:
    talk = in_state(S.ABORTING, is_v2=True)
    talk.until(EndTransaction)
    talk.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert talk.machine.state is S.FATAL_ERROR


def test_the_text_of_a_fatal_commit_error_says_that_the_outcome_is_unknown() -> None:
    talk = asking(EndTransaction)
    talk.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "may be committed or aborted" in str(talk.machine.error)


# responses with a result per partition


def test_the_most_severe_partition_error_decides_the_reaction_to_add_partitions_to_txn() -> None:
    talk = in_transaction(False)
    talk.machine.add_partition(A)
    talk.machine.add_partition(B)
    talk.until(AddPartitions)
    talk.answer(partitions={A: ErrorCode.TOPIC_AUTHORIZATION_FAILED, B: ErrorCode.OPERATION_NOT_ATTEMPTED})
    assert talk.machine.error is not None
    assert talk.machine.error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_only_offsets_that_were_not_stored_are_sent_again_in_txn_offset_commit() -> None:
    talk = in_transaction(True)
    pending = talk.machine.add_offsets(GROUP, OFFSETS)
    talk.until(CommitOffsets)
    talk.answer(partitions={A: ErrorCode.NONE, B: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    assert not pending.is_done
    assert talk.run() == [CommitOffsets(FIRST, GROUP, {B: OFFSETS[B]}, None)]
    assert pending.is_done


def test_pending_group_offsets_are_sent_before_a_commit_and_dropped_by_an_abort() -> None:
    for is_commit in (True, False):
        talk = in_transaction(True)
        pending = talk.machine.add_offsets(GROUP, OFFSETS)
        if is_commit:
            talk.machine.commit(aborts_itself=False)
        else:
            talk.machine.abort()
        kinds = [type(one) for one in talk.run()]
        assert kinds == ([FindCoordinator, CommitOffsets, EndTransaction] if is_commit else [EndTransaction])
        assert pending.is_done == is_commit


# backoff, and one request at a time


def test_the_backoff_of_coordinator_requests_grows_with_each_failure_and_restarts_after_a_success() -> None:
    talk = Conversation()
    talk.machine.initialize()
    talk.until(InitProducerId)
    pauses = []
    for _ in range(3):
        before = talk.now_ms
        talk.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        pauses.append(talk.machine.retry_at_ms - before)
        assert talk.machine.next_request(talk.machine.retry_at_ms - 1, is_drained=True) is None
        talk.next()
    assert pauses == [100, 200, 400]
    talk.answer()
    assert talk.machine.retry_at_ms == 0
    talk.machine.begin()
    talk.machine.add_partition(A)
    talk.until(AddPartitions)
    talk.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert talk.machine.retry_at_ms - talk.now_ms == 100


@pytest.mark.parametrize("kind", list(REACTION_TABLE))
def test_at_most_one_coordinator_request_is_outstanding_at_a_time(kind: type) -> None:
    talk = asking(kind)
    assert talk.machine.next_request(talk.now_ms + 10_000, is_drained=True) is None
