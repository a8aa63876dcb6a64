"""EndTxn in each state of a transaction, before version 5 and from version 5 on; two-phase commit after the Prepare
record.
"""

from __future__ import annotations

import pytest

from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import EndReply, EndRequest, InitReply, VerifyReply, VerifyRequest
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
    """Return a coordinator that has loaded a transaction in this state, whose client used this transaction.version. The
    markers of a prepared transaction are not confirmed yet."""
    partitions = ORDERS if state is S.ONGOING or state.is_prepared else frozenset()
    start_ms = -1 if state is S.EMPTY else 999_000
    value = TransactionValue(PID, epoch, 60_000, state, partitions, 999_000, start_ms, client_version=version)
    return Coordinating({ID: value}, version=version)


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
def test_end_txn_before_version_5_gets_the_result_for_the_transactions_state(
    state: TransactionState, commit: bool, expected: ErrorCode
) -> None:
    one = loaded(state)
    assert one.end(PID, EPOCH, commit=commit) == EndReply(expected)


@pytest.mark.parametrize("bumps", [False, True])
def test_end_txn_with_an_unknown_transactional_id_or_producer_id_gets_invalid_producer_id_mapping(bumps: bool) -> None:
    assert Coordinating().end(PID, EPOCH, commit=True, bumps=bumps).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    one = loaded(S.ONGOING)
    assert one.end(PID + 1, EPOCH, commit=True, bumps=bumps).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_end_txn_before_version_5_with_an_epoch_other_than_the_stored_one_is_fenced(epoch: int) -> None:
    assert loaded(S.ONGOING).end(PID, epoch, commit=True).error is FENCED


@pytest.mark.parametrize(
    ("state", "commit", "retry", "expected"),
    [
        (S.ONGOING, True, False, NONE),
        (S.ONGOING, True, True, FENCED),
        (S.ONGOING, False, False, NONE),
        (S.ONGOING, False, True, FENCED),
        (S.PREPARE_COMMIT, True, False, CONCURRENT),
        (S.PREPARE_COMMIT, True, True, CONCURRENT),
        (S.PREPARE_COMMIT, False, False, CONCURRENT),
        (S.PREPARE_COMMIT, False, True, INVALID),
        (S.PREPARE_ABORT, True, False, CONCURRENT),
        (S.PREPARE_ABORT, True, True, INVALID),
        (S.PREPARE_ABORT, False, False, CONCURRENT),
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
def test_end_txn_of_version_5_gets_the_result_for_the_transactions_state_and_epoch(
    state: TransactionState, commit: bool, retry: bool, expected: ErrorCode
) -> None:
    one = loaded(state, version=2)
    reply = one.end(PID, EPOCH - retry, commit=commit, bumps=True)
    assert reply.error is expected
    if expected is NONE:
        assert (reply.producer_id, reply.producer_epoch) == (PID, EPOCH if retry else EPOCH + 1)


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("state", [S.ONGOING, S.COMPLETE_ABORT])
def test_end_txn_with_the_epoch_that_only_fences_is_fenced(state: TransactionState, bumps: bool) -> None:
    one = loaded(state, epoch=EPOCH_MAX, version=2)
    assert one.end(PID, EPOCH_MAX, commit=False, bumps=bumps) == EndReply(FENCED)
    assert one.log == []


def test_end_txn_of_version_5_with_an_epoch_two_below_the_stored_one_is_fenced() -> None:
    assert loaded(S.COMPLETE_COMMIT, version=2).end(PID, EPOCH - 2, commit=True, bumps=True).error is FENCED


def test_a_committed_transaction_is_complete_only_when_all_markers_are_confirmed() -> None:
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


def test_markers_are_sent_only_after_the_prepare_record_is_committed() -> None:
    one = loaded(S.ONGOING)
    one.commits = False
    replies = one.asked(EndRequest(ID, PID, EPOCH, is_commit=True, bumps_epoch=False))
    assert (replies, one.markers) == ([], [])
    one.commit()
    assert replies == [EndReply(NONE)]
    assert len(one.markers) == 1


def test_a_transaction_stays_open_if_its_prepare_record_cannot_be_appended() -> None:
    one = loaded(S.ONGOING)
    one.commits = False
    replies = one.asked(EndRequest(ID, PID, EPOCH, is_commit=True, bumps_epoch=True))
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert replies == [EndReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert (one.value.state, one.value.producer_epoch) == (S.ONGOING, EPOCH)
    assert one.markers == []


def test_a_prepare_record_committed_after_the_reply_timeout_still_takes_effect() -> None:
    one = loaded(S.ONGOING)
    one.commits = False
    replies = one.asked(EndRequest(ID, PID, EPOCH, is_commit=True, bumps_epoch=False))
    one.late(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert replies == [EndReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    one.commit()
    assert one.value.state is S.PREPARE_COMMIT
    assert len(replies) == 1


def test_a_new_coordinator_sends_all_markers_of_a_prepared_transaction_again() -> None:
    one = loaded(S.ONGOING)
    one.end(PID, EPOCH, commit=True)
    one.confirm(one.markers[0], ("orders", 0))
    other = one.failover()
    assert [marker.partitions for marker in other.markers] == [ORDERS]
    other.confirm_markers()
    assert other.value.state is S.COMPLETE_COMMIT


def test_a_marker_confirmed_for_an_earlier_transaction_does_not_count_for_a_later_one() -> None:
    one = loaded(S.ONGOING)
    one.end(PID, EPOCH, commit=True)
    (first,) = one.markers
    one.confirm_markers()
    one.add(PID, EPOCH)
    one.end(PID, EPOCH, commit=False)
    for partition in ORDERS:
        one.confirm(first, partition)
    assert one.value.state is S.PREPARE_ABORT


def test_a_complete_record_whose_append_failed_is_written_again() -> None:
    one = loaded(S.ONGOING)
    one.end(PID, EPOCH, commit=True)
    one.commits = False
    one.confirm_markers()
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert one.value.state is S.PREPARE_COMMIT
    one.commits = True
    one.pass_ms(500)
    assert one.value.state is S.COMPLETE_COMMIT


def test_end_txn_of_version_5_raises_the_epoch_in_the_reply_and_in_the_markers() -> None:
    one = loaded(S.ONGOING, version=2)
    assert one.end(PID, EPOCH, commit=True, bumps=True) == EndReply(NONE, PID, EPOCH + 1)
    assert [(marker.producer_epoch, marker.client_version) for marker in one.markers] == [(EPOCH + 1, 2)]
    one.confirm_markers()
    assert one.value.producer_epoch == EPOCH + 1


def test_an_abort_without_an_open_transaction_raises_the_epoch_and_sends_no_marker() -> None:
    one = loaded(S.COMPLETE_COMMIT, version=2)
    assert one.end(PID, EPOCH, commit=False, bumps=True) == EndReply(NONE, PID, EPOCH + 1)
    assert one.markers == []
    assert one.states == [S.PREPARE_ABORT, S.COMPLETE_ABORT]


def test_end_txn_of_version_5_returns_a_new_producer_id_when_the_epochs_are_used_up() -> None:
    one = loaded(S.ONGOING, epoch=LAST_USABLE_EPOCH, version=2)
    expected = EndReply(NONE, FIRST_PRODUCER_ID, 0)
    assert one.end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True) == expected
    (markers,) = one.markers
    assert (markers.producer_id, markers.producer_epoch) == (PID, EPOCH_MAX)
    one.confirm_markers()
    assert one.end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True) == expected, "a retry"
    assert one.failover(version=2).end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True) == expected


def test_requests_with_the_next_producer_id_are_retried_until_that_id_is_in_use() -> None:
    """The producer learns of the id from the reply to EndTxn. Before the last transaction is complete, it may abort its
    next one, or begin again after an error."""
    one = loaded(S.ONGOING, epoch=LAST_USABLE_EPOCH, version=2)
    one.end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True)
    assert one.end(FIRST_PRODUCER_ID, 0, commit=False, bumps=True) == EndReply(CONCURRENT)
    assert one.init(FIRST_PRODUCER_ID, 0) == InitReply(CONCURRENT)
    assert one.ask(VerifyRequest(ID, FIRST_PRODUCER_ID, 0, ORDERS)) == VerifyReply(CONCURRENT)
    one.confirm_markers()
    assert one.end(FIRST_PRODUCER_ID, 0, commit=False, bumps=True) == EndReply(NONE, FIRST_PRODUCER_ID, 1)


def test_a_new_coordinator_completes_a_transaction_with_the_next_producer_id_of_its_prepare_record() -> None:
    one = loaded(S.ONGOING, epoch=LAST_USABLE_EPOCH, version=2)
    one.end(PID, LAST_USABLE_EPOCH, commit=True, bumps=True)
    other = one.failover(version=2)
    other.confirm_markers()
    assert (other.value.producer_id, other.value.producer_epoch) == (FIRST_PRODUCER_ID, 0)


def test_a_delayed_end_txn_of_version_5_cannot_end_the_next_transaction() -> None:
    one = loaded(S.ONGOING, version=2)
    one.end(PID, EPOCH, commit=True, bumps=True)
    one.confirm_markers()
    one.add(PID, EPOCH + 1)
    assert one.end(PID, EPOCH, commit=False, bumps=True).error is FENCED
    assert one.value.state is S.ONGOING


def test_an_end_txn_of_version_5_is_no_retry_of_another_producers_end_txn_before_version_5() -> None:
    one = Coordinating(version=2)
    fenced, newer = one.init(), one.init()
    one.add(newer.producer_id, newer.producer_epoch)
    one.end(newer.producer_id, newer.producer_epoch, commit=False)
    one.confirm_markers()
    assert one.value.state is S.COMPLETE_ABORT
    assert one.end(fenced.producer_id, fenced.producer_epoch, commit=False, bumps=True) == EndReply(FENCED)
