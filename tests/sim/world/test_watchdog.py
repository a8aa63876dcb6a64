"""Tests that a run ends at once when it is stopped, and when tasks run endlessly while virtual time stands still."""

from __future__ import annotations

import pytest
import trio

from kraft.sim.world import World
from kraft.sim.world.watchdog import TURNS_MAX
from kraft.sim.world.world import Livelock


def test_tasks_running_endlessly_without_virtual_time_end_the_run() -> None:
    async def spin() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async def main(world: World) -> None:
        await world.sleep_ms(5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spin)

    with pytest.raises(Livelock, match=r"time stands still at 0\.005 s while tasks run; these are there: .*spin"):
        World(1).run(main)


def test_many_cycles_of_trios_loop_at_different_virtual_times_are_no_livelock() -> None:
    async def main(world: World) -> int:
        turns = 0
        while turns < 2 * TURNS_MAX:
            for _ in range(TURNS_MAX // 4):
                await trio.lowlevel.checkpoint()
                turns += 1
            await world.sleep_ms(0.001)
        return turns

    assert World(1).run(main) >= 2 * TURNS_MAX


def test_stopping_a_world_ends_its_run_and_raises_the_given_reason() -> None:
    class Enough(Exception):
        pass

    async def main(world: World) -> None:
        world.stop(Enough("seen"))
        await trio.sleep_forever()

    with pytest.raises(Enough, match="seen"):
        World(1).run(main)
