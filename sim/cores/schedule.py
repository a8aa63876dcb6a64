"""What every schedule of faults for cores has in common: one fault after the other, half of them at the leader, for so
long; then everything is healed, and there must be progress."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from kraft.sim.cores.heap import Chance

FIRST_FAULT_MS = 300


class Stuck(AssertionError):
    """What must happen has not happened."""


class Stage(Protocol):
    """What a schedule needs of its world."""

    chance: Chance

    def at(self, delay_ms: int, action: Callable[..., None], *arguments: object) -> None: ...

    def run(self, duration_ms: int) -> None: ...

    def start(self, *node_ids: int) -> None: ...

    def partition(self, *groups: tuple[int, ...]) -> None: ...

    def heal(self) -> None: ...


W = TypeVar("W", bound=Stage)


class FaultSchedule(ABC, Generic[W]):
    """One fault after the other. `faults` counts those that happened, by name."""

    FAULTS: ClassVar[Sequence[Callable[[Any, int], bool]]]
    """What is drawn from: a fault that stands here twice is twice as frequent. Each is given its victim, and tells
    whether it could happen."""
    PAUSE_MS: ClassVar[tuple[int, int]]
    """Between two faults: at least so long, and up to so much longer."""

    def __init__(self, world: W) -> None:
        self.faults: Counter[str] = Counter()
        self._world = world
        self._is_over = False

    def run(self, duration_ms: int) -> None:
        """So much time of faults, then progress. Raises `Violation` or `Stuck`."""
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
        """Who may be hit."""

    @abstractmethod
    def _leader(self) -> int | None:
        """Who leads, if that is one of those who may be hit."""

    @abstractmethod
    def _demand_progress(self) -> None:
        """Heal everything; raise `Stuck` if it does not get well."""

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
        """Nothing arrives from one half of these nodes in the other, for at most so long."""
        world = self._world
        group = tuple(one for one in node_ids if world.chance.below(2))
        world.partition(group, tuple(one for one in node_ids if one not in group))
        world.at(1 + world.chance.below(limit_ms), world.heal)
        return True
