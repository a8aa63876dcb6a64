"""GarbagePolicy: avoids full garbage collections of a node's process, which would block the loop.

Python's full collections traverse every live object. With 100,000 partitions that is a pause of some tenths of a
second, several times while they are created. Here, objects that survive a collection of the younger generations are
frozen, so that later collections skip them. Reference counting still frees memory without cycles. Cycles among frozen
objects stay until a full collection is worth its pause. That is the case when the number of live objects has grown by
half since the last full collection, and at least ten minutes have passed.

Python collects the young generations when many more objects were created than freed. When frozen objects are replaced
(the states of a hundred thousand partitions), these numbers are equal, and the young generations could grow to a
hundred thousand objects. They are therefore counted after every few milliseconds of work. The count visits each of
them, so it is less frequent while they do not grow. The work of tasks is measured once per turn of trio instead of once
per step, as steps are short and numerous. The driver, whose passes run while trio waits, reports its own work.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import trio

LOOK_INTERVAL_S = 600
OBJECTS_MIN = 200_000
"""Number of objects below which a full collection is not worthwhile."""
WORK_NS_MAX = 5_000_000
"""Nanoseconds of work between two counts of the young objects. So much work may have created some ten thousand of them.
"""
WORK_NS_CALM = 4 * WORK_NS_MAX
"""Nanoseconds of work between two counts while the young objects do not grow. A burst that begins just then has created
some 40,000 before they are counted."""
YOUNG_MAX = 7_000
"""Number of young objects above which they are collected: about as many as Python permits before it collects two
generations."""


class GarbagePolicy(trio.abc.Instrument):
    """The garbage collection policy of a process. Call `start` once per process. While the task `run` runs, the work of
    trio's turns is counted. Code that works while trio waits reports its work with `worked`."""

    def __init__(self) -> None:
        self._live_after_full = 0
        self._work_ns = 0
        self._count_ns = WORK_NS_MAX
        self._young = 0
        self._turn_began_ns = time.monotonic_ns()

    def start(self) -> None:
        """Freeze all live objects, and from now on those that survive a collection."""
        gc.callbacks.append(self._collected)
        gc.freeze()
        self._live_after_full = gc.get_freeze_count()

    def stop(self) -> None:
        """Restore Python's default behaviour."""
        gc.callbacks.remove(self._collected)
        gc.unfreeze()

    async def run(self) -> None:
        """Count the work of trio's turns, and run a full collection from time to time, until cancelled."""
        self._turn_began_ns = time.monotonic_ns()
        trio.lowlevel.add_instrument(self)
        try:
            while True:
                await trio.sleep(LOOK_INTERVAL_S)
                if gc.get_freeze_count() > max(OBJECTS_MIN, self._live_after_full * 3 // 2):
                    self.collect_all()
        finally:
            trio.lowlevel.remove_instrument(self)

    def after_io_wait(self, timeout: float) -> None:
        self._turn_began_ns = time.monotonic_ns()

    def before_io_wait(self, timeout: float) -> None:
        self.worked(time.monotonic_ns() - self._turn_began_ns)

    def worked(self, held_ns: int) -> None:
        """Report that the loop was busy for `held_ns`, and collect the young objects if there are many."""
        self._work_ns += held_ns
        if self._work_ns >= self._count_ns:
            self._work_ns = 0
            self._collect_young()

    def _collect_young(self) -> None:
        young = young_count()
        is_growing = young - self._young > YOUNG_MAX // 4
        self._count_ns = WORK_NS_MAX if is_growing else WORK_NS_CALM
        self._young = young
        if young > YOUNG_MAX:
            gc.collect(1)
            self._young = 0

    def collect_all(self) -> None:
        """Run a full collection."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._live_after_full = gc.get_freeze_count()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 1:
            gc.freeze()


def young_count() -> int:
    """Return the number of objects in the two younger generations.

    No other thread may run while the list of them exists. A tuple that another thread is building would be in it, and
    would then fail with SystemError (bad argument to internal function), because something else refers to it. So the
    list is made, measured and dropped by C functions, between which Python does not switch threads."""
    return sum(map(len, map(gc.get_objects, (0, 1))))
