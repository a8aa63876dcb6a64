"""Timers: named deadlines, which are moved often and rarely reached.

Moving a deadline to a later time does not change the heap. A heap entry is checked when its time comes, and is pushed
again if its deadline is later by then. Equal deadlines fire in the order in which they were set.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

TimerT = TypeVar("TimerT", bound=Hashable)


class Timers(Generic[TimerT]):
    """All timers of one shard, by name. Times are monotonic, in ms."""

    __slots__ = ("_count", "_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[TimerT, int] = {}
        self._queued: dict[TimerT, int] = {}
        """Timer → earliest time of its entries in the heap."""
        self._heap: list[tuple[int, int, TimerT]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, timer: TimerT, deadline_ms: int) -> None:
        """Set the timer to this time, instead of any time that was set before."""
        self._deadlines[timer] = deadline_ms
        queued = self._queued.get(timer)
        if queued is None or deadline_ms < queued:
            self._push(timer, deadline_ms)

    def is_set(self, timer: TimerT) -> bool:
        """Return whether the timer is set."""
        return timer in self._deadlines

    def cancel(self, timer: TimerT) -> None:
        """Cancel a timer. No effect if it is not set."""
        self._deadlines.pop(timer, None)

    @property
    def next_ms(self) -> int | None:
        """Return the time at which to call `pop_due` next. No timer may be due at that time, because deadlines may have
        moved."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> TimerT | None:
        """Remove and return one timer that is due; None if there is none."""
        while self._heap and self._heap[0][0] <= now_ms:
            shown_ms, _, timer = heappop(self._heap)
            if self._queued.get(timer) == shown_ms:
                del self._queued[timer]
            deadline_ms = self._deadlines.get(timer)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                del self._deadlines[timer]
                return timer
            if timer not in self._queued:
                self._push(timer, deadline_ms)
        return None

    def _push(self, timer: TimerT, deadline_ms: int) -> None:
        self._queued[timer] = deadline_ms
        self._count += 1
        heappush(self._heap, (deadline_ms, self._count, timer))
