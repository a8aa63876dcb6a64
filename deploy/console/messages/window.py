"""Pure: which offsets of each partition a page reads, and where the pages beside it begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraft.client.core.records import ConsumerRecord
from kraft.deploy.console.messages.query import Cursor, Where

SCANNED_RECORDS_MAX = 10_000
"""A page reads so many records for those that its filter wants."""
PARTITIONS_MAX = 100
"""A page over all partitions of a topic reads at most so many."""


@dataclass(frozen=True, slots=True)
class Window:
    """Read `starts` to `ends`, which are exclusive. `is_backward`: the newest of what matches is wanted, and all of
    the window is read for it; otherwise reading stops at the first full page."""

    starts: Cursor
    ends: Cursor
    is_backward: bool

    @property
    def unread(self) -> Cursor:
        """The partitions that have something to read."""
        return {one: start for one, start in self.starts.items() if start < self.ends[one]}


@dataclass(frozen=True, slots=True)
class Page:
    """Records, oldest first. `older` and `newer`: cursors of the pages beside this one, None at the log's ends.
    `is_complete`: all was read that was asked for, within the time."""

    records: tuple[ConsumerRecord, ...]
    older: Cursor | None
    newer: Cursor | None
    scanned: int
    is_complete: bool = True


def backward(first: Cursor, ends: Cursor, count: int, *, is_filtered: bool) -> Window:
    """The window before `ends` that a page of `count` records needs."""
    each = count if not is_filtered else max(SCANNED_RECORDS_MAX // max(len(ends), 1), count)
    starts = {one: max(first[one], end - each) for one, end in ends.items()}
    return Window(starts, ends, is_backward=True)


def forward(first: Cursor, ends: Cursor, wanted: Mapping[int, int]) -> Window:
    """The window from the wanted offsets on, or where those are gone from the first that are there."""
    starts = {one: min(max(wanted.get(one, first[one]), first[one]), end) for one, end in ends.items()}
    return Window(starts, ends, is_backward=False)


def choose(where: Where, first: Cursor, last: Cursor, wanted: Cursor, count: int, *, is_filtered: bool) -> Window:
    """The window of a page. `wanted`: the offsets that its address or a time names; `first`, `last`: the log's."""
    if where is Where.END:
        return backward(first, last, count, is_filtered=is_filtered)
    if where is Where.BEFORE:
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
) -> Page:
    """The page of what was read. `positions`: up to where each partition was read."""
    ordered = sorted(matching, key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    is_complete = not window.is_backward or all(positions[one] >= end for one, end in window.ends.items())
    if not window.is_backward:
        older = window.starts if any(start > first[one] for one, start in window.starts.items()) else None
        newer = positions if any(positions[one] < end for one, end in last.items()) else None
        return Page(tuple(ordered), older, newer, scanned, is_complete)
    kept = ordered[-count:]
    begin = _begin(window, ordered[:-count])
    older = begin if any(offset > first[one] for one, offset in begin.items()) else None
    newer = window.ends if any(end < last[one] for one, end in window.ends.items()) else None
    return Page(tuple(kept), older, newer, scanned, is_complete)


def _begin(window: Window, dropped: Sequence[ConsumerRecord]) -> Cursor:
    """Where a backward page ends that comes before this one: behind what was dropped, else at the window's begin."""
    begin = dict(window.starts)
    for record in dropped:
        begin[record.partition] = max(begin[record.partition], record.offset + 1)
    return begin
