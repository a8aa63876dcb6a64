"""The purgatory: operations that wait, and the one timer for their deadlines.

A parked operation is a slotted object that is completed by a direct call, once. There is no task, event or channel per
request. Deadlines are kept in coarse buckets, from which a completed operation removes itself. So completed produce
requests do not wait in memory for their 30-second timeouts. Source: Kafka's DelayedOperation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from heapq import heappop, heappush
from typing import ClassVar

import trio

from kraft.seam import Clock

BUCKET_MS = 16


class Parked:
    """An operation with a deadline. `bucket` is set by `Deadlines`; -1 while the operation is in no bucket."""

    __slots__ = ("bucket",)

    bucket: int
    delayed_operation: ClassVar[str] = "Other"
    """The operation's name in the metrics of the purgatory."""

    @abstractmethod
    def expire(self) -> None:
        """Answer with the results so far, because the deadline has passed. Called once, after removal from the
        timer."""


class Deadlines:
    """The timer of parked operations. Its task is `run`, which is the only coroutine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[int, dict[Parked, None]] = {}
        self._order: list[int] = []
        self._scope: trio.CancelScope | None = None
        self._sleeps_until = -1
        self._wake = trio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def kinds(self) -> Counter[str]:
        """Return how many operations wait, by their `delayed_operation`."""
        return Counter(one.delayed_operation for bucket in self._buckets.values() for one in bucket)

    def add(self, operation: Parked, deadline_ms: int) -> None:
        """Park `operation`: call its `expire` soon after `deadline_ms` (monotonic), unless it is removed before."""
        number = deadline_ms // BUCKET_MS + 1
        operation.bucket = number
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = {operation: None}
            heappush(self._order, number)
            if self._sleeps_until < 0 or number < self._sleeps_until:
                self._interrupt()
        else:
            bucket[operation] = None

    def remove(self, operation: Parked) -> None:
        """Remove a completed operation. No effect if it is not parked."""
        bucket = self._buckets.get(operation.bucket)
        if bucket is not None:
            bucket.pop(operation, None)

    def expire_due(self) -> None:
        """Expire every operation whose bucket has ended."""
        now = self._clock.monotonic_ms() // BUCKET_MS
        while self._order and self._order[0] <= now:
            bucket = self._buckets.pop(heappop(self._order))
            while bucket:
                operation = next(iter(bucket))
                del bucket[operation]
                operation.bucket = -1
                operation.expire()

    async def run(self) -> None:
        """Expire operations at their deadlines, until cancelled."""
        while True:
            self._drop_empty()
            if not self._order:
                self._sleeps_until = -1
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            self._sleeps_until = self._order[0]
            pause_ms = self._sleeps_until * BUCKET_MS - self._clock.monotonic_ms()
            with trio.CancelScope() as self._scope:
                await self._clock.sleep_ms(max(pause_ms, 0))
            self._scope = None
            self.expire_due()

    def _drop_empty(self) -> None:
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heappop(self._order)]

    def _interrupt(self) -> None:
        self._wake.set()
        if self._scope is not None:
            self._scope.cancel()
