"""Server-sent events: one for each round of questions, so that open pages fetch themselves anew."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import trio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kraft.deploy.console.cluster_view import ClusterView
from kraft.deploy.console.rendering import view_of

SILENCE_S = 15.0
"""An event is sent at least so often, so that both sides notice a broken connection."""


def routes() -> list[Route]:
    """The stream of events."""
    return [Route("/events", events)]


async def events(request: Request) -> Response:
    """`data: {"version", "problem", "alarms"}` whenever the view has changed."""
    return StreamingResponse(_states(view_of(request)), media_type="text/event-stream")


async def _states(view: ClusterView) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    while True:
        changed = view.changed
        yield f"data: {json.dumps(state_of(view))}\n\n"
        with trio.move_on_after(SILENCE_S):
            await changed.wait()


def state_of(view: ClusterView) -> dict[str, object]:
    """What an open page needs to know to decide whether to fetch itself anew."""
    return {"version": view.version, "problem": view.problem, "age_ms": view.age_ms, "alarms": len(view.alarms)}
