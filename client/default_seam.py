"""Open the seam of a client that is given none. This is the only way from client code to the real world."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kraft.seam import Seam, current_seam


@asynccontextmanager
async def default_seam(seam: Seam | None = None) -> AsyncIterator[Seam]:
    """Provide `seam` if given, else the seam of the simulated world in which this code runs. Outside of a simulation,
    open a real seam for the duration of the context."""
    chosen = seam or current_seam.get()
    if chosen is not None:
        yield chosen
        return
    from kraft.runtime import open_seam

    async with open_seam(node_name="client") as real:
        yield real
