"""Pure: which offsets of each partition a page reads, and where the neighbouring pages start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraft.client.core.records import ConsumerRecord
from kraft.deploy.console.messages.query import Cursor, PageStart

SCANNED_RECORDS_MAX = 10_000
"""Maximum number of records that a page reads to find records that match its filter."""
PARTITIONS_MAX = 100
"""Maximum number of partitions that a page over all partitions reads."""


@dataclass(frozen=True, slots=True)
class Window:
    """The offsets that a page reads in each partition: from `starts` to `ends` (exclusive). If `is_backward` is true,
    the page shows the newest matches, so the whole window is read. Otherwise reading stops when the page is full."""

    starts: Cursor
    ends: Cursor
    is_backward: bool

    @property
    def unread(self) -> Cursor:
        """Partitions in which the window has offsets."""
        return {one: start for one, start in self.starts.items() if start < self.ends[one]}


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Records of a page, oldest first. `older` and `newer` are the cursors of the neighbouring pages, and None at the
    ends of the log. `is_complete` is true if everything requested was read within the time limit."""

    records: tuple[ConsumerRecord, ...]
    older: Cursor | None
    newer: Cursor | None
    scanned: int
    is_complete: bool = True


def backward(first: Cursor, ends: Cursor, count: int, *, is_filtered: bool) -> Window:
    """Return the window that ends at the offsets `ends` and has enough offsets for a page of `count` records."""
    each = count if not is_filtered else max(SCANNED_RECORDS_MAX // max(len(ends), 1), count)
    starts = {one: max(first[one], end - each) for one, end in ends.items()}
    return Window(starts, ends, is_backward=True)


def forward(first: Cursor, ends: Cursor, wanted: Mapping[int, int]) -> Window:
    """Return the window that starts, in each partition, at the requested offset, or at the log start offset if that is
    higher."""
    starts = {one: min(max(wanted.get(one, first[one]), first[one]), end) for one, end in ends.items()}
    return Window(starts, ends, is_backward=False)


def choose(where: PageStart, first: Cursor, last: Cursor, wanted: Cursor, count: int, *, is_filtered: bool) -> Window:
    """Return the window of a page. `wanted` has the offsets given by the address or found for a time. `first` and
    `last` are the bounds of the log."""
    if where is PageStart.END:
        return backward(first, last, count, is_filtered=is_filtered)
    if where is PageStart.BEFORE:
        ends = {one: max(min(wanted.get(one, end), end), first[one]) for one, end in last.items()}
        return backward(first, ends, count, is_filtered=is_filtered)
    return forward(first, last, wanted)


def page_of(
    window: Window,
    first: Cursor,
    last: Cursor,
    matching: Sequence[ConsumerRecord],
    positions: Cursor,
    count: int,
    scanned: int,
) -> RecordPage:
    """Return the page with the records that were read. `positions` has the offset at which reading stopped in each
    partition."""
    ordered = sorted(matching, key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    is_complete = not window.is_backward or all(positions[one] >= end for one, end in window.ends.items())
    if not window.is_backward:
        older = window.starts if any(start > first[one] for one, start in window.starts.items()) else None
        newer = positions if any(positions[one] < end for one, end in last.items()) else None
        return RecordPage(tuple(ordered), older, newer, scanned, is_complete)
    kept = ordered[-count:]
    begin = _begin(window, ordered[:-count])
    older = begin if any(offset > first[one] for one, offset in begin.items()) else None
    newer = window.ends if any(end < last[one] for one, end in window.ends.items()) else None
    return RecordPage(tuple(kept), older, newer, scanned, is_complete)


def _begin(window: Window, dropped: Sequence[ConsumerRecord]) -> Cursor:
    """Return the end offsets of the page that precedes a page read backward. If records of a partition were dropped
    because the page is full, this is the offset after the last dropped record; otherwise it is the start of the window.
    """
    begin = dict(window.starts)
    for record in dropped:
        begin[record.partition] = max(begin[record.partition], record.offset + 1)
    return begin
