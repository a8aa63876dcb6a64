"""Clock and Random: time and chance, as the world hands them out.

Two clocks are never mixed: `monotonic` orders events on one node and drives timers; `wall_ms` stamps records and may
step. Cores take the time as an argument, in integer milliseconds of the monotonic clock.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class Event(Protocol):
    """What is waited for: a trio.Event."""

    def is_set(self) -> bool: ...

    async def wait(self) -> None: ...


class Clock(Protocol):
    """Time as one node sees it. In the simulator it may drift and its wall clock may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds of the same clock."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may step either way."""
        ...

    async def sleep_ms(self, duration_ms: float) -> None:
        """Suspend for at least this long on this node's clock. A checkpoint, also for 0."""
        ...

    async def wait_at_most(self, event: Event, duration_ms: float) -> bool:
        """Suspend until `event` is set, or for so long on this node's clock. True if it is set. Always a checkpoint."""
        ...


class Random(Protocol):
    """Chance. `stream(name)` gives an independent source, so that removing one user does not reshuffle the others."""

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound)."""
        ...

    def uuid(self) -> UUID:
        """As draw_uuid."""
        ...

    def stream(self, name: str) -> Random:
        """The source of this name; the same name gives a source that starts the same way in a seeded world."""
        ...
