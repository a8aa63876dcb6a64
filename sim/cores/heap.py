"""Virtual time as a heap of events, and one source of randomness for all of them. Times are ms."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from uuid import UUID


class Chance(random.Random):
    """kraft.seam.Random over one seed. A heap of events has one order of draws, so it needs no named streams."""

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def uuid(self) -> UUID:
        return UUID(int=self.getrandbits(128), version=4)

    def stream(self, name: str) -> Chance:
        return Chance(f"{name}/{self.random()}")


class EventHeap:
    """A heap of events that happen in the order of their times. Events at the same time happen in the order in which
    they were scheduled."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed)
        self.now = 0
        self.events = 0
        """Number of events that have happened."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._set = 0

    def at(self, delay_ms: int, action: Callable[..., None], *arguments: object) -> None:
        """Schedule `action(*arguments)` to be called after `delay_ms`."""
        self._set += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._set, action, arguments))

    def between(self, bounds: tuple[int, int]) -> int:
        """Draw a number from low to high, both included."""
        low, high = bounds
        return low + int(self.chance.random() * (high - low + 1))

    def run(self, duration_ms: int) -> None:
        """Let this much time pass."""
        end, heap, pop = self.now + duration_ms, self._heap, heapq.heappop
        while heap and heap[0][0] <= end:
            self.now, _, action, arguments = pop(heap)
            action(*arguments)
            self.events += 1
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Run events until `condition()` is true, at most for `limit_ms`; return whether it is true."""
        end, heap = self.now + limit_ms, self._heap
        while not condition():
            if not heap or heap[0][0] > end:
                self.now = end
                return False
            self.now, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
            self.events += 1
        return True
