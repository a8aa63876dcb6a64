"""Test of the observer when the run's clock restarts: it discards earlier answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Self

import pytest
import trio
import trio.testing

from kraft.sim.chaos.run import observer as observers
from kraft.sim.chaos.run.observer import Observer


class HeldAdmin:
    """An admin client whose responses are held back until `gate` opens."""

    gate: trio.Event
    asked = 0

    def __init__(self, **settings: object) -> None:
        self.nodes = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close nothing."""

    async def cluster(self) -> SimpleNamespace:
        await trio.lowlevel.checkpoint()
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1, is_fenced=False)])

    async def quorum(self) -> SimpleNamespace:
        type(self).asked += 1
        await self.gate.wait()
        return SimpleNamespace(leader=1, leader_epoch=3, voters=[])


async def test_the_observer_discards_answers_from_before_the_clock_restart_even_if_they_arrive_later(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers, "Admin", HeldAdmin)
    HeldAdmin.gate, HeldAdmin.asked = trio.Event(), 0
    observer = Observer({1: "none:1"}, tuple, lambda: 1000 * trio.current_time())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(observer.run)
        await trio.testing.wait_all_tasks_blocked()
        assert HeldAdmin.asked == 1
        observer.reset()
        gate, HeldAdmin.gate = HeldAdmin.gate, trio.Event()
        gate.set()
        await trio.sleep(2 * observers.PAUSE_MS / 1000)
        assert HeldAdmin.asked == 2
        assert observer.take().brokers == ()
        HeldAdmin.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert observer.take().brokers == (1,)
        nursery.cancel_scope.cancel()
