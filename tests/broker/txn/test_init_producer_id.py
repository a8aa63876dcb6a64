"""InitProducerId: identities, fencing, retries after a lost reply, and producer ids whose epochs are used up."""

from __future__ import annotations

import pytest

from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import InitReply
from kraft.broker.txn.shard import TransactionSettings
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.transaction import LAST_USABLE_EPOCH
from kraft.wire.error_codes import ErrorCode
from tests.broker.txn.coordinating import FIRST_PRODUCER_ID, ID, Coordinating

PID = FIRST_PRODUCER_ID
EMPTY = TransactionState.EMPTY


def at_epoch(epoch: int, state: TransactionState = EMPTY, **fields: int) -> Coordinating:
    """A coordinator that has loaded this id with producer id 7."""
    return Coordinating({ID: TransactionValue(7, epoch, 60_000, state, update_ms=1, **fields)})


def test_a_new_transactional_id_gets_a_producer_id_and_epoch_0() -> None:
    one = Coordinating()
    assert one.init() == InitReply(ErrorCode.NONE, PID, 0)
    assert one.states == [EMPTY]


def test_the_next_producer_gets_the_next_epoch() -> None:
    one = Coordinating()
    one.init()
    assert one.init() == InitReply(ErrorCode.NONE, PID, 1)


def test_the_reply_waits_until_the_record_is_committed() -> None:
    one = Coordinating(commits=False)
    assert one.init() is None
    assert one.init() == InitReply(ErrorCode.CONCURRENT_TRANSACTIONS)


def test_a_failed_write_uses_up_no_epoch() -> None:
    one = Coordinating()
    one.init()
    one.commits = False
    assert one.init() is None
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    one.commits = True
    assert one.init() == InitReply(ErrorCode.NONE, PID, 1)


def test_a_producer_that_continues_gets_the_next_epoch_and_may_retry_it() -> None:
    one = Coordinating()
    one.init()
    assert one.init(PID, 0) == InitReply(ErrorCode.NONE, PID, 1)
    assert one.init(PID, 0) == InitReply(ErrorCode.NONE, PID, 1), "the reply was lost"
    assert one.init(PID, 1) == InitReply(ErrorCode.NONE, PID, 2)


def test_a_producer_with_an_older_epoch_is_fenced() -> None:
    one = Coordinating()
    for _ in range(4):
        one.init()
    assert one.init(PID, 1).error is ErrorCode.PRODUCER_FENCED


def test_a_retry_is_fenced_once_another_producer_has_begun() -> None:
    one = Coordinating()
    one.init()
    one.init(PID, 0)
    one.init()
    assert one.init(PID, 0).error is ErrorCode.PRODUCER_FENCED


def test_a_retry_after_a_failover_is_fenced_because_the_last_epoch_is_not_stored() -> None:
    one = Coordinating()
    one.init()
    one.init(PID, 0)
    assert one.failover().init(PID, 0).error is ErrorCode.PRODUCER_FENCED


def test_another_producer_id_is_fenced() -> None:
    one = Coordinating()
    one.init()
    assert one.init(PID + 5, 0).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", [EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT])
def test_a_producer_id_whose_epochs_are_used_up_is_replaced(state: TransactionState) -> None:
    one = at_epoch(LAST_USABLE_EPOCH, state)
    assert one.init() == InitReply(ErrorCode.NONE, PID, 0)


def test_a_producer_may_retry_the_change_of_its_producer_id_also_after_a_failover() -> None:
    one = at_epoch(LAST_USABLE_EPOCH)
    assert one.init(7, LAST_USABLE_EPOCH) == InitReply(ErrorCode.NONE, PID, 0)
    assert one.init(7, LAST_USABLE_EPOCH) == InitReply(ErrorCode.NONE, PID, 0)
    assert one.failover().init(7, LAST_USABLE_EPOCH) == InitReply(ErrorCode.NONE, PID, 0)


def test_the_old_producer_is_fenced_when_a_new_one_got_the_new_producer_id() -> None:
    one = at_epoch(LAST_USABLE_EPOCH)
    one.init()
    assert one.init(7, LAST_USABLE_EPOCH).error is ErrorCode.PRODUCER_FENCED
    assert one.failover().init(7, LAST_USABLE_EPOCH).error is ErrorCode.PRODUCER_FENCED


def test_without_a_producer_id_at_hand_the_client_retries() -> None:
    one = Coordinating()
    one.has_producer_ids = False
    assert one.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert one.log == []


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_a_producer_waits_until_the_last_transaction_is_complete(state: TransactionState) -> None:
    one = Coordinating({ID: TransactionValue(7, 3, 60_000, state, frozenset({("orders", 0)}), 1, 1)})
    assert one.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    one.confirm_markers()
    assert one.init() == InitReply(ErrorCode.NONE, 7, 4)


def test_an_open_transaction_of_the_old_producer_is_aborted_with_a_higher_epoch() -> None:
    one = Coordinating()
    one.init()
    one.add(PID, 0)
    assert one.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert one.value.state is TransactionState.PREPARE_ABORT
    assert [(marker.producer_epoch, marker.is_commit) for marker in one.markers] == [(1, False)]
    assert one.end(PID, 0, commit=True).error is ErrorCode.PRODUCER_FENCED
    one.confirm_markers()
    assert one.init() == InitReply(ErrorCode.NONE, PID, 2)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    assert Coordinating().init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 0)])
def test_half_an_identity_is_refused(producer_id: int, epoch: int) -> None:
    assert Coordinating().init(producer_id, epoch).error is ErrorCode.INVALID_REQUEST


def test_long_idle_ids_expire_in_batches_that_fit_into_the_log() -> None:
    long_ids = {
        f"{number}{'x' * 30_000}": TransactionValue(number, 0, 60_000, EMPTY, update_ms=1) for number in range(8)
    }
    coordinating = Coordinating(long_ids, settings=TransactionSettings(id_expiration_ms=1_000))
    for expected in (3, 6, 8):
        coordinating.expire()
        assert len(coordinating.log) == expected
