"""Waiting on the seam's clock: an event or a time, whichever comes first. For cold paths; it starts a task."""

from __future__ import annotations

import trio

from kraft.seam import Clock


async def wait_at_most(clock: Clock, event: trio.Event, duration_ms: float) -> bool:
    """Suspend until `event` is set or `duration_ms` have passed on `clock`. True if the event is set."""
    if event.is_set():
        await trio.lowlevel.checkpoint()
        return True

    async def sleep() -> None:
        await clock.sleep_ms(duration_ms)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep)
        await event.wait()
        nursery.cancel_scope.cancel()
    return event.is_set()
