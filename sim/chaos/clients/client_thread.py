"""ClientThread: a thread of one blocking client, for trio code.

A blocking call cannot be interrupted. So a cancelled caller goes on at once, and the call goes on in the thread; the
client's end comes behind it, in the same thread, for clients must not be closed while they are called. Calls look at
`is_closing` every SLICE_SECONDS, or are bounded by a timeout of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import trio

Result = TypeVar("Result")

SLICE_SECONDS = 0.1
CLOSE_SECONDS_MAX = 10.0


class ClientThread:
    """See the module. It is of the trio run that makes it; `name` is the thread's."""

    def __init__(self, name: str) -> None:
        self.is_closing = threading.Event()
        """Set when the client is to be closed: calls under way shall end."""
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._ended = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[], Result]) -> Result:
        """What `work()` returns or raises, in the thread. Cancelled, it goes on there and nobody hears of it."""
        call = _Call(work)
        self._calls.put(call)
        await call.arrived.wait()
        return call.result()

    async def aclose(self, close: Callable[[], None], *, timeout_s: float = CLOSE_SECONDS_MAX) -> bool:
        """Run `close()` when the call under way has ended, then end the thread. Also a cancelled caller waits for it,
        at most so long. False if it has not ended by then: it ends with its call, or with the process."""
        self.is_closing.set()
        self._calls.put(_Call(close))
        self._calls.put(None)
        with trio.move_on_after(timeout_s, shield=True):
            await self._ended.wait()
            self._thread.join()  # at once: it has nothing left to do
        await trio.lowlevel.checkpoint()
        return self._ended.is_set()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            self._notify(call.arrived)
            del call  # what it holds ends now, and not with the next call
        self._notify(self._ended)

    def _notify(self, event: trio.Event) -> None:
        try:
            self._token.run_sync_soon(event.set)
        except trio.RunFinishedError:
            return  # the run did not wait for this client


class _Call(Generic[Result]):
    """One call, and how it ended."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self.arrived = trio.Event()
        self._work = work
        self._value: Result | None = None
        self._problem: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._work()
        except BaseException as problem:  # noqa: BLE001 - the caller raises it
            self._problem = problem

    def result(self) -> Result:
        if self._problem is not None:
            raise self._problem
        return self._value  # type: ignore[return-value]
