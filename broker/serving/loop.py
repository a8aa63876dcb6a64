"""Loop: what every part of the data plane needs of the event loop it runs on.

A part gets the Loop and the one to three callables that it uses, so a test makes it with fakes. All calls are made on
the loop; only `clock.sleep_ms` and the offloaded calls of `disk` suspend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraft.broker.serving.purgatory import Deadlines
from kraft.seam import Clock, Disk, Random


@dataclass(frozen=True, slots=True)
class Loop:
    """Facilities of the event loop. `start_task(function, *arguments)` runs an async function in the background for as
    long as the data plane runs, and does nothing before and after that; `request_pass()` makes sure that a pass, and
    so its end, comes soon."""

    clock: Clock
    disk: Disk
    random: Random
    deadlines: Deadlines
    start_task: Callable[..., None]
    request_pass: Callable[[], None]
