"""Tests of stream offsets as JSON, and of the changes of partitions since an offset."""

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
def test_stream_offset_survives_a_round_trip_through_the_checkpoint(offset: StreamOffset) -> None:
    assert parse_offset(json.loads(json.dumps(offset_json(offset)))) == offset


@given(offsets(), st.randoms())
def test_equal_stream_offsets_have_equal_json_text(offset: StreamOffset, random: st.DataObject) -> None:
    items = list(offset.ends.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    other = StreamOffset(ends=dict(items), ids=offset.ids, epochs=offset.epochs, commit=offset.commit)
    assert json.dumps(offset_json(other)) == json.dumps(offset_json(offset))


def test_stream_offset_json_extends_the_connectors_form_with_at_sign_keys() -> None:
    offset = StreamOffset(ends={("orders", 1): 3, ("orders", 0): 17}, ids={"orders": ONE}, epochs={("orders", 0): 4})
    assert offset_json(offset) == {
        "orders": {"0": 17, "1": 3},
        "@epochs": {"orders": {"0": 4}},
        "@ids": {"orders": "00000000-0000-0000-0000-000000000001"},
    }


def test_stream_offset_parser_ignores_unknown_at_sign_keys_and_reads_connector_offsets() -> None:
    assert parse_offset({"a": {"0": 1}, "@later": [1, 2]}) == StreamOffset(ends={("a", 0): 1})


@pytest.mark.parametrize(
    "value", [{"a": 5}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": "1"}}, {"a": {"0": True}}, {"@ids": {"a": "x"}}]
)
def test_stream_offset_of_another_source_is_an_error_that_shows_the_offset(value: dict[str, object]) -> None:
    with pytest.raises(OffsetError, match="checkpoint of another query"):
        parse_offset(value)


def test_stream_offset_changes_classify_partitions_as_kept_new_lost_or_recreated() -> None:
    start = StreamOffset(ends={("a", 0): 1, ("a", 1): 2, ("b", 0): 3, ("c", 0): 4}, ids={"a": ONE, "b": ONE, "c": ONE})
    changes = find_changes(start, [("a", 0), ("a", 2), ("b", 0), ("d", 0)], {"a": ONE, "b": TWO, "d": TWO})
    assert changes.kept == (("a", 0),)
    assert changes.new == (("a", 2), ("b", 0), ("d", 0))
    assert changes.lost == (("a", 1), ("c", 0))
    assert changes.recreated == (("b", 0),)


def test_stream_offset_compares_topics_without_ids_by_name() -> None:
    start = StreamOffset(ends={("a", 0): 1})
    assert find_changes(start, [("a", 0)], {"a": ONE}).kept == (("a", 0),)
    start = StreamOffset(ends={("a", 0): 1}, ids={"a": ONE})
    assert find_changes(start, [("a", 0)], {"a": None}).kept == (("a", 0),)


@given(offsets(), offsets())
def test_stream_batch_reads_a_partition_only_if_both_offsets_have_it_and_its_end_is_after_its_start(
    start: StreamOffset, end: StreamOffset
) -> None:
    for tp, (first, last) in read_ranges(start, end).items():
        assert (start.ends[tp], end.ends[tp]) == (first, last)
        assert first < last


def test_stream_batch_reads_nothing_of_a_partition_or_recreated_topic_that_first_appears_in_its_end() -> None:
    start = StreamOffset(ends={("a", 0): 1, ("b", 0): 9}, ids={"a": ONE, "b": ONE})
    end = StreamOffset(ends={("a", 0): 5, ("a", 1): 7, ("b", 0): 12}, ids={"a": ONE, "b": TWO})
    assert read_ranges(start, end) == {("a", 0): (1, 5)}
    after = StreamOffset(ends={("a", 0): 5, ("a", 1): 9, ("b", 0): 14}, ids={"a": ONE, "b": TWO})
    assert read_ranges(end, after) == {("a", 1): (7, 9), ("b", 0): (12, 14)}
