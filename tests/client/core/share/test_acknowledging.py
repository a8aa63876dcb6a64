"""Acknowledgements as batches, and the results of commits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.records import KafkaError
from kraft.client.core.share.acknowledging import Commit, PendingAcknowledgements, TypedOffsets, typed_offsets
from kraft.wire.error_codes import ErrorCode

PLACE = ("orders", 0)


def test_offsets_of_one_type_without_holes_are_one_batch_with_one_type() -> None:
    assert typed_offsets(dict.fromkeys(range(5, 900), 1)) == [TypedOffsets(5, 899, (1,))]


def test_a_batch_of_several_types_has_one_for_each_offset() -> None:
    assert typed_offsets({7: 3, 6: 1, 5: 0}) == [TypedOffsets(5, 7, (0, 1, 3))]


def test_each_hole_begins_a_new_batch() -> None:
    assert typed_offsets({1: 1, 2: 1, 4: 2, 8: 3}) == [
        TypedOffsets(1, 2, (1,)),
        TypedOffsets(4, 4, (2,)),
        TypedOffsets(8, 8, (3,)),
    ]
    assert typed_offsets({}) == []


@given(st.dictionaries(st.integers(0, 60), st.integers(0, 4)))
def test_batches_hold_every_offset_once_and_ascend(types: dict[int, int]) -> None:
    batches = typed_offsets(types)
    found: dict[int, int] = {}
    previous = -2
    for first, last, kinds in batches:
        assert previous + 1 < first <= last
        assert len(kinds) in (1, last - first + 1)
        spread = kinds if len(kinds) > 1 else kinds * (last - first + 1)
        found |= dict(zip(range(first, last + 1), spread, strict=True))
        previous = last
    assert found == types


def test_a_commit_keeps_the_first_error_of_a_partition() -> None:
    commit = Commit()
    commit.pending = 3
    error = KafkaError(ErrorCode.INVALID_RECORD_STATE, "expired")
    for result in (None, error, None):
        commit.settle(PLACE, result)
    assert commit.results == {PLACE: error}
    assert commit.pending == 0


def test_a_commit_that_waits_for_merged_acknowledgements_gets_one_result() -> None:
    both, later_only = Commit(), Commit()
    first, later = PendingAcknowledgements(0), PendingAcknowledgements(5)
    first.types, later.types = {1: 1}, {2: 3}
    first.join(both)
    later.join(both)
    later.join(later_only)
    first.add_later(later)
    assert (first.types, first.since_ms) == ({1: 1, 2: 3}, 0)
    assert (both.pending, later_only.pending) == (1, 1)
    assert first.commits == [both, later_only]
