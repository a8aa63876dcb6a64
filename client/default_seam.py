"""The one door from client code to the real world: which seam a client uses when it is given none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kraft.seam import Seam, current_seam


@asynccontextmanager
async def default_seam(seam: Seam | None = None) -> AsyncIterator[Seam]:
    """`seam` if given, else the simulated world's that this code runs in, else a real one that lives as long as the
    context."""
    chosen = seam or current_seam.get()
    if chosen is not None:
        yield chosen
        return
    from kraft.runtime import open_seam

    async with open_seam(node_name="client") as real:
        yield real
