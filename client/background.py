"""Where a client's own tasks run: in a nursery that ends with the client's block, and not with what cancels the block.

A cancelled application leaves its `async with` at once, but its client still has something to say to the brokers: which
records are done with, and goodbye. So a cancellation reaches the client's tasks only when the client says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kraft.client.default_seam import default_seam
from kraft.seam import Seam


@asynccontextmanager
async def open_background(given: Seam | None) -> AsyncIterator[tuple[Seam, trio.Nursery]]:
    """A seam (`given`, or see `default_seam`) and a nursery, both for as long as the block. An exception of a task in
    the nursery cancels the block and is raised from it."""
    async with trio.open_nursery() as outer:
        seam, inner = await outer.start(_live, given)
        try:
            yield seam, inner
        finally:
            inner.cancel_scope.cancel()


async def _live(given: Seam | None, task_status: trio.TaskStatus[tuple[Seam, trio.Nursery]]) -> None:
    with trio.CancelScope() as scope:
        async with default_seam(given) as seam, trio.open_nursery() as inner:
            task_status.started((seam, inner))
            # If the block was cancelled before it began, nobody will end this task: it must notice now.
            await trio.lowlevel.checkpoint_if_cancelled()
            scope.shield = True
            await trio.sleep_forever()
