"""The nursery for a client's background tasks. It ends when the client's `async with` block ends. The cancellation of
that block does not cancel the nursery.

A cancelled application leaves its `async with` block at once, but its client must still send requests to the brokers:
final commits and LeaveGroup. So a cancellation does not reach the client's tasks until the client itself ends them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType

import trio

from kraft.client.default_seam import default_seam
from kraft.seam import Seam, sole_error


@asynccontextmanager
async def open_background(given: Seam | None) -> AsyncIterator[tuple[Seam, trio.Nursery]]:
    """Open a nursery for the duration of the block, and yield it with the seam `given`; if that is None, with the seam
    from `default_seam`. If a task in the nursery raises an exception, the block is cancelled and the exception is
    raised from it."""
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
            # If the block was cancelled before it began, no other code will end this task, so check for the
            # cancellation now.
            await trio.lowlevel.checkpoint_if_cancelled()
            scope.shield = True
            await trio.sleep_forever()


async def close_parts(
    stack: AsyncExitStack,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Close the parts of a client, among them its `open_background`, at the end of its `async with` block. `kind`,
    `error` and `trace` are the exception with which the block ends. That exception is not raised in the group in which
    the nursery wraps it, so that the application can catch it with `except KafkaError`."""
    try:
        await stack.__aexit__(kind, error, trace)
    except BaseExceptionGroup as group:
        if error is None or sole_error(group) is not sole_error(error):
            raise
