"""LateCall: delay a chosen call on a node's threads."""

from __future__ import annotations

import pytest
import trio

from kraft.sim.world.disk import FakeDisk


class LateCall:
    """Delays the next call with this name (of a function, or `Class.method`) before a thread runs it, until the test
    releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.has_come = False
        self.may_go = trio.Event()
        honest = FakeDisk.offload

        async def offload(disk, function, *arguments):  # type: ignore[no-untyped-def]
            if getattr(function, "__qualname__", "").endswith(name) and not self.has_come:
                self.has_come = True
                await self.may_go.wait()
            return await honest(disk, function, *arguments)

        monkeypatch.setattr(FakeDisk, "offload", offload)
