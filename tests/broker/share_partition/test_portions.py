"""Records with few deliveries left are delivered in smaller portions. One that crashes its members does not take others
with it (KAFKA-17541)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.broker.share_partition.log_ranges import FetchedBatch, LogRange, log_ranges
from kraft.broker.share_partition.portions import portion_of
from kraft.broker.share_partition.share_partition import SharePartition
from kraft.broker.share_partition.states import (
    AcknowledgementBatch,
    AcknowledgeType,
    RecordState,
    ShareLimits,
    StateBatch,
)
from tests.broker.share_partition.plain_model import PlainRecord, PlainSharePartition

SIZE = 16


@pytest.mark.parametrize(
    ("limit", "portions"),
    [
        (1, [None]),
        (2, [None, None]),
        (3, [None, None, 1]),
        (5, [None, None, None, 8, 1]),
        (10, [None, None, None, None, None, 8, 4, 2, 1, 1]),
    ],
)
def test_from_half_of_the_limit_on_each_delivery_halves_the_portion(limit: int, portions: list[int | None]) -> None:
    assert [portion_of([(SIZE, count)], SIZE, limit) for count in range(limit)] == portions


def test_records_before_one_with_its_last_delivery_are_delivered_without_it() -> None:
    assert portion_of([(3, 0), (1, 4), (12, 0)], SIZE, 5) == 3


def test_records_before_one_with_few_deliveries_left_count_towards_its_portion() -> None:
    assert portion_of([(3, 0), (1, 3), (12, 0)], SIZE, 5) == 8
    assert portion_of([(10, 0), (1, 3), (5, 0)], SIZE, 5) == 10


def test_the_first_record_with_few_deliveries_left_decides_the_portion() -> None:
    assert portion_of([(2, 5), (2, 7), (12, 0)], SIZE, 10) == 8


def test_a_portion_is_at_most_what_is_available() -> None:
    assert portion_of([(2, 3)], SIZE, 5) == 2


def test_a_record_beyond_a_lowered_limit_is_delivered_alone() -> None:
    assert portion_of([(SIZE, 4)], SIZE, 3) == 1


def given_back(share: SharePartition, member: str) -> None:
    write = share.release_member(member)
    assert write is not None
    share.write_stored(write.number)


def offsets_of(share: SharePartition, member: str, *ranges: LogRange, records_max: int = 1_000) -> list[int]:
    batches = share.acquire(member, ranges, records_max, 0)
    return [offset for one in batches for offset in range(one.first_offset, one.last_offset + 1)]


@pytest.mark.parametrize("limit", [3, 4, 5, 10])
@pytest.mark.parametrize("crashing", [0, 7, SIZE - 1])
def test_only_the_record_that_crashes_its_members_is_archived(limit: int, crashing: int) -> None:
    share = SharePartition(state_epoch=1, leader_epoch=1, start_offset=0, limits=ShareLimits(delivery_count_max=limit))
    delivered: Counter[int] = Counter()
    processed: list[int] = []
    while offsets := offsets_of(share, "m", LogRange(0, SIZE, is_deliverable=True)):
        delivered.update(offsets)
        if crashing in offsets:
            given_back(share, "m")
            continue
        processed += offsets
        accepted = [AcknowledgementBatch(offset, offset, (AcknowledgeType.ACCEPT,)) for offset in offsets]
        write = share.acknowledge("m", accepted, 0).write
        assert write is not None
        share.write_stored(write.number)
    assert sorted(processed) == [offset for offset in range(SIZE) if offset != crashing]
    assert delivered[crashing] == limit
    assert share.start_offset == share.end_offset == SIZE


def partition(*batches: StateBatch) -> SharePartition:
    return SharePartition(state_epoch=1, leader_epoch=1, start_offset=0, batches=batches, limits=ShareLimits())


def test_a_log_batch_with_few_deliveries_left_is_not_delivered_together_with_earlier_ones() -> None:
    share = partition(StateBatch(0, 7, 0, 1), StateBatch(8, 15, 0, 3))
    ranges = [LogRange(first, first + 8, is_deliverable=True) for first in (0, 8, 16)]
    assert offsets_of(share, "m", *ranges) == list(range(8))
    assert offsets_of(share, "m", *ranges) == [8, 9, 10, 11]
    assert offsets_of(share, "m", *ranges) == [12, 13, 14, 15]
    assert offsets_of(share, "m", *ranges) == list(range(16, 24))


def test_a_portion_ends_a_fetch_before_records_that_were_never_delivered() -> None:
    share = partition(StateBatch(0, 3, 0, 3))
    whole = LogRange(0, 8, is_deliverable=True)
    assert offsets_of(share, "m", whole) == [0, 1, 2, 3]
    assert offsets_of(share, "m", whole) == [4, 5, 6, 7]


def test_a_portion_is_that_of_the_whole_log_batch_when_the_log_is_read_from_the_middle_of_it() -> None:
    share = partition(StateBatch(0, 15, 0, 3))
    portions = []
    while share.fetch_offset < share.end_offset:
        portions.append(offsets_of(share, "m", *log_ranges([FetchedBatch(0, SIZE)], share.fetch_offset)))
    assert portions == [list(range(8)), list(range(8, 16))]


def test_a_strict_limit_below_the_portion_holds() -> None:
    share = partition(StateBatch(0, 15, 0, 3))
    (acquired,) = share.acquire("m", [LogRange(0, SIZE, is_deliverable=True)], 5, 0, is_strict=True)
    assert (acquired.first_offset, acquired.last_offset, acquired.delivery_count) == (0, 4, 4)


RECORDS = st.lists(
    st.tuples(st.sampled_from((RecordState.AVAILABLE, RecordState.AVAILABLE, RecordState.ARCHIVED)), st.integers(0, 9)),
    min_size=1,
    max_size=24,
)


@settings(max_examples=300, deadline=None)
@given(
    limit=st.integers(1, 10),
    known=RECORDS,
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    passed=st.integers(0, 12),
    records_max=st.integers(1, 24),
    strict=st.booleans(),
)
def test_portions_are_those_of_a_model_of_single_records(
    limit: int, known: list[tuple[RecordState, int]], sizes: list[int], passed: int, records_max: int, *, strict: bool
) -> None:
    limits = ShareLimits(delivery_count_max=limit)
    states = [(state, min(count, limit)) for state, count in [(RecordState.AVAILABLE, 0), *known]]
    batches = [StateBatch(offset, offset, state, count) for offset, (state, count) in enumerate(states)]
    share = SharePartition(state_epoch=1, leader_epoch=1, start_offset=0, batches=batches, limits=limits)
    plain = PlainSharePartition(0, limits)
    plain.records = {offset: PlainRecord(state, count) for offset, (state, count) in enumerate(states)}
    ranges: list[LogRange] = []
    for size in sizes:
        first = ranges[-1].end if ranges else 0
        ranges.append(LogRange(first, first + size, is_deliverable=True, passed=0 if ranges else passed))
    for _ in range(4):
        acquired = share.acquire("m", ranges, records_max, 0, is_strict=strict)
        found = [(offset, one.delivery_count) for one in acquired for offset in range(one[0], one[1] + 1)]
        assert found == plain.acquire("m", ranges, records_max, 0, strict=strict)
