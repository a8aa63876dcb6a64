"""Offsets of a stream as JSON, and what has changed since."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.spark.topics.stream_offsets import (
    CommitTarget,
    OffsetError,
    StreamOffset,
    find_changes,
    offset_json,
    parse_offset,
    read_ranges,
)

ONE, TWO = UUID(int=1), UUID(int=2)
partitions = st.tuples(st.sampled_from(["a", "b", "c.d_e-f"]), st.integers(0, 12))
ends = st.dictionaries(partitions, st.integers(0, (1 << 63) - 1), max_size=8)


@st.composite
def offsets(draw: st.DrawFn) -> StreamOffset:
    found = draw(ends)
    topics = sorted({topic for topic, _ in found})
    known = draw(st.lists(st.sampled_from(sorted(found)), unique=True)) if found else []
    return StreamOffset(
        ends=found,
        ids={topic: draw(st.uuids()) for topic in topics if draw(st.booleans())},
        epochs={tp: draw(st.integers(0, 9)) for tp in known},
        commit=draw(st.none() | st.just(CommitTarget(group_id="g", bootstrap="one:1"))),
    )


@given(offsets())
def test_an_offset_survives_the_way_through_the_checkpoint(offset: StreamOffset) -> None:
    assert parse_offset(json.loads(json.dumps(offset_json(offset)))) == offset


@given(offsets(), st.randoms())
def test_the_same_offset_is_the_same_text(offset: StreamOffset, random: st.DataObject) -> None:
    items = list(offset.ends.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    other = StreamOffset(ends=dict(items), ids=offset.ids, epochs=offset.epochs, commit=offset.commit)
    assert json.dumps(offset_json(other)) == json.dumps(offset_json(offset))


def test_the_form_is_that_of_the_connector_with_more_under_keys_that_no_topic_has() -> None:
    offset = StreamOffset(ends={("orders", 1): 3, ("orders", 0): 17}, ids={"orders": ONE}, epochs={("orders", 0): 4})
    assert offset_json(offset) == {
        "orders": {"0": 17, "1": 3},
        "@epochs": {"orders": {"0": 4}},
        "@ids": {"orders": "00000000-0000-0000-0000-000000000001"},
    }


def test_unknown_keys_of_ours_are_passed_over_and_offsets_of_the_connector_are_read() -> None:
    assert parse_offset({"a": {"0": 1}, "@later": [1, 2]}) == StreamOffset(ends={("a", 0): 1})


@pytest.mark.parametrize(
    "value", [{"a": 5}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": "1"}}, {"a": {"0": True}}, {"@ids": {"a": "x"}}]
)
def test_an_offset_of_another_source_is_an_error_that_shows_it(value: dict[str, object]) -> None:
    with pytest.raises(OffsetError, match="checkpoint of another query"):
        parse_offset(value)


def test_partitions_are_kept_new_lost_or_of_a_recreated_topic() -> None:
    start = StreamOffset(ends={("a", 0): 1, ("a", 1): 2, ("b", 0): 3, ("c", 0): 4}, ids={"a": ONE, "b": ONE, "c": ONE})
    changes = find_changes(start, [("a", 0), ("a", 2), ("b", 0), ("d", 0)], {"a": ONE, "b": TWO, "d": TWO})
    assert changes.kept == (("a", 0),)
    assert changes.new == (("a", 2), ("b", 0), ("d", 0))
    assert changes.lost == (("a", 1), ("c", 0))
    assert changes.recreated == (("b", 0),)


def test_topics_without_ids_are_compared_by_name() -> None:
    start = StreamOffset(ends={("a", 0): 1})
    assert find_changes(start, [("a", 0)], {"a": ONE}).kept == (("a", 0),)
    start = StreamOffset(ends={("a", 0): 1}, ids={"a": ONE})
    assert find_changes(start, [("a", 0)], {"a": None}).kept == (("a", 0),)


@given(offsets(), offsets())
def test_a_batch_reads_kept_partitions_only_and_forward_only(start: StreamOffset, end: StreamOffset) -> None:
    for tp, (first, last) in read_ranges(start, end).items():
        assert (start.ends[tp], end.ends[tp]) == (first, last)
        assert first < last


def test_a_batch_that_adds_a_partition_or_a_recreated_topic_reads_nothing_of_it() -> None:
    start = StreamOffset(ends={("a", 0): 1, ("b", 0): 9}, ids={"a": ONE, "b": ONE})
    end = StreamOffset(ends={("a", 0): 5, ("a", 1): 7, ("b", 0): 12}, ids={"a": ONE, "b": TWO})
    assert read_ranges(start, end) == {("a", 0): (1, 5)}
    after = StreamOffset(ends={("a", 0): 5, ("a", 1): 9, ("b", 0): 14}, ids={"a": ONE, "b": TWO})
    assert read_ranges(end, after) == {("a", 1): (7, 9), ("b", 0): (12, 14)}
