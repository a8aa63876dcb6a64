"""AppendBudget without a broker: waiting appends run when the budget of dirty bytes has room again."""

from __future__ import annotations

from typing import Any

import trio

from kraft.broker.logs.append_budget import AppendBudget
from tests.stages.part_stage import PartStage, play, replica


class FakeDisk:
    """A disk whose budget of dirty bytes is used up until `room` is set."""

    def __init__(self) -> None:
        self.room = trio.Event()
        self.waits = 0

    @property
    def dirty_budget_full(self) -> bool:
        return not self.room.is_set()

    async def wait_dirty_budget(self) -> None:
        self.waits += 1
        await self.room.wait()


def test_waiting_appends_run_when_the_budget_has_room_and_only_one_task_waits_for_it() -> None:
    async def test(stage: PartStage) -> None:
        ran: list[int] = []
        waiting: Any = replica(appendable=True, pending=["append"], run_pending=lambda: ran.append(0))
        idle: Any = replica(index=1, appendable=True, pending=[], run_pending=lambda: ran.append(1))
        budget = AppendBudget(stage.loop, lambda: [waiting, idle])
        assert budget.may_write(waiting), "the world's disk has room"
        disk: Any = FakeDisk()
        budget.disk = disk
        assert not budget.may_write(waiting)
        assert not budget.may_write(waiting)
        await stage.finish_tasks()
        assert (disk.waits, ran) == (1, [])
        disk.room.set()
        await stage.finish_tasks()
        assert (ran, stage.passes) == ([0], 1)

    play(test)


def test_a_partition_that_is_not_appendable_starts_no_wait_for_the_budget() -> None:
    async def test(stage: PartStage) -> None:
        budget = AppendBudget(stage.loop, list)
        disk: Any = FakeDisk()
        budget.disk = disk
        assert not budget.may_write(replica(appendable=False))
        await stage.finish_tasks()
        assert disk.waits == 0

    play(test)
