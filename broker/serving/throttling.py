"""Throttling: a client over its quota gets its response at once; then its connection is not read for the throttle time
(KIP-219).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.serving.loop import Loop
    from kraft.wire.server import Request


def mute(loop: Loop, request: Request, throttle_ms: int) -> None:
    """Stop reading this request's connection for `throttle_ms`."""
    connection = request.connection
    if request.timing is not None:
        request.timing.throttle_ms = throttle_ms
    connection.mute()

    async def unmute() -> None:
        await loop.clock.sleep_ms(throttle_ms)
        connection.unmute()

    loop.start_task(unmute)
