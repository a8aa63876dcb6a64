"""Serve the console over HTTP until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import anycorn
import trio
from starlette.applications import Starlette

from kraft.deploy.console.app import make_app
from kraft.deploy.console.settings import ConsoleSettings

STOP_SECONDS_MAX = 1.0


class CannotListen(Exception):
    """The console cannot listen at this address: it is in use, or does not belong to this machine."""


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free port. Raise CannotListen if that fails."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as problem:
        raise CannotListen(
            f"cannot listen at {host}:{port}: {problem.strerror or problem}; give another --port"
        ) from None


async def serve(
    settings: ConsoleSettings,
    listener: socket.socket,
    stop: Callable[[], Awaitable[object]],
    started: Callable[[Starlette], None] = lambda app: None,
) -> None:
    """Serve on this socket until `stop` returns, then close the socket. `started` is called once requests are
    accepted."""
    config = anycorn.Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.errorlog = config.accesslog = None
    config.graceful_timeout = config.shutdown_timeout = STOP_SECONDS_MAX
    app = make_app(settings)
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED) -> None:
            await anycorn.serve(app, config, shutdown_trigger=stop, task_status=task_status)  # type: ignore[arg-type]
            nursery.cancel_scope.cancel()

        await nursery.start(run)
        started(app)
