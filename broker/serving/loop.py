"""Loop: the services of the event loop that every part of the data plane needs.

Each part gets the Loop and the one to three callables that it uses, so a test can create the part with fakes. All calls
are made on the loop; only `clock.sleep_ms` and the offloaded calls of `disk` suspend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraft.broker.serving.purgatory import Deadlines
from kraft.seam import Clock, Disk, Random


@dataclass(frozen=True, slots=True)
class Loop:
    """Services of the event loop.

    `start_task(function, *arguments)` runs an async function in the background while the data plane runs, and does
    nothing before or after. `request_pass()` makes sure that a pass, and so the end of a pass, comes soon."""

    clock: Clock
    disk: Disk
    random: Random
    deadlines: Deadlines
    start_task: Callable[..., None]
    request_pass: Callable[[], None]
