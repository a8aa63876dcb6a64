"""Run a generator of *blocking* steps off the loop, one step at a time.

The interpreter lock is shared, so CPU work in a thread delays the loop, too. Between two short steps the loop gets its
turn, however many steps there are.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from kraft.seam import Disk

T = TypeVar("T")


async def run_steps(disk: Disk, steps: Generator[None, None, T]) -> T:
    """Advance `steps` to its end and return its value. Raises what a step raises."""
    while True:
        ended = await disk.offload(advance_steps, steps)
        if ended is not None:
            return ended[0]


def advance_steps(steps: Generator[None, None, T]) -> tuple[T] | None:
    """Run one step. *Blocking.* Return the generator's value if the step was the last one."""
    try:
        next(steps)
    except StopIteration as end:
        return (end.value,)
    return None
