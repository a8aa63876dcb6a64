"""The console's ASGI application: sections, templates, static files, and the guard around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib import import_module

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kraft.deploy.console import live
from kraft.deploy.console.cluster_view import FAILURES, ClusterView
from kraft.deploy.console.guard import Guard, is_loopback, new_token
from kraft.deploy.console.rendering import HERE, make_environment, problem_page
from kraft.deploy.console.settings import ConsoleSettings


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """An entry of the navigation. `module` is a Python module with a function `routes() -> list[Route]`."""

    name: str
    path: str
    module: str


SECTIONS = (
    NavigationEntry("Overview", "/", "pages.overview"),
    NavigationEntry("Topics", "/topics", "pages.topics"),
    NavigationEntry("Messages", "/messages", "messages"),
    NavigationEntry("Groups", "/groups", "pages.groups"),
    NavigationEntry("Nodes", "/nodes", "pages.nodes"),
    NavigationEntry("History", "/history", "history"),
    NavigationEntry("Faults", "/faults", "faults"),
)
PARTS = ("pages.configs", "pages.reassignments", "pages.resets")
"""Modules whose pages belong to a section but have no entry in the navigation."""


def make_app(settings: ConsoleSettings) -> Starlette:
    """Return the console application for one cluster. Its client of the cluster is open while the application runs."""
    view = ClusterView(settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with view.running():
            yield

    token = new_token()
    guard = Middleware(
        Guard, token=token, allow_changes=settings.allow_changes, loopback_only=is_loopback(settings.host)
    )
    app = Starlette(
        routes=[*_routes(), Mount("/static", StaticFiles(directory=HERE / "static"))],
        lifespan=lifespan,
        middleware=[guard],
        exception_handlers=dict.fromkeys(FAILURES, _cluster_failed) | {HTTPException: _http_failed},
    )
    app.state.view = view
    app.state.token = token
    app.state.sections = SECTIONS
    app.state.templates = make_environment()
    return app


def _routes() -> list[Route]:
    modules = [import_module(f"kraft.deploy.console.{name}") for name in (*(s.module for s in SECTIONS), *PARTS)]
    return [route for module in (live, *modules) for route in module.routes()]


async def _cluster_failed(request: Request, problem: Exception) -> Response:
    return problem_page(request, f"The cluster did not do this: {problem}", section="")


async def _http_failed(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    is_known = problem.detail != HTTPStatus.NOT_FOUND.phrase
    text = problem.detail if is_known else f"There is no page {request.url.path}"
    return problem_page(request, text, section="", status=problem.status_code)
