"""The rules of a share partition, one by one (KIP-932)."""

from __future__ import annotations

import pytest

from kraft.broker.share_partition.log_ranges import LogRange
from kraft.broker.share_partition.share_partition import SharePartition
from kraft.broker.share_partition.states import (
    AcknowledgementBatch,
    AcquiredBatch,
    ShareLimits,
    StateBatch,
    StateWrite,
)
from kraft.wire.error_codes import ErrorCode

LOCK_MS = 30_000
DEFAULT_LIMITS = ShareLimits()
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def partition(
    start_offset: int = 0, batches: tuple[StateBatch, ...] = (), limits: ShareLimits = DEFAULT_LIMITS
) -> SharePartition:
    return SharePartition(state_epoch=3, leader_epoch=7, start_offset=start_offset, batches=batches, limits=limits)


def records(first: int, end: int) -> LogRange:
    return LogRange(first, end, is_deliverable=True)


def acquire(share: SharePartition, *ranges: LogRange, member: str = "m1", now_ms: int = 0) -> tuple[AcquiredBatch, ...]:
    return share.acquire(member, ranges, 1_000, now_ms)


def acknowledge(
    share: SharePartition, first: int, last: int, *types: int, member: str = "m1", now_ms: int = 0
) -> StateWrite:
    error, write = share.acknowledge(member, [AcknowledgementBatch(first, last, types)], now_ms)
    assert error is ErrorCode.NONE
    assert write is not None
    return write


def refusal(share: SharePartition, first: int, last: int, *types: int, member: str = "m1") -> ErrorCode:
    error, write = share.acknowledge(member, [AcknowledgementBatch(first, last, types)], 0)
    assert write is None
    return error


def test_an_acquired_record_is_not_given_to_another_member() -> None:
    share = partition()
    assert acquire(share, records(0, 10)) == (AcquiredBatch(0, 9, 1),)
    assert acquire(share, records(0, 10), member="m2") == ()
    assert share.fetch_offset == 10


def test_an_acknowledgement_moves_the_start_offset_once_it_is_persisted() -> None:
    share = partition()
    acquire(share, records(0, 10))
    write = acknowledge(share, 0, 4, ACCEPT)
    assert share.start_offset == 0
    share.write_stored(write.number)
    assert share.start_offset == 5


def test_a_write_names_the_epochs_and_the_start_offset_after_it() -> None:
    share = partition()
    acquire(share, records(0, 10))
    write = acknowledge(share, 0, 4, ACCEPT)
    assert write == StateWrite(1, 3, 7, 5, 0, ())


def test_a_write_counts_the_complete_records_after_its_start_offset() -> None:
    share = partition()
    acquire(share, records(0, 10))
    write = acknowledge(share, 4, 7, ACCEPT, REJECT, RELEASE, ACCEPT)
    assert write.start_offset == 0
    assert write.delivery_complete_count == 3
    assert write.batches == (
        StateBatch(4, 4, 2, 1),
        StateBatch(5, 5, 4, 1),
        StateBatch(6, 6, 0, 1),
        StateBatch(7, 7, 2, 1),
    )


def test_a_write_does_not_pass_records_of_an_earlier_write_that_is_not_persisted() -> None:
    share = partition()
    acquire(share, records(0, 10))
    acknowledge(share, 0, 4, ACCEPT)
    assert acknowledge(share, 5, 9, ACCEPT).start_offset == 0


def test_a_write_is_sent_with_the_start_offset_after_the_earlier_writes_that_are_persisted() -> None:
    share = partition()
    acquire(share, records(0, 10))
    first, second = acknowledge(share, 0, 4, ACCEPT), acknowledge(share, 7, 9, ACCEPT)
    share.write_stored(first.number)
    assert share.sent_write(second) == StateWrite(2, 3, 7, 5, 3, (StateBatch(7, 9, 2, 1),))


def test_a_write_is_sent_with_the_start_offset_before_the_earlier_writes_that_have_failed() -> None:
    share = partition()
    acquire(share, records(0, 10))
    first, second = acknowledge(share, 0, 4, ACCEPT), acknowledge(share, 5, 9, ACCEPT)
    share.write_failed(first.number)
    assert share.sent_write(second) == StateWrite(2, 3, 7, 0, 5, (StateBatch(5, 9, 2, 1),))


def test_a_failed_write_leaves_the_records_with_their_member() -> None:
    share = partition()
    acquire(share, records(0, 10))
    share.write_failed(acknowledge(share, 0, 9, ACCEPT).number)
    assert acquire(share, records(0, 10), member="m2") == ()
    share.write_stored(acknowledge(share, 0, 9, ACCEPT).number)
    assert share.start_offset == 10


def test_a_lock_does_not_expire_while_an_acknowledgement_is_being_persisted() -> None:
    share = partition()
    acquire(share, records(0, 10))
    write = acknowledge(share, 0, 9, ACCEPT)
    assert share.next_expiry_ms is None
    assert share.expire_locks(LOCK_MS) is None
    share.write_failed(write.number)
    expired = share.expire_locks(LOCK_MS)
    assert expired is not None
    assert expired.batches == (StateBatch(0, 9, 0, 1),)


def test_an_expired_lock_makes_the_records_available_at_once() -> None:
    share = partition()
    acquire(share, records(0, 10))
    assert share.next_expiry_ms == LOCK_MS
    assert share.expire_locks(LOCK_MS - 1) is None
    assert share.expire_locks(LOCK_MS) is not None
    assert acquire(share, records(0, 10), member="m2", now_ms=LOCK_MS) == (AcquiredBatch(0, 9, 2),)


def test_a_record_is_archived_when_its_last_delivery_expires() -> None:
    share = partition(limits=ShareLimits(delivery_count_max=2))
    acquire(share, records(0, 10))
    share.expire_locks(LOCK_MS)
    acquire(share, records(0, 10), now_ms=LOCK_MS)
    write = share.expire_locks(2 * LOCK_MS)
    assert write is not None
    assert write.start_offset == share.start_offset == share.fetch_offset == 10


def test_a_record_is_archived_when_its_last_delivery_is_released() -> None:
    share = partition(limits=ShareLimits(delivery_count_max=2))
    acquire(share, records(0, 2))
    share.write_stored(acknowledge(share, 0, 0, RELEASE).number)
    acquire(share, records(0, 1))
    share.write_stored(acknowledge(share, 0, 0, RELEASE).number)
    assert share.start_offset == 1


def test_a_renewed_lock_expires_later_and_persists_nothing() -> None:
    share = partition()
    acquire(share, records(0, 10))
    batch = AcknowledgementBatch(0, 9, (RENEW,))
    assert share.acknowledge("m1", [batch], 20_000) == (ErrorCode.NONE, None)
    assert share.expire_locks(LOCK_MS) is None
    assert share.next_expiry_ms == 20_000 + LOCK_MS


def test_a_record_of_another_member_cannot_be_acknowledged() -> None:
    share = partition()
    acquire(share, records(0, 10))
    assert refusal(share, 0, 9, ACCEPT, member="m2") is ErrorCode.INVALID_RECORD_STATE


def test_a_record_cannot_be_acknowledged_twice() -> None:
    share = partition()
    acquire(share, records(0, 10))
    write = acknowledge(share, 5, 9, ACCEPT)
    assert refusal(share, 5, 5, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    share.write_stored(write.number)
    assert refusal(share, 5, 5, ACCEPT) is ErrorCode.INVALID_RECORD_STATE


def test_a_record_that_was_never_acquired_cannot_be_acknowledged() -> None:
    share = partition()
    acquire(share, records(0, 10))
    assert refusal(share, 10, 10, ACCEPT) is ErrorCode.INVALID_REQUEST


def test_a_refused_acknowledgement_changes_no_record() -> None:
    share = partition()
    acquire(share, records(0, 5))
    acquire(share, records(5, 10), member="m2")
    before = share.runs
    batches = [AcknowledgementBatch(0, 4, (ACCEPT,)), AcknowledgementBatch(5, 9, (ACCEPT,))]
    assert share.acknowledge("m1", batches, 0) == (ErrorCode.INVALID_RECORD_STATE, None)
    assert share.runs == before


def test_malformed_acknowledgements_are_refused() -> None:
    share = partition()
    acquire(share, records(0, 10))
    assert refusal(share, 4, 3, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert refusal(share, 0, 2, ACCEPT, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert refusal(share, 0, 2) is ErrorCode.INVALID_REQUEST
    assert refusal(share, 0, 2, 5) is ErrorCode.INVALID_REQUEST
    overlapping = [AcknowledgementBatch(0, 4, (ACCEPT,)), AcknowledgementBatch(4, 9, (ACCEPT,))]
    assert share.acknowledge("m1", overlapping, 0) == (ErrorCode.INVALID_REQUEST, None)


def test_an_acknowledgement_of_records_below_the_start_offset_succeeds() -> None:
    share = partition()
    acquire(share, records(0, 10))
    share.move_start(5)
    write = acknowledge(share, 0, 9, ACCEPT)
    share.write_stored(write.number)
    assert share.start_offset == 10
    assert share.acknowledge("m1", [AcknowledgementBatch(0, 4, (ACCEPT,))], 0) == (ErrorCode.NONE, None)


def test_a_closed_session_gives_its_records_back_and_their_deliveries_count() -> None:
    share = partition()
    acquire(share, records(0, 5))
    acquire(share, records(5, 10), member="m2")
    write = share.release_member("m1")
    assert write is not None
    assert write.batches == (StateBatch(0, 4, 0, 1),)
    share.write_stored(write.number)
    assert acquire(share, records(0, 10), member="m2") == (AcquiredBatch(0, 4, 2),)
    assert share.release_member("m1") is None


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_record_whose_members_all_crash_is_archived_after_as_many_deliveries_as_the_limit(limit: int) -> None:
    share = partition(limits=ShareLimits(delivery_count_max=limit))
    counts = []
    while acquired := acquire(share, records(0, 1)):
        counts += [batch.delivery_count for batch in acquired]
        write = share.release_member("m1")
        assert write is not None
        share.write_stored(write.number)
    assert counts == list(range(1, limit + 1))
    assert share.start_offset == share.end_offset == 1


def test_a_closed_session_archives_only_its_records_at_the_limit() -> None:
    share = partition(batches=(StateBatch(3, 5, 0, 1),), limits=ShareLimits(delivery_count_max=2))
    assert acquire(share, records(0, 10)) == (AcquiredBatch(0, 2, 1), AcquiredBatch(3, 5, 2), AcquiredBatch(6, 9, 1))
    write = share.release_member("m1")
    assert write is not None
    assert write.batches == (StateBatch(0, 2, 0, 1), StateBatch(3, 5, 4, 2), StateBatch(6, 9, 0, 1))
    assert (write.start_offset, write.delivery_complete_count) == (0, 3)
    share.write_stored(write.number)
    assert acquire(share, records(0, 10), member="m2") == (AcquiredBatch(0, 2, 2), AcquiredBatch(6, 9, 2))


def test_a_closed_session_does_not_change_records_that_are_being_acknowledged() -> None:
    share = partition(limits=ShareLimits(delivery_count_max=1))
    acquire(share, records(0, 10))
    acknowledged = acknowledge(share, 0, 5, REJECT, ACCEPT, ACCEPT, RENEW, RENEW, ACCEPT)
    closed = share.release_member("m1")
    assert closed is not None
    assert closed.batches == (StateBatch(3, 4, 4, 1), StateBatch(6, 9, 4, 1))
    share.write_stored(acknowledged.number)
    assert share.start_offset == 3
    share.write_stored(closed.number)
    assert share.start_offset == share.end_offset == 10


def test_records_of_an_acknowledgement_that_failed_are_given_back_by_a_later_close() -> None:
    share = partition()
    acquire(share, records(0, 2))
    write = acknowledge(share, 0, 0, ACCEPT)
    closed = share.release_member("m1")
    assert closed is not None
    share.write_failed(write.number)
    share.write_stored(closed.number)
    assert acquire(share, records(0, 2), member="m2") == (AcquiredBatch(1, 1, 2),)
    again = share.release_member("m1")
    assert again is not None
    assert again.batches == (StateBatch(0, 0, 0, 1),)


def test_a_renewal_before_a_session_closes_does_not_count_as_another_delivery() -> None:
    share = partition()
    acquire(share, records(0, 4))
    assert share.acknowledge("m1", [AcknowledgementBatch(0, 3, (RENEW,))], 1_000) == (ErrorCode.NONE, None)
    write = share.release_member("m1")
    assert write is not None
    assert write.batches == (StateBatch(0, 3, 0, 1),)
    share.write_stored(write.number)
    assert acquire(share, records(0, 4), member="m2", now_ms=1_000) == (AcquiredBatch(0, 3, 2),)


def test_a_closed_session_whose_write_fails_keeps_its_records_until_their_locks_expire() -> None:
    share = partition(limits=ShareLimits(delivery_count_max=2))
    acquire(share, records(0, 4))
    write = share.release_member("m1")
    assert write is not None
    share.write_failed(write.number)
    assert acquire(share, records(0, 4), member="m2") == ()
    assert share.expire_locks(LOCK_MS) is not None
    assert acquire(share, records(0, 4), member="m2", now_ms=LOCK_MS) == (AcquiredBatch(0, 3, 2),)


def test_a_group_takes_no_new_records_when_too_many_are_in_flight() -> None:
    share = partition(limits=ShareLimits(record_locks_max=10))
    acquire(share, records(0, 5))
    assert share.can_acquire
    acquire(share, records(5, 20))
    assert acquire(share, records(20, 25)) == ()
    assert share.can_acquire is False


def test_a_full_group_gets_released_records_again() -> None:
    share = partition(limits=ShareLimits(record_locks_max=10))
    acquire(share, records(0, 10))
    share.write_stored(acknowledge(share, 3, 3, RELEASE).number)
    assert share.can_acquire
    assert acquire(share, records(0, 10), records(10, 20)) == (AcquiredBatch(3, 3, 2),)


def test_a_member_gets_the_whole_log_batch_with_which_it_reaches_its_limit() -> None:
    share = partition()
    assert share.acquire("m1", [records(0, 4), records(4, 8), records(8, 12)], 5, 0) == (AcquiredBatch(0, 7, 1),)


def test_a_strict_limit_cuts_a_log_batch() -> None:
    share = partition()
    ranges = [records(0, 4), records(4, 8)]
    assert share.acquire("m1", ranges, 5, 0, is_strict=True) == (AcquiredBatch(0, 4, 1),)
    assert share.fetch_offset == 5


def test_acquired_records_are_cut_at_log_batches_once_they_are_as_many_as_the_member_wants() -> None:
    share = partition()
    ranges = [records(0, 4), records(4, 8), records(8, 12), records(12, 16)]
    acquired = share.acquire("m1", ranges, 100, 0, batch_records=6)
    assert acquired == (AcquiredBatch(0, 7, 1), AcquiredBatch(8, 15, 1))


def test_offsets_without_records_are_archived_and_never_delivered() -> None:
    share = partition()
    gap = LogRange(4, 6, is_deliverable=False)
    assert acquire(share, records(0, 4), gap, records(6, 8)) == (AcquiredBatch(0, 3, 1), AcquiredBatch(6, 7, 1))
    assert refusal(share, 4, 4, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    share.write_stored(acknowledge(share, 0, 3, ACCEPT).number)
    assert share.start_offset == 6


def test_a_log_of_markers_alone_moves_the_start_offset() -> None:
    share = partition()
    assert acquire(share, LogRange(0, 3, is_deliverable=False)) == ()
    assert share.start_offset == share.end_offset == 3


def test_records_below_the_log_start_offset_are_dropped() -> None:
    share = partition()
    acquire(share, records(0, 10))
    share.move_start(20)
    assert share.start_offset == share.end_offset == share.fetch_offset == 20
    assert share.next_expiry_ms is None
    share.move_start(5)
    assert share.start_offset == 20


def test_a_write_over_records_that_left_the_log_settles_without_effect() -> None:
    share = partition()
    acquire(share, records(0, 10))
    write = acknowledge(share, 0, 9, ACCEPT)
    share.move_start(20)
    share.write_failed(write.number)
    assert share.start_offset == share.end_offset == 20


def test_a_new_leader_continues_from_the_persisted_batches() -> None:
    share = partition(10, (StateBatch(10, 12, 2, 1), StateBatch(15, 16, 4, 5), StateBatch(17, 18, 0, 2)))
    assert (share.start_offset, share.end_offset, share.fetch_offset) == (13, 19, 13)
    acquired = acquire(share, records(10, 20))
    assert acquired == (AcquiredBatch(13, 14, 1), AcquiredBatch(17, 18, 3), AcquiredBatch(19, 19, 1))
