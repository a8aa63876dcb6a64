"""The pages under /faults: the board, the actions of its forms, and the strip that shows their effect live."""

from __future__ import annotations

from pathlib import Path

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kraft.deploy.console.cluster_view import FAILURES
from kraft.deploy.console.event_stream import Emit, EventStream
from kraft.deploy.console.faults.board import BadAction, NodeFaults, act, node_states, read_board
from kraft.deploy.console.faults.strip import strip_of
from kraft.deploy.console.rendering import form_of, redirect, render, view_of
from kraft.deploy.launch.errors import LaunchError

SECTION = "Faults"
STATES_MS = 500
"""Milliseconds between two requests to the launcher for the node states, while a page shows them live."""


def routes() -> list[Route]:
    """Return the routes of the fault pages."""
    return [
        Route("/faults", board),
        Route("/faults", change, methods=["POST"]),
        Route("/faults/live", live),
    ]


async def board(request: Request) -> Response:
    """Show the nodes with their faults, and forms if changes are allowed."""
    return await _page(request, "")


async def change(request: Request) -> Response:
    """Make or clear a fault. The guard has already checked the form."""
    data = view_of(request).settings.data
    if data is None:
        return await _page(request, _why_not(request))
    try:
        done = await trio.to_thread.run_sync(act, data, form_of(request))
    except (BadAction, LaunchError) as problem:
        return await _page(request, f"Not done: {problem}")
    return redirect("/faults", done)


async def live(request: Request) -> ASGIApp:
    """Send server-sent events named `strip` with the JSON of `strip_of`. The cluster is queried more often than for
    other pages."""
    view = view_of(request)

    async def work(emit: Emit) -> None:
        last = None
        with view.polling_faster():
            while True:
                changed, states = view.changed, await _states(view.settings.data)
                shown = view.snapshot.taken_ms, view.problem, states
                if shown != last:
                    last = shown
                    await emit("strip", {**strip_of(view.snapshot, states), "problem": view.problem})
                with trio.move_on_after(STATES_MS / 1_000):
                    await changed.wait()

    return EventStream(work, expected=(LaunchError, *FAILURES))


async def _states(data: Path | None) -> list[tuple[int, str]]:
    return [] if data is None else await trio.to_thread.run_sync(node_states, data)


def _why_not(request: Request) -> str:
    """Return why faults are not possible here; empty if they are."""
    settings = view_of(request).settings
    if settings.data is None:
        return (
            "Faults are made at processes of a local cluster, and no folder of one was given: start the cluster with "
            "kraft up --fault-control, and the console with --data and its folder, or without an address."
        )
    if not settings.allow_changes:
        return "This console is read-only: start it with --allow-changes to make or clear faults."
    return ""


async def _page(request: Request, problem: str) -> Response:
    view = view_of(request)
    data = view.settings.data
    nodes: list[NodeFaults] = []
    why_not = _why_not(request)
    if data is not None:
        try:
            nodes = await trio.to_thread.run_sync(read_board, data)
        except LaunchError as failure:
            why_not = str(failure)
    return render(
        request,
        "faults.html",
        section=SECTION,
        status=400 if problem else 200,
        nodes=nodes,
        why_not=why_not,
        problem="" if problem == why_not else problem,
        strip=strip_of(view.snapshot, [(node.node_id, node.state) for node in nodes]),
    )
