"""The clocks of a node: virtual time as its host sees it, with drift, offset and steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kraft.seam import Event
from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.options import MILLISECOND_NS, SECOND_NS, WorldOptions
from kraft.sim.world.schedule import Schedule

if TYPE_CHECKING:
    from kraft.sim.world.incarnation import Incarnation

EPOCH_MS = 1_750_000_000_000
"""Wall clock time at which a world begins."""
PPM = 1_000_000


class HostClock:
    """State of a host's clocks that outlives a process: drift, the monotonic clock since boot, and the wall clock's
    error."""

    def __init__(self, schedule: Schedule, chance: NamedRandom, options: WorldOptions) -> None:
        self.schedule = schedule
        self._chance = chance
        self._rate_ppm = PPM + _around(chance, options.drift_ppm_max)
        self._boot_ns = chance.below(1000 * SECOND_NS)
        self.wall_offset_ms = _around(chance, options.wall_offset_ms_max)

    def boot(self) -> None:
        """Restart the monotonic clock after a power loss."""
        self._boot_ns = self._chance.below(SECOND_NS) - self._drifted()

    def _drifted(self) -> int:
        return self.schedule.now_ns * self._rate_ppm // PPM

    def monotonic_ns(self) -> int:
        return self._boot_ns + self._drifted()

    def wall_ms(self) -> int:
        return EPOCH_MS + self._drifted() // MILLISECOND_NS + self.wall_offset_ms

    def virtual_seconds(self, duration_ms: float) -> float:
        """Return how many virtual seconds pass while this host's clock measures the given duration."""
        return duration_ms * PPM / self._rate_ppm / 1000


class NodeClock:
    """Implements kraft.seam.Clock for one incarnation. Reading the clock never fails; a sleep of a crashed incarnation
    does."""

    __slots__ = ("_host", "_incarnation")

    def __init__(self, host: HostClock, incarnation: Incarnation) -> None:
        self._host = host
        self._incarnation = incarnation

    def monotonic_ms(self) -> int:
        return self._host.monotonic_ns() // MILLISECOND_NS

    def monotonic_ns(self) -> int:
        return self._host.monotonic_ns()

    def wall_ms(self) -> int:
        return self._host.wall_ms()

    async def sleep_ms(self, duration_ms: float) -> None:
        self._incarnation.check()
        await self._host.schedule.sleep(self._host.virtual_seconds(max(0.0, duration_ms)))
        await self._incarnation.pass_gate()

    async def wait_at_most(self, event: Event, duration_ms: float) -> bool:
        self._incarnation.check()
        with trio.move_on_after(self._host.virtual_seconds(max(0.0, duration_ms))):
            await event.wait()
        await self._incarnation.pass_gate()
        return event.is_set()


def _around(chance: NamedRandom, most: int) -> int:
    return chance.below(2 * most + 1) - most
