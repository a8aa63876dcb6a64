"""Garbage: a node's process does not look at all of its objects while others wait.

Python's full collections look at every object that lives: with 100,000 partitions that is a pause of some tenths of a
second, several times while they come. Here, what has survived a collection of the younger generations is frozen, so
that no later one looks at it; memory without cycles is given back as ever. Cycles among frozen objects stay, until
there may be so many of them that one look at everything is worth its pause: when half as many objects again live as
after the last one, and not before ten minutes have passed.

Python collects the young when so many more objects were made than freed. Where frozen ones are replaced (the states of
a hundred thousand partitions) these numbers are equal, and the young grow until there are a hundred thousand of them,
too: so they are counted behind every few milliseconds of work, and less often while they do not become more, for a
count touches each of them. The work of tasks is measured once per turn of trio and
not once per step, for steps are short and many; the driver, whose passes run where trio waits, tells of its own.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import trio

LOOK_INTERVAL_S = 600
OBJECTS_MIN = 200_000
"""Fewer are not worth a look."""
WORK_NS_MAX = 5_000_000
"""The young are counted behind so much work: that may have made some ten thousand objects."""
WORK_NS_CALM = 4 * WORK_NS_MAX
"""Behind so much while they do not grow: a burst that begins just then has made some 40,000 before they are counted."""
YOUNG_MAX = 7_000
"""About as many as Python lets be before it collects two generations."""


class GarbagePolicy(trio.abc.Instrument):
    """`start` once per process; `run` is a task, and while it lives the work of trio's turns is counted. Whoever works
    where trio waits tells of it (`worked`)."""

    def __init__(self) -> None:
        self._live_after_look = 0
        self._work_ns = 0
        self._count_ns = WORK_NS_MAX
        self._young = 0
        self._turn_began_ns = time.monotonic_ns()

    def start(self) -> None:
        """Freeze what lives now, and from now on what survives."""
        gc.callbacks.append(self._collected)
        gc.freeze()
        self._live_after_look = gc.get_freeze_count()

    def stop(self) -> None:
        """As Python does it."""
        gc.callbacks.remove(self._collected)
        gc.unfreeze()

    async def run(self) -> None:
        """Count the work of trio's turns, and look at everything now and then, until cancelled."""
        self._turn_began_ns = time.monotonic_ns()
        trio.lowlevel.add_instrument(self)
        try:
            while True:
                await trio.sleep(LOOK_INTERVAL_S)
                if gc.get_freeze_count() > max(OBJECTS_MIN, self._live_after_look * 3 // 2):
                    self.look_at_all()
        finally:
            trio.lowlevel.remove_instrument(self)

    def after_io_wait(self, timeout: float) -> None:
        self._turn_began_ns = time.monotonic_ns()

    def before_io_wait(self, timeout: float) -> None:
        self.worked(time.monotonic_ns() - self._turn_began_ns)

    def worked(self, held_ns: int) -> None:
        """The loop was held for so long. Collects the young if there are many."""
        self._work_ns += held_ns
        if self._work_ns >= self._count_ns:
            self._work_ns = 0
            self._look_at_young()

    def _look_at_young(self) -> None:
        young = len(gc.get_objects(0)) + len(gc.get_objects(1))
        is_growing = young - self._young > YOUNG_MAX // 4
        self._count_ns = WORK_NS_MAX if is_growing else WORK_NS_CALM
        self._young = young
        if young > YOUNG_MAX:
            gc.collect(1)
            self._young = 0

    def look_at_all(self) -> None:
        """A full collection."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._live_after_look = gc.get_freeze_count()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 1:
            gc.freeze()
