"""OffsetRuns: one value for each offset of a range, kept as runs of equal values.

Invariants: the runs cover the range without holes, no run is empty, and neighbouring runs have different values. A run
is split only where a part of it gets another value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

ValueT = TypeVar("ValueT")


class OffsetRun(NamedTuple, Generic[ValueT]):
    """The value of the offsets in [first, end)."""

    first: int
    end: int
    value: ValueT


class OffsetRuns(Generic[ValueT]):
    """The values of the offsets in [start, end)."""

    __slots__ = ("_firsts", "_values", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._firsts: list[int] = []
        self._values: list[ValueT] = []

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[OffsetRun[ValueT]]:
        """Yield all runs in order. The runs must not change meanwhile."""
        return self.within(self.start, self.end)

    def within(self, first: int, end: int) -> Iterator[OffsetRun[ValueT]]:
        """Yield the runs in [first, end) in order, cut to this range. The runs must not change meanwhile."""
        first, end = max(first, self.start), min(end, self.end)
        index = max(bisect_right(self._firsts, first) - 1, 0)
        while first < end:
            run_end = self._firsts[index + 1] if index + 1 < len(self._firsts) else self.end
            yield OffsetRun(first, min(run_end, end), self._values[index])
            first, index = run_end, index + 1

    def extend(self, end: int, value: ValueT) -> None:
        """Append the offsets from the current end to `end` with this value. No effect if there are none."""
        if end <= self.end:
            return
        if not self._values or self._values[-1] != value:
            self._firsts.append(self.end)
            self._values.append(value)
        self.end = end

    def change(self, first: int, end: int, changed: Callable[[ValueT], ValueT]) -> None:
        """Replace the value of each offset in [first, end) by `changed(value)`."""
        first, end = max(first, self.start), min(end, self.end)
        if first >= end:
            return
        low, high = self._split(first), self._split(end)
        for index in range(low, high):
            self._values[index] = changed(self._values[index])
        self._join(max(low - 1, 0), min(high + 1, len(self._values)))

    def move_start(self, start: int) -> None:
        """Remove all offsets below `start`. A range that ends before `start` becomes empty."""
        if start <= self.start:
            return
        if start >= self.end:
            self._firsts, self._values = [], []
            self.start = self.end = start
            return
        removed = self._split(start)
        del self._firsts[:removed], self._values[:removed]
        self.start = start

    def _split(self, offset: int) -> int:
        """Return the index of the run that begins at `offset`, which is made if it does not exist."""
        index = bisect_left(self._firsts, offset)
        if offset < self.end and (index == len(self._firsts) or self._firsts[index] != offset):
            self._firsts.insert(index, offset)
            self._values.insert(index, self._values[index - 1])
        return index

    def _join(self, low: int, high: int) -> None:
        """Join neighbouring runs of equal value among the runs with index [low, high)."""
        kept = [index for index in range(low, high) if index == low or self._values[index] != self._values[index - 1]]
        if len(kept) < high - low:
            firsts, values = [self._firsts[index] for index in kept], [self._values[index] for index in kept]
            self._firsts[low:high], self._values[low:high] = firsts, values
