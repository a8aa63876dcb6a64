"""One life of a node: what is revoked when it dies.

A crash is: first revoke (every later call on this life's handles raises HandleRevoked and has no effect), then cut or
silence its streams, then cancel its task; what its `finally` blocks still try does nothing.
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
    """A node's life. `seam` is its outside world; `failure` is what a connection's handler raised, if any did."""

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
        """Take the seam that was built for this life; code that runs for it finds it in `current_seam`."""
        self._seam = seam
        self._on_failure = on_failure
        self.context.run(current_seam.set, seam)

    def check(self) -> None:
        """Raise HandleRevoked if this life is over."""
        if self.revoked:
            raise HandleRevoked(f"{self.name} crashed: this handle is of its life {self.number}")

    def pause(self) -> None:
        """Freeze this life, as SIGSTOP or a long collection would: its driver has no passes and what it awaits of its
        seam does not return, while time goes on for it as well."""
        self.paused = True
        self._resumed = trio.Event()

    def resume(self) -> None:
        self.paused = False
        self._resumed.set()

    async def pass_gate(self) -> None:
        """Suspend while this life is frozen, then `check`."""
        while self.paused:
            await self._resumed.wait()
        self.check()

    def call(self, function: Callable[[], None]) -> None:
        """Run a callback of this life's code from an event of the world. What it raises stops this node."""
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
