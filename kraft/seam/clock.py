"""Clock and Random: a node's access to time and randomness, in production and in the simulator.

The two clocks are never mixed. `monotonic` orders events on one node and drives timers. `wall_ms` stamps records and
may jump. State machines without I/O take the time as an argument, in integer milliseconds of the monotonic clock.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class Event(Protocol):
    """An event to wait for: a trio.Event."""

    def is_set(self) -> bool: ...

    async def wait(self) -> None: ...


class Clock(Protocol):
    """Time as one node sees it. In the simulator it may drift and its wall clock may jump."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never decreases."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds of the clock that `monotonic_ms` reads."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC; may jump forwards or backwards."""
        ...

    async def sleep_ms(self, duration_ms: float) -> None:
        """Suspend for at least this long on this node's clock. Always a checkpoint, also for 0."""
        ...

    async def wait_at_most(self, event: Event, duration_ms: float) -> bool:
        """Suspend until `event` is set, or for at most this long on this node's clock. Return whether it is set. Always
        a checkpoint."""
        ...


class Random(Protocol):
    """Source of randomness. `stream(name)` gives an independent source, so that removing one user does not change the
    numbers of the others."""

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""
        ...

    def uuid(self) -> UUID:
        """Return a random id; see draw_uuid."""
        ...

    def stream(self, name: str) -> Random:
        """Return the source of this name. In a seeded simulation, it always yields the same numbers."""
        ...
