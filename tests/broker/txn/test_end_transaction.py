"""EndTxn: each state and each request, of both protocols; and two-phase commit after the decision."""

from __future__ import annotations

import pytest

from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import EndReply, EndRequest
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.transaction import EPOCH_MAX, LAST_USABLE_EPOCH
from kraft.wire.error_codes import ErrorCode
from tests.broker.txn.coordinating import FIRST_PRODUCER_ID, ID, ORDERS, Coordinating

PID = 7
EPOCH = 5
S = TransactionState
NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
INVALID, CONCURRENT = ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS


def loaded(state: TransactionState, *, epoch: int = EPOCH, version: int = 0) -> Coordinating:
    """A coordinator whose partitions have not confirmed their markers yet."""
    partitions = ORDERS if state is S.ONGOING or state.is_prepared else frozenset()
    start_ms = -1 if state is S.EMPTY else 999_000
    return Coordinating(
        {ID: TransactionValue(PID, epoch, 60_000, state, partitions, 999_000, start_ms)}, version=version
    )


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        (S.ONGOING, True, NONE),
        (S.ONGOING, False, NONE),
        (S.PREPARE_COMMIT, True, CONCURRENT),
        (S.PREPARE_COMMIT, False, INVALID),
        (S.PREPARE_ABORT, True, INVALID),
        (S.PREPARE_ABORT, False, CONCURRENT),
        (S.COMPLETE_COMMIT, True, NONE),
        (S.COMPLETE_COMMIT, False, INVALID),
        (S.COMPLETE_ABORT, True, INVALID),
        (S.COMPLETE_ABORT, False, NONE),
        (S.EMPTY, True, INVALID),
        (S.EMPTY, False, INVALID),
    ],
)
def test_the_first_protocol_answers_each_state(state: TransactionState, commit: bool, expected: ErrorCode) -> None:
    one = loaded(state)
    assert one.end(PID, EPOCH, commit=commit) == EndReply(expected)


@pytest.mark.parametrize("bumps", [False, True])
def test_an_unknown_id_and_another_producer_id_have_no_mapping(bumps: bool) -> None:
    assert Coordinating().end(PID, EPOCH, commit=True, bumps=bumps).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    one = loaded(S.ONGOING)
    assert one.end(PID + 1, EPOCH, commit=True, bumps=bumps).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_another_epoch_is_fenced_in_the_first_protocol(epoch: int) -> None:
    assert loaded(S.ONGOING).end(PID, epoch, commit=True).error is FENCED


@pytest.mark.parametrize(
    ("state", "commit", "retry", "expected"),
    [
        (S.ONGOING, True, False, NONE),
        (S.ONGOING, True, True, FENCED),
        (S.ONGOING, False, False, NONE),
        (S.ONGOING, False, True, FENCED),
        (S.PREPARE_COMMIT, True, False, FENCED),
        (S.PREPARE_COMMIT, True, True, CONCURRENT),
        (S.PREPARE_COMMIT, False, False, FENCED),
        (S.PREPARE_COMMIT, False, True, INVALID),
        (S.PREPARE_ABORT, True, False, FENCED),
        (S.PREPARE_ABORT, True, True, INVALID),
        (S.PREPARE_ABORT, False, False, FENCED),
        (S.PREPARE_ABORT, False, True, CONCURRENT),
        (S.COMPLETE_COMMIT, True, False, INVALID),
        (S.COMPLETE_COMMIT, True, True, NONE),
        (S.COMPLETE_COMMIT, False, False, NONE),
        (S.COMPLETE_COMMIT, False, True, INVALID),
        (S.COMPLETE_ABORT, True, False, INVALID),
        (S.COMPLETE_ABORT, True, True, INVALID),
        (S.COMPLETE_ABORT, False, False, NONE),
        (S.COMPLETE_ABORT, False, True, NONE),
        (S.EMPTY, True, False, INVALID),
        (S.EMPTY, True, True, FENCED),
        (S.EMPTY, False, False, NONE),
        (S.EMPTY, False, True, FENCED),
    ],
)
def test_the_second_protocol_answers_each_state(
    state: TransactionState, commit: bool, retry: bool, expected: ErrorCode
) -> None:
    one = loaded(state, version=2)
    reply = one.end(PID, EPOCH - retry, commit=commit, bumps=True)
    assert reply.error is expected
    if expected is NONE:
        assert (reply.producer_id, reply.producer_epoch) == (PID, EPOCH if retry else EPOCH + 1)


def test_an_epoch_further_back_is_fenced_in_the_second_protocol() -> None:
    assert loaded(S.COMPLETE_COMMIT, version=2).end(PID, EPOCH - 2, commit=True, bumps=True).error is FENCED


def test_markers_follow_the_decision_and_completion_follows_the_markers() -> None:
    one = loaded(S.ONGOING)
    one.end(PID, EPOCH, commit=True)
    assert one.states == [S.PREPARE_COMMIT]
    (markers,) = one.markers
    assert (markers.partitions, markers.is_commit, markers.producer_epoch) == (ORDERS, True, EPOCH)
    one.confirm(markers, ("orders", 0))
    assert one.states == [S.PREPARE_COMMIT]
    one.confirm(markers, ("orders", 1))
    assert one.states == [S.PREPARE_COMMIT, S.COMPLETE_COMMIT]
    assert one.value.partitions == frozenset()


def test_no_marker_leaves_before_the_decision_is_committed() -> None:
    one = loaded(S.ONGOING)
    one.commits = False
    replies = one.asked(EndRequest(ID, PID, EPOCH, is_commit=True, bumps_epoch=False))
    assert (replies, one.markers) == ([], [])
    one.commit()
    assert replies == [EndReply(NONE)]
    assert len(one.markers) == 1


def test_a_decision_that_is_not_appended_leaves_the_transaction_open() -> None:
    one = loaded(S.ONGOING)
    one.commits = False
    replies = one.asked(EndRequest(ID, PID, EPOCH, is_commit=True, bumps_epoch=True))
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert replies == [EndReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert (one.value.state, one.value.producer_epoch) == (S.ONGOING, EPOCH)
    assert one.markers == []


def test_a_late_decision_is_carried_out_though_the_client_does_not_know_it() -> None:
    one = loaded(S.ONGOING)
    one.commits = False
    replies = one.asked(EndRequest(ID, PID, EPOCH, is_commit=True, bumps_epoch=False))
    one.late(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert replies == [EndReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    one.commit()
    assert one.value.state is S.PREPARE_COMMIT
    assert len(replies) == 1


def test_another_broker_writes_the_markers_again_after_a_failover() -> None:
    one = loaded(S.ONGOING)
    one.end(PID, EPOCH, commit=True)
    one.confirm(one.markers[0], ("orders", 0))
    other = one.failover()
    assert [marker.partitions for marker in other.markers] == [ORDERS]
    other.confirm_markers()
    assert other.value.state is S.COMPLETE_COMMIT


def test_a_marker_of_an_earlier_transaction_does_not_complete_a_later_one() -> None:
    one = loaded(S.ONGOING)
    one.end(PID, EPOCH, commit=True)
    (first,) = one.markers
    one.confirm_markers()
    one.add(PID, EPOCH)
    one.end(PID, EPOCH, commit=False)
    for partition in ORDERS:
        one.confirm(first, partition)
    assert one.value.state is S.PREPARE_ABORT


def test_the_record_of_completion_is_written_again_when_its_append_fails() -> None:
    one = loaded(S.ONGOING)
    one.end(PID, EPOCH, commit=True)
    one.commits = False
    one.confirm_markers()
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert one.value.state is S.PREPARE_COMMIT
    one.commits = True
    one.pass_ms(500)
    assert one.value.state is S.COMPLETE_COMMIT


def test_the_second_protocol_raises_the_epoch_with_the_decision() -> None:
    one = loaded(S.ONGOING, version=2)
    assert one.end(PID, EPOCH, commit=True, bumps=True) == EndReply(NONE, PID, EPOCH + 1)
    assert [(marker.producer_epoch, marker.client_version) for marker in one.markers] == [(EPOCH + 1, 2)]
    one.confirm_markers()
    assert one.value.producer_epoch == EPOCH + 1


def test_an_abort_without_a_transaction_raises_the_epoch_and_writes_no_marker() -> None:
    one = loaded(S.COMPLETE_COMMIT, version=2)
    assert one.end(PID, EPOCH, commit=False, bumps=True) == EndReply(NONE, PID, EPOCH + 1)
    assert one.markers == []
    assert one.states == [S.PREPARE_ABORT, S.COMPLETE_ABORT]


def test_the_second_protocol_changes_the_producer_id_when_the_epochs_are_used_up() -> None:
    one = loaded(S.ONGOING, epoch=LAST_USABLE_EPOCH, version=2)
    expected = EndReply(NONE, FIRST_PRODUCER_ID, 0)
    assert one.end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True) == expected
    (markers,) = one.markers
    assert (markers.producer_id, markers.producer_epoch) == (PID, EPOCH_MAX)
    one.confirm_markers()
    assert one.end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True) == expected, "a retry"
    assert one.failover(version=2).end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True) == expected


def test_an_id_that_is_rotated_during_a_failover_keeps_the_next_producer_id() -> None:
    one = loaded(S.ONGOING, epoch=LAST_USABLE_EPOCH, version=2)
    one.end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True)
    other = one.failover(version=2)
    other.confirm_markers()
    assert (other.value.producer_id, other.value.producer_epoch) == (FIRST_PRODUCER_ID, 0)


def test_a_delayed_end_of_one_transaction_cannot_end_the_next_one_in_the_second_protocol() -> None:
    one = loaded(S.ONGOING, version=2)
    one.end(PID, EPOCH, commit=True, bumps=True)
    one.confirm_markers()
    one.add(PID, EPOCH + 1)
    assert one.end(PID, EPOCH, commit=False, bumps=True).error is FENCED
    assert one.value.state is S.ONGOING
