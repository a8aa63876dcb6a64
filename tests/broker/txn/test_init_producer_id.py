"""InitProducerId with a transactional id: returned identities, fencing, retries after a lost reply, and producer ids
whose epochs are used up.
"""

from __future__ import annotations

import pytest

from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import InitReply
from kraft.broker.txn.shard import TransactionSettings
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.transaction import EPOCH_MAX, LAST_USABLE_EPOCH
from kraft.wire.error_codes import ErrorCode
from tests.broker.txn.coordinating import FIRST_PRODUCER_ID, ID, Coordinating

PID = FIRST_PRODUCER_ID
EMPTY = TransactionState.EMPTY


def at_epoch(epoch: int, state: TransactionState = EMPTY, **fields: int) -> Coordinating:
    """Return a coordinator that has loaded a transactional id with producer id 7 and this epoch."""
    return Coordinating({ID: TransactionValue(7, epoch, 60_000, state, update_ms=1, **fields)})


def test_a_new_transactional_id_gets_a_producer_id_and_epoch_0() -> None:
    one = Coordinating()
    assert one.init() == InitReply(ErrorCode.NONE, PID, 0)
    assert one.states == [EMPTY]


def test_a_second_init_producer_id_gets_the_next_epoch() -> None:
    one = Coordinating()
    one.init()
    assert one.init() == InitReply(ErrorCode.NONE, PID, 1)


def test_init_producer_id_is_answered_only_when_its_record_is_committed() -> None:
    one = Coordinating(commits=False)
    assert one.init() is None
    assert one.init() == InitReply(ErrorCode.CONCURRENT_TRANSACTIONS)


def test_an_init_producer_id_whose_write_failed_uses_up_no_epoch() -> None:
    one = Coordinating()
    one.init()
    one.commits = False
    assert one.init() is None
    one.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    one.commits = True
    assert one.init() == InitReply(ErrorCode.NONE, PID, 1)


def test_init_producer_id_with_the_current_identity_gets_the_next_epoch_and_may_be_retried() -> None:
    one = Coordinating()
    one.init()
    assert one.init(PID, 0) == InitReply(ErrorCode.NONE, PID, 1)
    assert one.init(PID, 0) == InitReply(ErrorCode.NONE, PID, 1), "the reply was lost"
    assert one.init(PID, 1) == InitReply(ErrorCode.NONE, PID, 2)


def test_init_producer_id_with_an_epoch_below_the_previous_one_is_fenced() -> None:
    one = Coordinating()
    for _ in range(4):
        one.init()
    assert one.init(PID, 1).error is ErrorCode.PRODUCER_FENCED


def test_a_retried_init_producer_id_is_fenced_once_another_producer_has_initialized() -> None:
    one = Coordinating()
    one.init()
    one.init(PID, 0)
    one.init()
    assert one.init(PID, 0).error is ErrorCode.PRODUCER_FENCED


def test_a_retried_init_producer_id_with_the_previous_epoch_is_fenced_after_a_failover() -> None:
    one = Coordinating()
    one.init()
    one.init(PID, 0)
    assert one.failover().init(PID, 0).error is ErrorCode.PRODUCER_FENCED


def test_init_producer_id_with_an_unknown_producer_id_is_fenced() -> None:
    one = Coordinating()
    one.init()
    assert one.init(PID + 5, 0).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", [EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT])
def test_init_producer_id_gets_a_new_producer_id_when_the_epochs_are_used_up(state: TransactionState) -> None:
    one = at_epoch(LAST_USABLE_EPOCH, state)
    assert one.init() == InitReply(ErrorCode.NONE, PID, 0)


def test_an_init_producer_id_that_changed_the_producer_id_may_be_retried_even_after_a_failover() -> None:
    one = at_epoch(LAST_USABLE_EPOCH)
    assert one.init(7, LAST_USABLE_EPOCH) == InitReply(ErrorCode.NONE, PID, 0)
    assert one.init(7, LAST_USABLE_EPOCH) == InitReply(ErrorCode.NONE, PID, 0)
    assert one.failover().init(7, LAST_USABLE_EPOCH) == InitReply(ErrorCode.NONE, PID, 0)


def test_the_previous_producer_is_fenced_when_another_producer_got_the_new_producer_id() -> None:
    one = at_epoch(LAST_USABLE_EPOCH)
    one.init()
    assert one.init(7, LAST_USABLE_EPOCH).error is ErrorCode.PRODUCER_FENCED
    assert one.failover().init(7, LAST_USABLE_EPOCH).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(("stored", "sent"), [(LAST_USABLE_EPOCH, 3), (EPOCH_MAX, LAST_USABLE_EPOCH), (EPOCH_MAX,) * 2])
def test_init_producer_id_with_an_outdated_epoch_gets_no_new_producer_id_when_the_epochs_are_used_up(
    stored: int, sent: int
) -> None:
    one = at_epoch(stored)
    assert one.init(7, sent) == InitReply(ErrorCode.PRODUCER_FENCED)
    assert one.log == []


def test_an_init_producer_id_that_got_the_last_usable_epoch_may_be_retried() -> None:
    one = at_epoch(LAST_USABLE_EPOCH - 1)
    for _ in range(2):
        assert one.init(7, LAST_USABLE_EPOCH - 1) == InitReply(ErrorCode.NONE, 7, LAST_USABLE_EPOCH)


def test_init_producer_id_gets_load_in_progress_while_the_broker_has_no_producer_ids() -> None:
    one = Coordinating()
    one.has_producer_ids = False
    assert one.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert one.log == []


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_init_producer_id_gets_concurrent_transactions_until_the_prepared_transaction_is_complete(
    state: TransactionState,
) -> None:
    one = Coordinating({ID: TransactionValue(7, 3, 60_000, state, frozenset({("orders", 0)}), 1, 1)})
    assert one.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    one.confirm_markers()
    assert one.init() == InitReply(ErrorCode.NONE, 7, 4)


def test_init_producer_id_aborts_the_open_transaction_of_the_previous_producer_and_fences_it() -> None:
    one = Coordinating()
    one.init()
    one.add(PID, 0)
    assert one.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert one.value.state is TransactionState.PREPARE_ABORT
    assert [(marker.producer_epoch, marker.is_commit) for marker in one.markers] == [(1, False)]
    assert one.end(PID, 0, commit=True).error is ErrorCode.PRODUCER_FENCED
    one.confirm_markers()
    assert one.init() == InitReply(ErrorCode.NONE, PID, 2)


def test_at_transaction_version_2_a_producer_whose_id_another_one_has_taken_cannot_abort_and_go_on() -> None:
    """An EndTxn of the epoch before the stored one would be answered as a retry."""
    one = Coordinating(version=2)
    one.init()
    one.add(PID, 0)
    assert one.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert one.end(PID, 0, commit=False, bumps=True).error is ErrorCode.PRODUCER_FENCED
    one.confirm_markers()
    assert one.end(PID, 0, commit=False, bumps=True).error is ErrorCode.PRODUCER_FENCED
    assert one.init() == InitReply(ErrorCode.NONE, PID, 3)


@pytest.mark.parametrize("version", [0, 2])
def test_a_delayed_init_producer_id_does_not_abort_the_transaction_of_a_newer_epoch(version: int) -> None:
    one = Coordinating(version=version)
    one.init()
    one.init(PID, 0)
    one.add(PID, 1)
    assert one.init(PID, 0).error is ErrorCode.PRODUCER_FENCED
    assert one.value.state is TransactionState.ONGOING


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_init_producer_id_with_a_transaction_timeout_out_of_range_is_rejected(timeout_ms: int) -> None:
    assert Coordinating().init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 0)])
def test_init_producer_id_with_only_a_producer_id_or_only_an_epoch_is_rejected(producer_id: int, epoch: int) -> None:
    assert Coordinating().init(producer_id, epoch).error is ErrorCode.INVALID_REQUEST


def test_idle_transactional_ids_with_long_names_expire_in_several_batches() -> None:
    long_ids = {
        f"{number}{'x' * 30_000}": TransactionValue(number, 0, 60_000, EMPTY, update_ms=1) for number in range(8)
    }
    coordinating = Coordinating(long_ids, settings=TransactionSettings(id_expiration_ms=1_000))
    for expected in (3, 6, 8):
        coordinating.expire()
        assert len(coordinating.log) == expected
