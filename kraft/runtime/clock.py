"""The real clock and random source: the system's clocks, trio's sleep, and generators seeded from the kernel.

No state is created at import: nodes are forked from a zygote, and two nodes must not share a seed.
"""

from __future__ import annotations

import os
import random
import time
from uuid import UUID

import trio

from kraft.seam import Event, draw_uuid


class RealClock:
    """Implementation of kraft.seam.Clock with CLOCK_MONOTONIC and CLOCK_REALTIME."""

    __slots__ = ()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, duration_ms: float) -> None:
        await trio.sleep(max(0.0, duration_ms) / 1000)

    async def wait_at_most(self, event: Event, duration_ms: float) -> bool:
        with trio.move_on_after(max(0.0, duration_ms) / 1000):
            await event.wait()
        return event.is_set()


class RealRandom:
    """Implementation of kraft.seam.Random, seeded from the kernel. Each stream has its own seed; names only distinguish
    streams in logs."""

    __slots__ = ("_generator", "_streams")

    def __init__(self) -> None:
        self._generator = random.Random(os.urandom(32))
        self._streams: dict[str, RealRandom] = {}

    def below(self, bound: int) -> int:
        return self._generator.randrange(bound)

    def uuid(self) -> UUID:
        return draw_uuid(self._generator.getrandbits)

    def stream(self, name: str) -> RealRandom:
        source = self._streams.get(name)
        if source is None:
            source = self._streams[name] = RealRandom()
        return source
