"""The watchdog: detects tasks that run endlessly while virtual time stands still.

trio's loop notifies it of each cycle. Correct code needs at most some hundred cycles at one moment.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraft.sim.world.schedule import Schedule

TURNS_MAX = 20_000


class Watchdog(trio.abc.Instrument):
    """Calls `on_livelock` once, when trio's loop made too many cycles while virtual time stood still."""

    def __init__(self, schedule: Schedule, on_livelock: Callable[[], None]) -> None:
        self._schedule = schedule
        self._on_livelock = on_livelock
        self._at_ns = -1
        self._turns = 0

    def before_io_wait(self, timeout: float) -> None:
        now_ns = self._schedule.now_ns
        if now_ns != self._at_ns:
            self._at_ns = now_ns
            self._turns = 0
        self._turns += 1
        if self._turns == TURNS_MAX:
            self._on_livelock()
