"""Async: a response of server-sent events that lasts until the browser disconnects.
Source: HTML standard (section "Server-sent events").
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

STREAMS_MAX = 20
"""Maximum number of streams that are open at a time. It is limited because each stream holds connections to the
cluster."""
HEARTBEAT_S = 10.0
Emit = Callable[[str, Any], Awaitable[None]]
"""Type: function that sends one event with a name and with data, which is encoded as JSON."""


class EventStream:
    """An ASGI application that sends the events that `work` emits. It ends when `work` returns or the browser
    disconnects. If `work` raises one of the exceptions `expected`, a last event `problem` is sent."""

    open_streams = 0

    def __init__(self, work: Callable[[Emit], Awaitable[None]], *, expected: tuple[type[Exception], ...] = ()) -> None:
        self._work = work
        self._expected = expected
        self._lock = trio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if EventStream.open_streams >= STREAMS_MAX:
            text = f"{STREAMS_MAX} pages are open with live updates, the maximum: close one\n"
            await PlainTextResponse(text, status_code=503)(scope, receive, send)
            return
        EventStream.open_streams += 1
        try:
            await self._stream(receive, send)
        finally:
            EventStream.open_streams -= 1

    async def _stream(self, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_gone, receive, nursery.cancel_scope)
            nursery.start_soon(self._beat, send)
            await self._run(send)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _run(self, send: Send) -> None:
        async def emit(name: str, value: Any) -> None:
            await self._send(send, f"event: {name}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n")

        problem: str | None = None
        try:
            await self._work(emit)
        except* self._expected as problems:
            problem = _text(problems)
        if problem is not None:
            await emit("problem", problem)

    async def _send(self, send: Send, text: str) -> None:
        async with self._lock:
            message: Message = {
                "type": "http.response.body",
                "body": text.encode("utf-8", "replace"),
                "more_body": True,
            }
            await send(message)

    async def _beat(self, send: Send) -> None:
        while True:
            await self._send(send, ": still here\n\n")
            await trio.sleep(HEARTBEAT_S)


async def _wait_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _text(problem: BaseException) -> str:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return str(problem)
