"""Server-sent events: one after each round of requests. With it, open pages decide whether to reload themselves."""

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
"""Maximum seconds between two events, so that the server and the browser notice a broken connection."""


def routes() -> list[Route]:
    """Return the route of the event stream."""
    return [Route("/events", events)]


async def events(request: Request) -> Response:
    """Send `data: {"version", "problem", "alarms"}` whenever the cluster view has changed."""
    return StreamingResponse(_states(view_of(request)), media_type="text/event-stream")


async def _states(view: ClusterView) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    while True:
        changed = view.changed
        yield f"data: {json.dumps(state_of(view))}\n\n"
        with trio.move_on_after(SILENCE_S):
            await changed.wait()


def state_of(view: ClusterView) -> dict[str, object]:
    """Return the data from which an open page decides whether to reload."""
    return {"version": view.version, "problem": view.problem, "age_ms": view.age_ms, "alarms": len(view.alarms)}
