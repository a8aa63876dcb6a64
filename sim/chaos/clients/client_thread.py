"""ClientThread: a thread for one blocking client, called from trio code.

A blocking call cannot be interrupted. So a cancelled caller returns at once while the call continues in the thread. The
client is closed in the same thread after that call, because clients must not be closed during a call. Calls check
`is_closing` every SLICE_SECONDS, or have a timeout of their own.
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
    """A client's thread; see the module. It belongs to the trio run that creates it. `name` is the thread's name."""

    def __init__(self, name: str) -> None:
        self.is_closing = threading.Event()
        """Event that is set when the client is to be closed; calls in progress should then end."""
        self._calls: SimpleQueue[_ThreadCall[Any] | None] = SimpleQueue()
        self._ended = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[], Result]) -> Result:
        """Run `work()` in the thread and return or raise its result. If the caller is cancelled, `work()` continues in
        the thread and its result is dropped."""
        call = _ThreadCall(work)
        self._calls.put(call)
        await call.arrived.wait()
        return call.result()

    async def aclose(self, close: Callable[[], None], *, timeout_s: float = CLOSE_SECONDS_MAX) -> bool:
        """Run `close()` after the call in progress, then end the thread. A cancelled caller waits for this too, up to
        the time limit. Return False if the thread has not ended by then; it ends after its call, or with the process.
        """
        self.is_closing.set()
        self._calls.put(_ThreadCall(close))
        self._calls.put(None)
        with trio.move_on_after(timeout_s, shield=True):
            await self._ended.wait()
            self._thread.join()  # at once: it has nothing more to do
        await trio.lowlevel.checkpoint()
        return self._ended.is_set()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            self._notify(call.arrived)
            del call  # release its references now and not with the next call
        self._notify(self._ended)

    def _notify(self, event: trio.Event) -> None:
        try:
            self._token.run_sync_soon(event.set)
        except trio.RunFinishedError:
            return  # the trio run did not wait for this client


class _ThreadCall(Generic[Result]):
    """One call in a client's thread, and its result or exception."""

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
