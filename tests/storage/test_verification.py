"""Verification of a transaction at its partition: when a batch may open one (KIP-890)."""

from __future__ import annotations

import pytest

from kraft.storage.log import AppendOrigin, AppendRefused, Log, LogConfig
from kraft.storage.producers.verification import NOT_VERIFYING, Verification
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import read_header
from tests.stages.batches import NOW_MS, batch, follow, lead, marker, open_log, read_all
from tests.stages.machine import Machine

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)


@pytest.fixture
def log() -> Log:
    return open_log(Machine(), CONFIG)


def sent(sequence: int, epoch: int = 0, count: int = 1) -> bytearray:
    """A transactional batch of producer 7."""
    return batch(count, producer=(7, epoch, sequence), transactional=True)


def ask(log: Log, data: bytearray, *, adds: bool = False, now_ms: int = NOW_MS) -> Verification | None:
    header = read_header(data)
    asker = (header.producer_id, header.producer_epoch, header.base_sequence)
    return log.producers.begin_verification(*asker, adds=adds, now_ms=now_ms)


def end(log: Log, *, epoch: int = 0, commit: bool = True) -> None:
    lead(log, marker(7, epoch, commit=commit), origin=AppendOrigin.COORDINATOR)


def refused(
    log: Log,
    data: bytearray,
    verification: Verification | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ErrorCode:
    end_offset = log.log_end_offset
    with pytest.raises(AppendRefused) as caught:
        lead(log, data, verification=verification, origin=origin)
    assert log.log_end_offset == end_offset
    return caught.value.error_code


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_batch_that_opens_a_transaction_without_a_verification_is_refused(log: Log, origin: AppendOrigin) -> None:
    assert refused(log, sent(0), origin=origin) is ErrorCode.INVALID_TXN_STATE
    assert refused(log, sent(0), Verification(0, 0, adds=False, began_ms=0), origin) is ErrorCode.INVALID_TXN_STATE


def test_a_verified_batch_opens_a_transaction_and_later_batches_need_no_verification(log: Log) -> None:
    verification = ask(log, sent(0))
    assert verification is not None
    assert lead(log, sent(0), verification=verification).base_offset == 0
    assert ask(log, sent(1)) is None
    assert lead(log, sent(1), verification=None).base_offset == 1
    assert log.first_unstable_offset == 0


def test_two_batches_that_wait_share_one_verification_and_both_are_appended(log: Log) -> None:
    first, second = ask(log, sent(0)), ask(log, sent(1))
    assert first is second
    lead(log, sent(0), verification=first)
    assert lead(log, sent(1), verification=second).base_offset == 1


def test_batch_delayed_past_the_end_of_its_transaction_opens_no_new_transaction(log: Log) -> None:
    held = ask(log, sent(0))
    lead(log, sent(0), verification=ask(log, sent(0)))
    end(log)
    assert refused(log, sent(1), held) is ErrorCode.INVALID_TXN_STATE
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset


def test_batch_delayed_past_the_marker_of_a_transaction_without_data_opens_no_transaction(log: Log) -> None:
    held = ask(log, sent(0))
    end(log, commit=False)
    assert refused(log, sent(0), held) is ErrorCode.INVALID_TXN_STATE


def test_batch_delayed_into_the_next_transaction_of_its_epoch_needs_the_verification_of_that_transaction(
    log: Log,
) -> None:
    held = ask(log, sent(0))
    end(log, commit=False)
    following = ask(log, sent(0))
    assert following is not held
    assert refused(log, sent(0), held) is ErrorCode.INVALID_TXN_STATE
    assert lead(log, sent(0), verification=following).base_offset == 1


def test_the_marker_with_the_bumped_epoch_keeps_the_verification_of_the_next_transaction(log: Log) -> None:
    lead(log, sent(0), verification=ask(log, sent(0), adds=True))
    following = ask(log, sent(0, epoch=1), adds=True)
    end(log, epoch=1)
    assert lead(log, sent(0, epoch=1), verification=following).base_offset == 2


def test_batch_delayed_past_the_opening_and_a_late_marker_of_its_epoch_opens_no_transaction(log: Log) -> None:
    held = ask(log, sent(0, epoch=1), adds=True)
    lead(log, sent(0, epoch=1), verification=held)
    end(log, epoch=1)
    assert refused(log, sent(1, epoch=1), held) is ErrorCode.INVALID_TXN_STATE


def test_the_marker_that_ends_the_next_transaction_drops_its_verification(log: Log) -> None:
    following = ask(log, sent(0, epoch=1), adds=True)
    end(log, epoch=2)
    assert refused(log, sent(0, epoch=1), following) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not log.producers.verifications


def test_marker_of_the_same_epoch_drops_a_verification_that_does_not_add_the_partition(log: Log) -> None:
    held = ask(log, sent(0, epoch=1), adds=False)
    end(log, epoch=1)
    assert refused(log, sent(0, epoch=1), held) is ErrorCode.INVALID_TXN_STATE


def test_a_batch_of_an_older_epoch_is_refused_for_its_epoch_before_its_verification(log: Log) -> None:
    lead(log, sent(0, epoch=3), verification=ask(log, sent(0, epoch=3)))
    assert refused(log, sent(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(AppendRefused) as caught:
        ask(log, sent(1, epoch=2))
    assert caught.value.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_zombie_that_requests_a_verification_during_that_of_a_newer_epoch_is_fenced(log: Log) -> None:
    zombie = ask(log, sent(0, epoch=2))
    newer = ask(log, sent(0, epoch=3))
    with pytest.raises(AppendRefused) as caught:
        ask(log, sent(1, epoch=2))
    assert caught.value.error_code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, sent(0, epoch=2), zombie) is ErrorCode.INVALID_TXN_STATE
    assert lead(log, sent(0, epoch=3), verification=newer).base_offset == 0


def test_a_verification_outlives_a_truncation_and_a_move_of_the_log_but_not_its_replacement(log: Log) -> None:
    lead(log, batch(1))
    lead(log, batch(1))
    held = ask(log, sent(0))
    assert log.truncate_to(1, NOW_MS)
    moved = open_log(Machine(), CONFIG)
    lead(moved, batch(1))
    moved.copy_state_of(log)
    assert lead(moved, sent(0), verification=held).base_offset == 1
    log.truncate_fully(5, NOW_MS)
    assert refused(log, sent(0), held) is ErrorCode.INVALID_TXN_STATE


def test_a_new_producer_of_transaction_version_2_begins_at_sequence_zero(log: Log) -> None:
    verification = ask(log, sent(3), adds=True)
    assert refused(log, sent(3), verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert lead(log, sent(0), verification=verification).base_offset == 0


def test_a_new_epoch_of_transaction_version_2_begins_at_sequence_zero(log: Log) -> None:
    lead(log, sent(0), verification=ask(log, sent(0), adds=True))
    end(log, epoch=1)
    verification = ask(log, sent(1, epoch=1), adds=True)
    assert refused(log, sent(1, epoch=1), verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_older_client_without_producer_state_may_begin_at_any_sequence_up_to_that_of_a_waiting_batch(log: Log) -> None:
    verification = ask(log, sent(41))
    ask(log, sent(40))
    assert refused(log, sent(41), verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert lead(log, sent(40), verification=verification).base_offset == 0


def test_a_repeated_batch_of_an_ended_transaction_is_a_duplicate_without_a_verification(log: Log) -> None:
    lead(log, sent(0), verification=ask(log, sent(0)))
    end(log)
    assert lead(log, sent(0), verification=None).duplicate


def test_verifications_expire_after_producer_id_expiration_ms(log: Log) -> None:
    held = ask(log, sent(0), now_ms=1_000)
    log.producers.expire(5_000, 4_000)
    assert ask(log, sent(0)) is held
    log.producers.expire(5_001, 4_000)
    assert refused(log, sent(0), held) is ErrorCode.INVALID_TXN_STATE


def test_a_replicated_marker_drops_the_verification_of_an_earlier_leadership(log: Log) -> None:
    held = ask(log, sent(0))
    other = open_log(Machine(), CONFIG)
    lead(other, sent(0))
    end(other)
    follow(log, read_all(other))
    assert refused(log, sent(1), held) is ErrorCode.INVALID_TXN_STATE


def test_callers_that_do_not_verify_may_open_a_transaction(log: Log) -> None:
    assert lead(log, sent(5), verification=NOT_VERIFYING).base_offset == 0
