"""Records of a ShareFetch response: acquired ranges, delivery counts, gaps, and damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.share.acquired import AcquiredRange, AcquiredRecords
from kraft.client.core.share.records import ShareRecord
from kraft.seam import WireError
from tests.client.core.share.log_bytes import log_of

PLACE = ("orders", 0)


def decode(data: bytes, *ranges: tuple[int, int, int]) -> tuple[list[ShareRecord], list[int]]:
    """Decode everything. Return the records, and the offsets of the gaps."""
    acquired = AcquiredRecords(PLACE, data, [AcquiredRange(*one) for one in ranges], deadline_ms=1_000)
    records: list[ShareRecord] = []
    gaps: list[int] = []
    while (batch := acquired.next_batch()) is not None:
        records += batch.records
        gaps += batch.gaps
    assert acquired.drop() == []
    return records, gaps


def test_a_whole_batch_is_returned_with_its_delivery_count() -> None:
    records, gaps = decode(log_of([range(3, 6)]), (3, 5, 2))
    assert [(one.offset, one.value, one.delivery_count) for one in records] == [
        (3, b"3", 2),
        (4, b"4", 2),
        (5, b"5", 2),
    ]
    assert gaps == []
    assert (records[0].topic, records[0].partition, records[0].key, records[0].leader_epoch) == ("orders", 0, None, 0)


def test_records_that_are_not_acquired_are_left_out() -> None:
    records, gaps = decode(log_of([range(10), range(10, 20)]), (2, 3, 1), (8, 11, 2), (15, 15, 3))
    assert [(one.offset, one.delivery_count) for one in records] == [
        (2, 1),
        (3, 1),
        (8, 2),
        (9, 2),
        (10, 2),
        (11, 2),
        (15, 3),
    ]
    assert gaps == []


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    records, gaps = decode(log_of([[0, 2], [7, 8]]), (0, 9, 1))
    assert [one.offset for one in records] == [0, 2, 7, 8]
    assert gaps == [1, 3, 4, 5, 6, 9]


def test_bytes_without_any_acquired_record_are_all_gaps() -> None:
    assert decode(b"", (4, 6, 1)) == ([], [4, 5, 6])
    assert decode(log_of([[0]]), (4, 5, 1)) == ([], [4, 5])


def test_nothing_acquired_returns_nothing() -> None:
    assert decode(log_of([[0, 1]])) == ([], [])


def test_a_damaged_batch_is_an_error_and_its_offsets_can_be_dropped() -> None:
    good, bad = log_of([range(3)]), bytearray(log_of([range(3, 6)]))
    bad[-1] ^= 0xFF
    acquired = AcquiredRecords(PLACE, good + bytes(bad), [AcquiredRange(1, 5, 1)], deadline_ms=0)
    first = acquired.next_batch()
    assert first is not None
    assert [one.offset for one in first.records] == [1, 2]
    for _ in range(2):
        with pytest.raises(WireError, match="CRC"):
            acquired.next_batch()
    assert acquired.drop() == [3, 4, 5]
    assert acquired.next_batch() is None


@given(
    st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=1, max_size=4),
    st.sets(st.integers(0, 60)),
    st.booleans(),
)
def test_each_acquired_offset_is_a_record_or_a_gap(
    batches: list[set[int]], acquired: set[int], is_counted_apart: bool
) -> None:
    """A naive twin: the acquired offsets that have a record, and those that have none."""
    base = 0
    offsets: list[list[int]] = []
    for one in batches:
        offsets.append([base + delta for delta in sorted(one)])
        base = offsets[-1][-1] + 1
    present = {offset for one in offsets for offset in one}
    ranges: list[tuple[int, int, int]] = []
    for offset in sorted(acquired):
        if ranges and ranges[-1][1] == offset - 1 and not is_counted_apart:
            ranges[-1] = (ranges[-1][0], offset, ranges[-1][2])
        else:
            ranges.append((offset, offset, 1 + offset % 3))
    counts = {offset: count for first, last, count in ranges for offset in range(first, last + 1)}
    records, gaps = decode(log_of(offsets), *ranges)
    assert [one.offset for one in records] == sorted(acquired & present)
    assert gaps == sorted(acquired - present)
    assert all(one.delivery_count == counts[one.offset] for one in records)
