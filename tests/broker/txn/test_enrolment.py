"""Partitions of a transaction, its timeout, the expiry of ids, and questions about transactions."""

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
from kraft.broker.txn.transaction import LAST_USABLE_EPOCH
from kraft.wire.error_codes import ErrorCode
from tests.broker.txn.coordinating import FIRST_PRODUCER_ID, ID, ORDERS, Coordinating

PID = FIRST_PRODUCER_ID
DAY_MS = 24 * 3_600_000
S = TransactionState


def begun(version: int = 0) -> Coordinating:
    """A coordinator with one open transaction."""
    one = Coordinating(version=version)
    one.init()
    assert one.add(PID, 0) == ErrorReply(ErrorCode.NONE)
    return one


def test_the_first_partitions_begin_a_transaction() -> None:
    one = begun()
    assert (one.value.state, one.value.partitions, one.value.start_ms) == (S.ONGOING, ORDERS, one.now.wall_ms)


def test_further_partitions_join_the_open_transaction_and_keep_its_start() -> None:
    one = begun()
    start_ms = one.value.start_ms
    one.pass_ms(1_000)
    one.add(PID, 0, frozenset({("refunds", 0)}))
    assert one.value.partitions == ORDERS | {("refunds", 0)}
    assert one.value.start_ms == start_ms


def test_partitions_that_are_enrolled_already_are_not_written_again() -> None:
    one = begun()
    records = len(one.log)
    assert one.add(PID, 0, frozenset({("orders", 1)})) == ErrorReply(ErrorCode.NONE)
    assert len(one.log) == records


def test_the_next_transaction_begins_without_the_partitions_of_the_last_one() -> None:
    one = begun()
    one.end(PID, 0, commit=True)
    one.confirm_markers()
    one.add(PID, 0, frozenset({("refunds", 0)}))
    assert one.value.partitions == {("refunds", 0)}


def test_no_partition_joins_a_transaction_whose_outcome_is_decided() -> None:
    one = begun()
    one.end(PID, 0, commit=True)
    assert one.add(PID, 0, frozenset({("refunds", 0)})).error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_producer_with_another_identity_enrols_nothing() -> None:
    one = begun()
    assert one.add(PID, 1).error is ErrorCode.PRODUCER_FENCED
    assert one.add(PID + 1, 0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert Coordinating().add(PID, 0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_one_write_of_an_id_is_in_flight_at_a_time() -> None:
    one = begun()
    one.commits = False
    replies = one.asked(AddRequest(ID, PID, 0, frozenset({("refunds", 0)})))
    assert one.add(PID, 0, frozenset({("refunds", 1)})).error is ErrorCode.CONCURRENT_TRANSACTIONS
    one.commit()
    assert replies == [ErrorReply(ErrorCode.NONE)]


def verify(one: Coordinating, partitions: frozenset[tuple[str, int]], epoch: int = 0) -> VerifyReply:
    reply = one.ask(VerifyRequest(ID, PID, epoch, partitions))
    assert isinstance(reply, VerifyReply)
    return reply


def test_verification_names_the_partitions_that_are_not_enrolled() -> None:
    one = begun()
    assert verify(one, ORDERS) == VerifyReply(ErrorCode.NONE)
    assert verify(one, ORDERS | {("refunds", 0)}) == VerifyReply(ErrorCode.NONE, frozenset({("refunds", 0)}))


def test_verification_does_not_wait_for_a_write_in_flight() -> None:
    one = begun()
    one.commits = False
    one.asked(AddRequest(ID, PID, 0, frozenset({("refunds", 0)})))
    assert verify(one, ORDERS) == VerifyReply(ErrorCode.NONE)


def test_verification_refuses_another_epoch_and_a_decided_transaction() -> None:
    one = begun()
    assert verify(one, ORDERS, epoch=1).error is ErrorCode.PRODUCER_FENCED
    one.end(PID, 0, commit=True)
    assert verify(one, ORDERS).error is ErrorCode.CONCURRENT_TRANSACTIONS
    one.confirm_markers()
    assert verify(one, ORDERS) == VerifyReply(ErrorCode.NONE, ORDERS)


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_is_open_for_its_timeout_is_aborted_and_its_producer_fenced(version: int) -> None:
    one = begun(version)
    one.pass_ms(59_999)
    assert one.value.state is S.ONGOING
    one.pass_ms(1)
    assert (one.value.state, one.value.producer_epoch) == (S.PREPARE_ABORT, 1)
    one.confirm_markers()
    assert one.value.state is S.COMPLETE_ABORT
    assert one.end(PID, 0, commit=True).error is ErrorCode.PRODUCER_FENCED


def test_the_time_before_a_failover_counts_for_the_timeout() -> None:
    one = begun()
    one.pass_ms(40_000)
    other = one.failover()
    other.pass_ms(60_000)
    assert other.value.state is S.PREPARE_ABORT


def test_a_timeout_abort_changes_a_producer_id_whose_epochs_are_used_up() -> None:
    value = TransactionValue(7, LAST_USABLE_EPOCH, 1_000, S.ONGOING, ORDERS, 999_000, 999_500)
    one = Coordinating({ID: value}, version=2)
    one.has_producer_ids = False
    one.pass_ms(1_000)
    assert one.value.state is S.ONGOING, "there is no producer id yet"
    one.has_producer_ids = True
    one.pass_ms(500)
    one.confirm_markers()
    assert (one.value.state, one.value.producer_id, one.value.producer_epoch) == (S.COMPLETE_ABORT, PID, 0)


def test_a_timeout_abort_that_is_not_appended_is_tried_again() -> None:
    one = begun()
    one.commits = False
    one.pass_ms(60_000)
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (one.value.state, one.value.producer_epoch) == (S.ONGOING, 0)
    one.commits = True
    one.pass_ms(500)
    assert (one.value.state, one.value.producer_epoch) == (S.PREPARE_ABORT, 1)


def test_an_idle_id_expires_and_an_open_one_does_not() -> None:
    one = begun()
    one.ask(InitRequest("idle", 60_000))
    one.now = Now(one.now.monotonic_ms, one.now.wall_ms + 7 * DAY_MS + 1)
    one.expire()
    assert list(one.machine.transactions) == [ID]
    assert one.log[-1] == ("idle", None)


def test_a_used_id_does_not_expire() -> None:
    one = Coordinating()
    one.init()
    one.pass_ms(6 * DAY_MS)
    one.init()
    one.pass_ms(6 * DAY_MS)
    one.expire()
    assert list(one.machine.transactions) == [ID]


def test_a_transaction_is_described_and_listed_as_it_is_committed() -> None:
    one = begun()
    one.commits = False
    one.end(PID, 0, commit=True)
    assert one.ask(DescribeTransactionRequest(ID)).value.state is S.ONGOING
    ((name, value),) = one.ask(ListTransactionsRequest()).transactions
    assert (name, value.state) == (ID, S.ONGOING)
    assert one.ask(DescribeTransactionRequest("other")).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_broker_that_is_no_longer_the_coordinator_refuses_what_waits() -> None:
    one = begun()
    one.commits = False
    replies = one.asked(AddRequest(ID, PID, 0, frozenset({("refunds", 0)})))
    for ticket, reply in one.machine.unload(one.now).replies:
        ticket(reply)
    assert replies == [ErrorReply(ErrorCode.NOT_COORDINATOR)]
