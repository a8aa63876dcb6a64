"""The offsets that a page reads. Paging in either direction shows every record once."""

from __future__ import annotations

import random

import pytest

from kraft.client.core.records import ConsumerRecord
from kraft.deploy.console.messages.query import Cursor, PageStart
from kraft.deploy.console.messages.window import SCANNED_RECORDS_MAX, RecordPage, choose, page_of

FIRST: Cursor = {0: 5, 1: 0}
LAST: Cursor = {0: 25, 1: 40}


def log(seed: int) -> list[ConsumerRecord]:
    """Records at every offset from FIRST to LAST, with times that increase within a partition."""
    drawn = random.Random(seed)
    records = []
    for partition, first in FIRST.items():
        time_ms = 0
        for offset in range(first, LAST[partition]):
            time_ms += drawn.randrange(4)
            records.append(ConsumerRecord("t", partition, offset, time_ms, None, b"%d" % (offset % 3), (), 0))
    return records


def read(
    records: list[ConsumerRecord], where: PageStart, cursor: Cursor, count: int, wanted: bytes | None
) -> RecordPage:
    """Read a page in the same way as a consumer."""
    window = choose(where, FIRST, LAST, cursor, count, is_filtered=wanted is not None)
    found: list[ConsumerRecord] = []
    positions = dict(window.starts)
    for record in records:
        if not window.starts[record.partition] <= record.offset < window.ends[record.partition]:
            continue
        if not window.is_backward and len(found) == count:
            break
        positions[record.partition] = record.offset + 1
        if wanted is None or record.value == wanted:
            found.append(record)
    return page_of(window, FIRST, LAST, found, positions, count, len(found))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wanted", [None, b"1"])
@pytest.mark.parametrize("count", [1, 7, 50])
def test_paging_backward_from_the_end_shows_every_record_once(seed: int, wanted: bytes | None, count: int) -> None:
    records = log(seed)
    page = read(records, PageStart.END, {}, count, wanted)
    met = list(page.records)
    while page.older is not None:
        page = read(records, PageStart.BEFORE, page.older, count, wanted)
        met += page.records
    assert sorted(met) == sorted(one for one in records if wanted in (None, one.value))


@pytest.mark.parametrize("wanted", [None, b"1"])
def test_paging_forward_from_the_start_shows_every_record_once(wanted: bytes | None) -> None:
    records = log(1)
    page = read(records, PageStart.BEGIN, FIRST, 7, wanted)
    met = list(page.records)
    assert page.older is None
    while page.newer is not None:
        page = read(records, PageStart.AFTER, page.newer, 7, wanted)
        met += page.records
    assert sorted(met) == sorted(one for one in records if wanted in (None, one.value))


def test_the_newest_page_has_no_link_to_a_newer_one() -> None:
    page = read(log(1), PageStart.END, {}, 5, None)
    assert page.newer is None
    assert page.is_complete


def test_a_messages_page_that_was_not_read_to_its_end_is_marked_incomplete() -> None:
    window = choose(PageStart.END, FIRST, LAST, {}, 5, is_filtered=False)
    assert not page_of(window, FIRST, LAST, [], window.starts, 5, 0).is_complete


def test_a_page_at_a_deleted_offset_starts_at_the_log_start_offset() -> None:
    window = choose(PageStart.OFFSET, FIRST, LAST, {0: 0, 1: 99}, 5, is_filtered=False)
    assert window.starts == {0: 5, 1: 40}
    assert window.unread == {0: 5}


def test_a_page_of_filtered_messages_reads_a_limited_number_of_offsets() -> None:
    window = choose(PageStart.END, {0: 0}, {0: 10 * SCANNED_RECORDS_MAX}, {}, 50, is_filtered=True)
    assert window.starts == {0: 9 * SCANNED_RECORDS_MAX}
