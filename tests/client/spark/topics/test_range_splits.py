"""Tests of splitting ranges of offsets into tasks: the pieces cover each range exactly, none is too large, and there
are about as many as requested.
"""

from __future__ import annotations

import pickle
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kraft.client.spark.topics.ranges import OffsetRange, split_ranges

RANGES = st.lists(
    st.builds(lambda start, size: (start, start + size), st.integers(0, 50), st.integers(0, 1000)), max_size=6
).map(lambda spans: [OffsetRange("t", index, start, end, start_epoch=3) for index, (start, end) in enumerate(spans)])
FEW = st.none() | st.integers(1, 40)


@given(RANGES, FEW, FEW)
def test_range_splits_cover_each_range_exactly_and_in_order(
    ranges: list[OffsetRange], partitions_min: int | None, records_max: int | None
) -> None:
    pieces = split_ranges(ranges, partitions_min=partitions_min, records_max=records_max)
    for whole in ranges:
        parts = [piece for piece in pieces if piece.partition == whole.partition]
        if whole.size:
            assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
        assert all(left.end == right.start for left, right in pairwise(parts))
    assert all(piece.size > 0 for piece in pieces)
    assert [(piece.partition, piece.start) for piece in pieces] == sorted(
        (piece.partition, piece.start) for piece in pieces
    )


@given(RANGES, st.integers(1, 400), FEW)
def test_range_splits_respect_the_maximum_of_offsets(
    ranges: list[OffsetRange], records_max: int, partitions_min: int | None
) -> None:
    pieces = split_ranges(ranges, partitions_min=partitions_min, records_max=records_max)
    assert all(piece.size <= records_max for piece in pieces)


@given(RANGES, st.integers(1, 40))
def test_range_splits_are_about_as_many_as_requested(ranges: list[OffsetRange], partitions_min: int) -> None:
    pieces = split_ranges(ranges, partitions_min=partitions_min)
    filled = [one for one in ranges if one.size]
    least = min(partitions_min, sum(one.size for one in filled))
    assert len(pieces) >= min(least, max(len(filled), least - len(filled)))
    assert len(pieces) <= max(partitions_min, 1) + len(filled)


def test_range_splits_without_limits_make_one_task_per_range() -> None:
    ranges = [OffsetRange("b", 0, 0, 9), OffsetRange("a", 1, 5, 6), OffsetRange("a", 0, 3, 3)]
    assert split_ranges(ranges) == [ranges[1], ranges[0]]


def test_range_splits_divide_large_ranges_in_proportion_and_keep_small_ones_whole() -> None:
    ranges = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 600), OffsetRange("t", 2, 0, 300)]
    pieces = split_ranges(ranges, partitions_min=10)
    assert [sum(piece.partition == index for piece in pieces) for index in range(3)] == [1, 6, 3]
    assert {piece.size for piece in pieces if piece.partition} == {100}


def test_range_splits_keep_the_start_epoch_only_in_the_first_piece() -> None:
    pieces = split_ranges([OffsetRange("t", 0, 0, 30, start_epoch=7)], partitions_min=3)
    assert [piece.start_epoch for piece in pieces] == [7, -1, -1]


def test_offset_range_can_be_pickled_and_printed() -> None:
    one = OffsetRange("t", 2, 10, 25)
    assert pickle.loads(pickle.dumps(one)) == one
    assert (str(one), one.size) == ("t-2 [10, 25)", 15)
