"""Additions of partitions that wait for a write of their transactional id, or for the end of its last transaction."""

from __future__ import annotations

import pytest

from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import AddRequest, ErrorReply
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.transaction import LAST_USABLE_EPOCH
from kraft.broker.txn.waiting import COMPLETION_WAIT_MS, WAITING_MAX
from kraft.wire.error_codes import ErrorCode
from tests.broker.txn.coordinating import FIRST_PRODUCER_ID, ID, ORDERS, Coordinating

PID = FIRST_PRODUCER_ID
DONE = [ErrorReply(ErrorCode.NONE)]
S = TransactionState


def addition(index: int, epoch: int = 0) -> AddRequest:
    return AddRequest(ID, PID, epoch, frozenset({("refunds", index)}))


def writing() -> tuple[Coordinating, list[list[ErrorReply]]]:
    """A coordinator with an addition that is not committed yet, and two that wait for it; and the replies of each."""
    one = Coordinating()
    one.init()
    one.commits = False
    return one, [one.asked(addition(index)) for index in range(3)]


def completing(version: int = 0) -> tuple[Coordinating, int]:
    """A coordinator with a transaction that is committed, and whose markers are not confirmed; and the epoch of the
    next transaction."""
    one = Coordinating(version=version)
    one.init()
    one.add(PID, 0)
    reply = one.end(PID, 0, commit=True, bumps=version == 2)
    return one, reply.producer_epoch if version == 2 else 0


def test_additions_wait_for_one_in_flight_and_are_then_written_together() -> None:
    one, replies = writing()
    assert replies == [[], [], []]
    one.commit()
    assert replies == [DONE, [], []]
    assert one.states == [S.EMPTY, S.ONGOING, S.ONGOING]
    one.commit()
    assert replies == [DONE, DONE, DONE]
    assert one.value.partitions == {("refunds", index) for index in range(3)}
    assert one.states == [S.EMPTY, S.ONGOING, S.ONGOING]


def test_a_waiting_addition_of_partitions_that_were_added_meanwhile_is_not_written() -> None:
    one = Coordinating()
    one.init()
    one.commits = False
    first, second = one.asked(addition(0)), one.asked(addition(0))
    one.commit()
    assert (first, second) == (DONE, DONE)
    assert one.states == [S.EMPTY, S.ONGOING]


def test_waiting_additions_fail_with_the_write_that_they_wait_for() -> None:
    one, replies = writing()
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert replies == [[ErrorReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)]] * 3
    assert one.value.state is S.EMPTY


def test_no_addition_waits_for_a_write_whose_reply_was_late() -> None:
    one, replies = writing()
    one.late(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert replies == [[ErrorReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)]] * 3
    assert one.asked(addition(3)) == [ErrorReply(ErrorCode.CONCURRENT_TRANSACTIONS)]
    one.commit()
    assert one.value.partitions == {("refunds", 0)}


def test_waiting_additions_are_refused_when_their_partition_moves() -> None:
    one, replies = writing()
    for ticket, reply in one.machine.unload(one.now).replies:
        ticket(reply)
    assert replies == [[ErrorReply(ErrorCode.NOT_COORDINATOR)]] * 3


def test_a_waiting_addition_of_a_fenced_epoch_is_refused_when_its_turn_comes() -> None:
    one = Coordinating()
    one.init()
    one.commits = False
    first, fenced = one.asked(addition(0)), one.asked(addition(1, epoch=1))
    one.commit()
    assert (first, fenced) == (DONE, [ErrorReply(ErrorCode.PRODUCER_FENCED)])


def test_the_number_of_waiting_additions_is_bounded() -> None:
    one, _ = writing()
    for index in range(3, WAITING_MAX + 1):
        assert one.asked(addition(index)) == []
    assert one.asked(addition(WAITING_MAX + 1)) == [ErrorReply(ErrorCode.CONCURRENT_TRANSACTIONS)]


@pytest.mark.parametrize("version", [0, 2])
def test_an_addition_for_the_next_transaction_waits_until_the_last_one_is_complete(version: int) -> None:
    one, epoch = completing(version)
    replies = one.asked(addition(0, epoch))
    one.pass_ms(COMPLETION_WAIT_MS - 1)
    assert replies == []
    one.confirm_markers()
    assert replies == DONE
    assert one.states[-2:] == [S.COMPLETE_COMMIT, S.ONGOING]
    assert one.value.partitions == {("refunds", 0)}
    one.pass_ms(COMPLETION_WAIT_MS)
    assert replies == DONE


@pytest.mark.parametrize("is_complete_written", [False, True])
def test_an_addition_waits_only_a_short_time_for_a_completion(is_complete_written: bool) -> None:
    one, epoch = completing(2)
    replies = one.asked(addition(0, epoch))
    one.pass_ms(COMPLETION_WAIT_MS - 1)
    if is_complete_written:
        one.commits = False
        one.confirm_markers()
    assert replies == []
    one.pass_ms(1)
    assert replies == [ErrorReply(ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert one.asked(addition(0, epoch)) == [ErrorReply(ErrorCode.CONCURRENT_TRANSACTIONS)]


def test_an_addition_of_the_ended_transaction_is_fenced_when_its_turn_comes() -> None:
    one, _ = completing(2)
    late = one.asked(addition(0, 0))
    one.confirm_markers()
    assert late == [ErrorReply(ErrorCode.PRODUCER_FENCED)]
    assert one.value.state is S.COMPLETE_COMMIT


def test_an_addition_with_the_next_producer_id_waits_until_that_id_is_in_use() -> None:
    """The producer learns of the id from the reply to EndTxn, before the transaction is complete."""
    value = TransactionValue(7, LAST_USABLE_EPOCH, 60_000, S.ONGOING, ORDERS, 999_000, 999_500)
    one = Coordinating({ID: value}, version=2)
    reply = one.end(7, LAST_USABLE_EPOCH, commit=True, bumps=True)
    assert (reply.producer_id, reply.producer_epoch) == (PID, 0)
    replies = one.asked(addition(0))
    one.confirm_markers()
    assert replies == DONE
    assert (one.value.producer_id, one.value.state) == (PID, S.ONGOING)
