"""Tests of how many of the available offsets a micro-batch reads."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kraft.client.spark.topics.stream_limits import OffsetsMinimum, RecordBytes, limit_ends, strictest_limit

Ends = dict[tuple[str, int], int]
spans = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5)),
    st.tuples(st.integers(0, 50), st.integers(0, 1000)),
    max_size=12,
)


@given(spans, st.integers(1, 500))
def test_stream_limit_is_shared_in_proportion_to_lag_and_every_lagging_partition_advances(
    given_spans: dict[tuple[str, int], tuple[int, int]], offsets_max: int
) -> None:
    starts = {tp: start for tp, (start, _) in given_spans.items()}
    latest = {tp: start + lag for tp, (start, lag) in given_spans.items()}
    lagging = [tp for tp in latest if latest[tp] > starts[tp]]
    found = limit_ends(starts, latest, offsets_max)
    assert found.keys() == latest.keys()
    taken = {tp: found[tp] - starts[tp] for tp in found}
    assert all(taken[tp] >= 1 for tp in lagging)
    assert all(found[tp] <= latest[tp] for tp in found)
    total = sum(latest[tp] - starts[tp] for tp in lagging)
    assert sum(taken.values()) == min(total, max(offsets_max, len(lagging)))


@given(spans, st.integers(12, 500))
def test_stream_limit_gives_a_partition_with_more_lag_no_smaller_share(
    given_spans: dict[tuple[str, int], tuple[int, int]], offsets_max: int
) -> None:
    starts = {tp: start for tp, (start, _) in given_spans.items()}
    latest = {tp: start + lag for tp, (start, lag) in given_spans.items()}
    found = limit_ends(starts, latest, offsets_max)
    by_lag = sorted(found, key=lambda tp: latest[tp] - starts[tp])
    for one, other in itertools.pairwise(by_lag):
        if latest[other] - starts[other] > latest[one] - starts[one]:
            assert found[other] - starts[other] >= found[one] - starts[one] - 1


def test_stream_without_a_limit_takes_all_offsets_and_an_end_below_the_start_is_kept() -> None:
    assert limit_ends({("a", 0): 5}, {("a", 0): 99}, None) == {("a", 0): 99}
    assert limit_ends({("a", 0): 5, ("b", 0): 0}, {("a", 0): 3, ("b", 0): 9}, 2) == {("a", 0): 3, ("b", 0): 2}


def test_stream_uses_the_strictest_of_several_limits() -> None:
    assert strictest_limit(None, None) is None
    assert strictest_limit(5, None, 3) == 3


def test_stream_estimate_of_record_size_follows_the_samples() -> None:
    unknown = RecordBytes()
    assert unknown.offsets_within(10 * 1024) == 10
    assert unknown.seen(0, 0) == unknown
    known = unknown.seen(1000, 10)
    assert known.offsets_within(1000) == 10
    assert known.seen(2000, 10).mean == 150
    assert known.offsets_within(1) == 1


def test_stream_batch_waits_for_min_offsets_or_the_maximum_delay() -> None:
    hold, waits = OffsetsMinimum(10, 1000).next(0, 50)
    assert not waits
    hold, waits = hold.next(3, 100)
    assert waits
    hold, waits = hold.next(9, 1099)
    assert waits
    late, waits = hold.next(9, 1100)
    assert not waits
    assert late.since_ms is None
    _, waits = hold.next(10, 1099)
    assert not waits
    assert not OffsetsMinimum(None, 1000).next(3, 0)[1]
