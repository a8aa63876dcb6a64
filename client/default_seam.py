"""Choose the seam of a client whose application passed none. Client code reaches the operating system only through this
module.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kraft.seam import Seam, current_seam


@asynccontextmanager
async def default_seam(seam: Seam | None = None) -> AsyncIterator[Seam]:
    """Yield `seam` if given, else the seam of the simulation in which this code runs. Outside of a simulation, open a
    seam to the operating system for the duration of the context."""
    chosen = seam or current_seam.get()
    if chosen is not None:
        yield chosen
        return
    from kraft.runtime import open_seam

    async with open_seam(node_name="client") as real:
        yield real
