"""One incarnation of a node: everything that is revoked when it dies.

A crash first revokes the handles: every later call on a handle of this incarnation raises HandleRevoked and has no
effect. Then it ends or silences the incarnation's streams. Then it cancels the incarnation's task; whatever the task's
`finally` blocks still try has no effect.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from kraft.seam import HandleRevoked, Seam, current_seam

if TYPE_CHECKING:
    from kraft.sim.world.host import Host


class Incarnation:
    """An incarnation of a node. `seam` is its interface to the outside world; `failure` is the exception of a
    connection's handler, if there was one."""

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.number = number
        self.revoked = False
        self.paused = False
        self.failure: BaseException | None = None
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self._resumed = trio.Event()
        self.context = contextvars.copy_context()
        self._seam: Seam | None = None
        self._on_failure: Callable[[BaseException], None] | None = None

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def seam(self) -> Seam:
        assert self._seam is not None
        return self._seam

    def adopt(self, seam: Seam, on_failure: Callable[[BaseException], None] | None) -> None:
        """Set the seam that was built for this incarnation. Code that runs for the incarnation finds it in
        `current_seam`."""
        self._seam = seam
        self._on_failure = on_failure
        self.context.run(current_seam.set, seam)

    def check(self) -> None:
        """Raise HandleRevoked if this incarnation is over."""
        if self.revoked:
            raise HandleRevoked(f"{self.name} crashed: this handle is of its life {self.number}")

    def pause(self) -> None:
        """Freeze this incarnation, as SIGSTOP or a long garbage collection would. Its driver runs no passes and no call
        to its seam returns, while time passes for it as well."""
        self.paused = True
        self._resumed = trio.Event()

    def resume(self) -> None:
        self.paused = False
        self._resumed.set()

    async def pass_gate(self) -> None:
        """Suspend while this incarnation is frozen, then raise HandleRevoked if it is over."""
        while self.paused:
            await self._resumed.wait()
        self.check()

    def call(self, function: Callable[[], None]) -> None:
        """Run a callback of this incarnation's code from an event of the world. An exception stops this node."""
        if self.revoked or self.failure is not None:
            return
        try:
            self.context.run(function)
        except Exception as error:  # noqa: BLE001 - it stops the node, as out of the real driver
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        if self.failure is None and not self.revoked:
            self.failure = error
            self.scope.cancel()
            if self._on_failure is not None:
                self._on_failure(error)
