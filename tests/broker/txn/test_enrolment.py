"""Adding and verifying a transaction's partitions, its timeout, the expiry of transactional ids, and descriptions."""

from __future__ import annotations

import pytest

from kraft.broker.shard.now import Now
from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import (
    AddRequest,
    DescribeTransactionRequest,
    ErrorReply,
    InitRequest,
    ListTransactionsRequest,
    VerifyReply,
    VerifyRequest,
)
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.transaction import EPOCH_MAX, LAST_USABLE_EPOCH
from kraft.broker.txn.waiting import COMPLETION_WAIT_MS
from kraft.wire.error_codes import ErrorCode
from tests.broker.txn.coordinating import FIRST_PRODUCER_ID, ID, ORDERS, Coordinating

PID = FIRST_PRODUCER_ID
DAY_MS = 24 * 3_600_000
S = TransactionState


def begun(version: int = 0) -> Coordinating:
    """Return a coordinator with one open transaction."""
    one = Coordinating(version=version)
    one.init()
    assert one.add(PID, 0) == ErrorReply(ErrorCode.NONE)
    return one


def test_adding_the_first_partitions_begins_a_transaction() -> None:
    one = begun()
    assert (one.value.state, one.value.partitions, one.value.start_ms) == (S.ONGOING, ORDERS, one.now.wall_ms)


def test_adding_partitions_to_an_open_transaction_keeps_its_start_time() -> None:
    one = begun()
    start_ms = one.value.start_ms
    one.pass_ms(1_000)
    one.add(PID, 0, frozenset({("refunds", 0)}))
    assert one.value.partitions == ORDERS | {("refunds", 0)}
    assert one.value.start_ms == start_ms


def test_adding_partitions_that_the_transaction_already_has_writes_no_record() -> None:
    one = begun()
    records = len(one.log)
    assert one.add(PID, 0, frozenset({("orders", 1)})) == ErrorReply(ErrorCode.NONE)
    assert len(one.log) == records


def test_a_transaction_does_not_have_the_partitions_of_the_previous_one() -> None:
    one = begun()
    one.end(PID, 0, commit=True)
    one.confirm_markers()
    one.add(PID, 0, frozenset({("refunds", 0)}))
    assert one.value.partitions == {("refunds", 0)}


def test_adding_a_partition_to_a_prepared_transaction_gets_concurrent_transactions() -> None:
    one = begun()
    one.end(PID, 0, commit=True)
    one.pass_ms(COMPLETION_WAIT_MS)
    assert one.add(PID, 0, frozenset({("refunds", 0)})).error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_adding_partitions_with_a_wrong_producer_id_or_epoch_is_rejected() -> None:
    one = begun()
    assert one.add(PID, 1).error is ErrorCode.PRODUCER_FENCED
    assert one.add(PID + 1, 0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert Coordinating().add(PID, 0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_adding_or_verifying_partitions_with_the_epoch_that_only_fences_is_fenced() -> None:
    one = Coordinating({ID: TransactionValue(PID, EPOCH_MAX, 60_000, S.COMPLETE_ABORT)})
    assert one.add(PID, EPOCH_MAX) == ErrorReply(ErrorCode.PRODUCER_FENCED)
    assert verify(one, ORDERS, epoch=EPOCH_MAX) == VerifyReply(ErrorCode.PRODUCER_FENCED)


def test_adding_partitions_during_a_write_of_the_same_transactional_id_gets_concurrent_transactions() -> None:
    one = begun()
    one.commits = False
    replies = one.asked(AddRequest(ID, PID, 0, frozenset({("refunds", 0)})))
    records = len(one.log)
    assert one.end(PID, 0, commit=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert one.add(PID, 0, frozenset({("refunds", 1)})) is None
    assert len(one.log) == records
    one.commit()
    assert replies == [ErrorReply(ErrorCode.NONE)]


def verify(one: Coordinating, partitions: frozenset[tuple[str, int]], epoch: int = 0) -> VerifyReply:
    reply = one.ask(VerifyRequest(ID, PID, epoch, partitions))
    assert isinstance(reply, VerifyReply)
    return reply


def test_verifying_partitions_returns_those_that_are_not_part_of_the_transaction() -> None:
    one = begun()
    assert verify(one, ORDERS) == VerifyReply(ErrorCode.NONE)
    assert verify(one, ORDERS | {("refunds", 0)}) == VerifyReply(ErrorCode.NONE, frozenset({("refunds", 0)}))


def test_partitions_are_verified_while_a_write_of_the_transactional_id_is_in_flight() -> None:
    one = begun()
    one.commits = False
    one.asked(AddRequest(ID, PID, 0, frozenset({("refunds", 0)})))
    assert verify(one, ORDERS) == VerifyReply(ErrorCode.NONE)


def test_verifying_partitions_with_a_wrong_epoch_or_in_a_prepared_transaction_gets_an_error() -> None:
    one = begun()
    assert verify(one, ORDERS, epoch=1).error is ErrorCode.PRODUCER_FENCED
    one.end(PID, 0, commit=True)
    assert verify(one, ORDERS).error is ErrorCode.CONCURRENT_TRANSACTIONS
    one.confirm_markers()
    assert verify(one, ORDERS) == VerifyReply(ErrorCode.NONE, ORDERS)


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_is_aborted_at_its_timeout_and_its_producer_is_fenced(version: int) -> None:
    one = begun(version)
    one.pass_ms(59_999)
    assert one.value.state is S.ONGOING
    one.pass_ms(1)
    assert (one.value.state, one.value.producer_epoch) == (S.PREPARE_ABORT, 1)
    one.confirm_markers()
    assert one.value.state is S.COMPLETE_ABORT
    assert one.end(PID, 0, commit=True).error is ErrorCode.PRODUCER_FENCED


def test_the_time_before_a_coordinator_failover_counts_for_the_transaction_timeout() -> None:
    one = begun()
    one.pass_ms(40_000)
    other = one.failover()
    other.pass_ms(19_999)
    assert other.value.state is S.ONGOING
    other.pass_ms(1)
    assert other.value.state is S.PREPARE_ABORT


def test_a_timeout_abort_switches_to_a_new_producer_id_when_the_epochs_are_used_up() -> None:
    value = TransactionValue(7, LAST_USABLE_EPOCH, 1_000, S.ONGOING, ORDERS, 999_000, 999_500)
    one = Coordinating({ID: value}, version=2)
    one.has_producer_ids = False
    one.pass_ms(1_000)
    assert one.value.state is S.ONGOING, "there is no producer id yet"
    one.has_producer_ids = True
    one.pass_ms(500)
    one.confirm_markers()
    assert (one.value.state, one.value.producer_id, one.value.producer_epoch) == (S.COMPLETE_ABORT, PID, 0)


def test_a_timeout_abort_whose_record_could_not_be_appended_is_retried() -> None:
    one = begun()
    one.commits = False
    one.pass_ms(60_000)
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (one.value.state, one.value.producer_epoch) == (S.ONGOING, 0)
    one.commits = True
    one.pass_ms(500)
    assert (one.value.state, one.value.producer_epoch) == (S.PREPARE_ABORT, 1)


def test_an_idle_transactional_id_expires_but_not_one_with_an_open_transaction() -> None:
    one = begun()
    one.ask(InitRequest("idle", 60_000))
    one.now = Now(one.now.monotonic_ms, one.now.wall_ms + 7 * DAY_MS + 1)
    one.expire()
    assert list(one.machine.transactions) == [ID]
    assert one.log[-1] == ("idle", None)


def test_a_transactional_id_used_within_its_expiration_time_does_not_expire() -> None:
    one = Coordinating()
    one.init()
    one.pass_ms(6 * DAY_MS)
    one.init()
    one.pass_ms(6 * DAY_MS)
    one.expire()
    assert list(one.machine.transactions) == [ID]


def test_a_transaction_is_described_and_listed_in_its_committed_state_during_a_write() -> None:
    one = begun()
    one.commits = False
    one.end(PID, 0, commit=True)
    assert one.ask(DescribeTransactionRequest(ID)).value.state is S.ONGOING
    ((name, value),) = one.ask(ListTransactionsRequest()).transactions
    assert (name, value.state) == (ID, S.ONGOING)
    assert one.ask(DescribeTransactionRequest("other")).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_waiting_request_gets_not_coordinator_when_its_partition_is_unloaded() -> None:
    one = begun()
    one.commits = False
    replies = one.asked(AddRequest(ID, PID, 0, frozenset({("refunds", 0)})))
    for ticket, reply in one.machine.unload(one.now).replies:
        ticket(reply)
    assert replies == [ErrorReply(ErrorCode.NOT_COORDINATOR)]
