"""Continuations: how a request continues after its handler has returned without an answer.

Invariant: an error in a continuation fails its own request and nothing else. Only a broken invariant of the broker
(InvariantError) stops the node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from kraft.broker.serving.request_versions import answer_error
from kraft.broker.serving.turns import Steps, Turns
from kraft.seam import CloseReason, HandleRevoked, InvariantError, WireError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import CannotEncode
from kraft.wire.request_meter import RequestMeter, request_name

if TYPE_CHECKING:
    from kraft.seam import Clock
    from kraft.wire.server import Request

log = structlog.get_logger("kraft.broker.dispatch")


class Continuations:
    """Continues requests of one broker after their handlers have returned: from a callback, in a task, or in steps."""

    def __init__(self, clock: Clock, start_task: Callable[..., None], requests: RequestMeter) -> None:
        self._start_task = start_task
        self._requests = requests
        self._turns = Turns(clock, start_task, lambda: None)

    def finish(self, request: Request, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function(*arguments)`, which continues a request that waited for this callback. If the function raises,
        the request fails."""
        try:
            function(*arguments)
        except (WireError, InvariantError, HandleRevoked):
            raise
        except Exception as error:  # noqa: BLE001 - one request's error must not end the others
            self.failed(request, error)

    def answer_later(self, request: Request, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run the async `function(*arguments)`, which answers the request, in a task. If the function raises, the
        request fails."""
        self._start_task(self._answer, request, function, *arguments)

    async def _answer(self, request: Request, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        try:
            await function(*arguments)
        except (InvariantError, HandleRevoked):
            raise
        except Exception as error:  # noqa: BLE001 - one request's error must not end the others
            self.failed(request, error)

    def continue_in_steps(self, request: Request, steps: Steps) -> None:
        """Queue the steps of a request behind the steps that were queued before. Other work runs between two steps.
        Each step takes a few milliseconds at most. If a step raises, the request fails."""
        self._turns.add(partial(self.finish, request), self._each(request, steps))
        self._turns.start()

    def _each(self, request: Request, steps: Steps) -> Iterator[Callable[[], None]]:
        """Yield `steps` as calls, until the steps end, one of them raises, or the connection is closed. The first step
        always runs: a request that was received completely is handled, even if its connection has ended meanwhile."""
        is_over = False

        def step() -> None:
            nonlocal is_over
            is_over = True
            try:
                next(steps)
            except StopIteration:
                return
            except WireError as error:  # the turn may belong to another connection
                request.fail(str(error))
                return
            is_over = False

        while not is_over:
            yield step
            is_over = is_over or request.connection.is_closed
        steps.close()

    def failed(self, request: Request, error: Exception) -> None:
        """Log a handler's error. Answer it with UNKNOWN_SERVER_ERROR, or end the connection if the response has no
        place for an error."""
        log.error(
            "request failed",
            api=request_name(request.api_key),
            version=request.api_version,
            client_id=request.client_id,
            error=repr(error),
            exc_info=None if isinstance(error, CannotEncode) else error,
        )
        if not request.is_answered and answer_error(request, ErrorCode.UNKNOWN_SERVER_ERROR):
            return
        self._requests.count_error(request.api_key, ErrorCode.UNKNOWN_SERVER_ERROR)
        if not request.is_answered:
            request.fail(f"the handler failed: {error!r}", CloseReason.LOCAL)
