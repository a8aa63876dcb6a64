"""Virtual time as a heap of events, and the one source of chance that decides among them. Times are ms."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from uuid import UUID


class Chance(random.Random):
    """kraft.seam.Random over one seed: a heap has one order of draws, so it needs no named streams."""

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def uuid(self) -> UUID:
        return UUID(int=self.getrandbits(128), version=4)

    def stream(self, name: str) -> Chance:
        return Chance(f"{name}/{self.random()}")


class EventHeap:
    """Events happen in the order of their times, those of one moment in the order in which they were set."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed)
        self.now = 0
        self.events = 0
        """How many have happened."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._set = 0

    def at(self, delay_ms: int, action: Callable[..., None], *arguments: object) -> None:
        """`action(*arguments)` happens in `delay_ms`."""
        self._set += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._set, action, arguments))

    def between(self, bounds: tuple[int, int]) -> int:
        """A draw from low to high, both included."""
        low, high = bounds
        return low + int(self.chance.random() * (high - low + 1))

    def run(self, duration_ms: int) -> None:
        """Let so much time pass."""
        end, heap, pop = self.now + duration_ms, self._heap, heapq.heappop
        while heap and heap[0][0] <= end:
            self.now, _, action, arguments = pop(heap)
            action(*arguments)
            self.events += 1
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Until `condition()` holds, at most `limit_ms`; whether it does."""
        end, heap = self.now + limit_ms, self._heap
        while not condition():
            if not heap or heap[0][0] > end:
                self.now = end
                return False
            self.now, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
            self.events += 1
        return True
