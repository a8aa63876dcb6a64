"""SharedWait: trio and the driver wait in one place, so that a request costs no turn of trio.

trio waits for its own descriptors in its own epoll. Here that epoll is a member of the driver's epoll, and the driver's
loop runs where trio would wait. While trio has nothing to run, passes continue until trio has: one of its descriptors
is ready, a pass has woken a task, or its next deadline is reached. Measured: a turn of trio costs 15 to 25 us more than
a poll, which is most of the cost of a single request.

trio has no public API for this: three private attributes are read and one is replaced. `install` checks them first. If
one is missing or unexpected, it does nothing, and the driver runs as an ordinary task. The simulator has its own
driver.
Source: docs/decisions/12-one-wait.md.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from kraft.runtime.driver import Driver

Events = list[tuple[int, int]]

EVENTS_PER_PASS = 512
NS_PER_SECOND = 1e9


class SharedWait:
    """Replacement of trio's epoll. All calls but `poll` go to the real one."""

    __slots__ = ("_driver", "_io", "_is_ready", "_own", "_real", "_runner", "close", "modify", "register", "unregister")

    def __init__(self, driver: Driver, runner: Any, own: select.epoll) -> None:
        self._driver = driver
        self._runner = runner
        self._io = runner.io_manager
        self._real: select.epoll = self._io._epoll
        self._own = own
        self._is_ready = False
        self.register = self._real.register
        self.modify = self._real.modify
        self.unregister = self._real.unregister
        self.close = self._real.close

    @staticmethod
    def install(driver: Driver, own: select.epoll) -> SharedWait | None:
        """Install a shared wait in the current trio run, and return it. Return None if that is impossible, or if one is
        installed already."""
        try:
            runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
            fits = isinstance(runner.io_manager._epoll, select.epoll) and hasattr(runner.runq, "append")
        except AttributeError:
            return None
        if not fits:
            return None
        shared = SharedWait(driver, runner, own)
        driver.add(shared._real.fileno(), shared, select.EPOLLIN)
        shared._io._epoll = shared
        return shared

    def remove(self) -> None:
        """Restore trio's own wait."""
        self._io._epoll = self._real
        self._driver.remove(self._real.fileno())

    def fileno(self) -> int:
        return self._real.fileno()

    # methods of Pollable

    def on_ready(self, mask: int) -> None:
        self._is_ready = True

    def release(self) -> None:
        """Do nothing: the real epoll belongs to trio."""

    # called by trio

    def poll(self, timeout: float, events_max: int) -> Events:
        """Run passes until trio has something to do, for at most `timeout` seconds; return trio's own events."""
        driver, runner, poll = self._driver, self._runner, self._own.poll
        stats = driver.stats
        idle_since_ns = time.monotonic_ns()
        deadline = idle_since_ns / NS_PER_SECOND + timeout
        while True:
            events = poll(0 if driver.has_work else timeout, EVENTS_PER_PASS)
            if events or driver.has_work:
                driver.run_pass(events)
                stats.waited_ns += driver.pass_ns - idle_since_ns
                idle_since_ns = driver.ended_ns
            else:
                now_ns = time.monotonic_ns()
                stats.waited_ns += now_ns - idle_since_ns
                idle_since_ns = now_ns
            if self._is_ready:
                self._is_ready = False
                return self._real.poll(0, events_max)
            if runner.runq:
                return []
            timeout = deadline - time.monotonic()
            if timeout <= 0:
                return []
