"""Garbage: a node's process does not look at all of its objects while others wait.

Python's full collections look at every object that lives: with 100,000 partitions that is a pause of some tenths of a
second, several times while they come. Here, what has survived a collection of the younger generations is frozen, so
that no later one looks at it; memory without cycles is given back as ever. Cycles among frozen objects stay, until
there may be so many of them that one look at everything is worth its pause: when half as many objects again live as
after the last one, and not before ten minutes have passed.
"""

from __future__ import annotations

import gc
from typing import Any

import trio

LOOK_INTERVAL_S = 600
OBJECTS_MIN = 200_000
"""Fewer are not worth a look."""


class GarbagePolicy:
    """`start` once per process; `run` is a task."""

    def __init__(self) -> None:
        self._live_after_look = 0

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
        """Look at everything now and then, until cancelled."""
        while True:
            await trio.sleep(LOOK_INTERVAL_S)
            if gc.get_freeze_count() > max(OBJECTS_MIN, self._live_after_look * 3 // 2):
                self.look_at_all()

    def look_at_all(self) -> None:
        """A full collection."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._live_after_look = gc.get_freeze_count()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 1:
            gc.freeze()
