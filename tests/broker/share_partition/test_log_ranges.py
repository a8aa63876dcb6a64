"""Which offsets of fetched batches a share group may deliver."""

from __future__ import annotations

from kraft.broker.share_partition.log_ranges import FetchedBatch, LogRange, log_ranges


def data(first: int, end: int, producer_id: int = 1) -> FetchedBatch:
    return FetchedBatch(first, end, producer_id, is_transactional=producer_id >= 0)


def marker(offset: int, *, producer_id: int = 1, is_abort: bool = True) -> FetchedBatch:
    return FetchedBatch(offset, offset + 1, producer_id, is_transactional=True, is_control=True, is_abort=is_abort)


def delivered(*batches: FetchedBatch, read_offset: int = 0, aborted: list[tuple[int, int]] | None = None) -> list[int]:
    ranges = log_ranges(batches, read_offset, aborted)
    return [offset for one in ranges if one.is_deliverable for offset in range(one.first, one.end)]


def test_ranges_cover_the_offsets_that_compaction_removed() -> None:
    ranges = log_ranges([data(5, 7), data(9, 10)], 3)
    assert ranges == (LogRange(3, 5, False), LogRange(5, 7, True), LogRange(7, 9, False), LogRange(9, 10, True))


def test_a_batch_that_begins_before_the_read_offset_is_cut() -> None:
    assert delivered(data(0, 5), read_offset=3) == [3, 4]


def test_a_batch_that_ends_before_the_read_offset_is_left_out() -> None:
    assert log_ranges([data(0, 5)], 5) == ()


def test_markers_are_not_delivered() -> None:
    assert delivered(data(0, 2), marker(2, is_abort=False), data(3, 4)) == [0, 1, 3]


def test_records_of_an_aborted_transaction_are_not_delivered() -> None:
    batches = [data(0, 2), data(2, 4, producer_id=2), data(4, 5), marker(5), data(6, 7)]
    assert delivered(*batches, aborted=[(1, 0)]) == [2, 3, 6]


def test_a_producer_that_aborted_one_transaction_has_the_records_of_its_next_delivered() -> None:
    batches = [data(0, 1), marker(1), data(2, 3), marker(3, is_abort=False), data(4, 5), marker(5)]
    assert delivered(*batches, aborted=[(1, 0), (1, 4)]) == [2]


def test_a_read_uncommitted_group_gets_records_of_aborted_transactions() -> None:
    assert delivered(data(0, 2), marker(2)) == [0, 1]


def test_records_without_a_transaction_are_delivered_whatever_their_producer_aborted() -> None:
    plain = FetchedBatch(0, 1, producer_id=1)
    assert delivered(plain, data(1, 2), marker(2), aborted=[(1, 0)]) == [0]
