"""Base of the schedules of faults for cores. For a given time it injects one fault after the other, half of them at the
leader. Then everything is healed, and progress is required.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from kraft.sim.cores.heap import Chance

FIRST_FAULT_MS = 300


class NoProgressMade(AssertionError):
    """Raised when there is no progress although progress is required after the faults."""


class FaultableWorld(Protocol):
    """Methods of a simulated world that a schedule of faults calls."""

    chance: Chance

    def at(self, delay_ms: int, action: Callable[..., None], *arguments: object) -> None: ...

    def run(self, duration_ms: int) -> None: ...

    def start(self, *node_ids: int) -> None: ...

    def partition(self, *groups: tuple[int, ...]) -> None: ...

    def heal(self) -> None: ...


W = TypeVar("W", bound=FaultableWorld)


class FaultSchedule(ABC, Generic[W]):
    """Injects one fault after the other. `faults` counts those that were carried out, by name."""

    FAULTS: ClassVar[Sequence[Callable[[Any, int], bool]]]
    """Faults to draw from; a fault that is listed twice is twice as frequent. Each is a function that gets its victim
    and returns whether it was carried out."""
    PAUSE_MS: ClassVar[tuple[int, int]]
    """Pause between two faults: minimum, and maximum of the random addition."""

    def __init__(self, world: W) -> None:
        self.faults: Counter[str] = Counter()
        self._world = world
        self._is_over = False

    def run(self, duration_ms: int) -> None:
        """Inject faults for this much time, then heal and require progress. Raises `Violation` or `NoProgressMade`."""
        self._begin()
        self._world.at(FIRST_FAULT_MS, self._fault)
        self._world.run(duration_ms)
        self._is_over = True
        self._demand_progress()

    @abstractmethod
    def _begin(self) -> None:
        """Start the nodes and their clients."""

    @abstractmethod
    def _victims(self) -> list[int]:
        """Return the nodes that faults may affect."""

    @abstractmethod
    def _leader(self) -> int | None:
        """Return the leader, if faults may affect it; otherwise None."""

    @abstractmethod
    def _demand_progress(self) -> None:
        """Heal everything; raise `NoProgressMade` if there is no progress."""

    def _fault(self) -> None:
        if self._is_over:
            return
        chance, victims = self._world.chance, self._victims()
        fault = self.FAULTS[chance.below(len(self.FAULTS))]
        victim = victims[chance.below(len(victims))] if victims else 1
        leader = self._leader()
        if leader is not None and chance.below(2):
            victim = leader
        if fault(self, victim):
            self.faults[fault.__name__.removeprefix("_")] += 1
        least_ms, range_ms = self.PAUSE_MS
        self._world.at(least_ms + chance.below(range_ms), self._fault)

    def _start_within(self, limit_ms: int, node_id: int) -> None:
        self._world.at(1 + self._world.chance.below(limit_ms), self._world.start, node_id)

    def _split_for(self, limit_ms: int, node_ids: Sequence[int]) -> bool:
        """Split these nodes into two halves; nothing arrives from one in the other, for at most this long."""
        world = self._world
        group = tuple(one for one in node_ids if world.chance.below(2))
        world.partition(group, tuple(one for one in node_ids if one not in group))
        world.at(1 + world.chance.below(limit_ms), world.heal)
        return True
