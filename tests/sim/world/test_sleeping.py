"""Tests of sleeping tasks in a simulated world: they wake at their time, are cancelled at once, and never
delay time."""

from __future__ import annotations

import pytest
import trio

from kraft.sim.world import Deadlock, World


def test_sleepers_wake_in_the_order_of_their_times() -> None:
    woken: list[tuple[int, int]] = []

    async def sleeper(world: World, duration_ms: int) -> None:
        await world.sleep_ms(duration_ms)
        woken.append((duration_ms, world.now_ns))

    async def main(world: World) -> None:
        async with trio.open_nursery() as nursery:
            for duration_ms in (30, 10, 20, 10):
                nursery.start_soon(sleeper, world, duration_ms)

    World(1).run(main)
    assert woken == [(ms, ms * 1_000_000) for ms in (10, 10, 20, 30)]


def test_a_cancelled_sleep_ends_at_its_cancellation_and_later_sleeps_end_on_time() -> None:
    async def main(world: World) -> None:
        with trio.move_on_after(0.001) as scope:
            await world.sleep_ms(60_000)
        assert scope.cancelled_caught
        assert world.now_ns == 1_000_000
        await world.sleep_ms(2)
        assert world.now_ns == 3_000_000

    World(1).run(main)


def test_a_cancelled_sleep_does_not_prevent_deadlock_detection() -> None:
    times: list[int] = []

    async def main(world: World) -> None:
        with trio.move_on_after(0.001):
            await world.sleep_ms(60_000)
        times.append(world.now_ns)
        try:
            await trio.sleep_forever()
        finally:
            times.append(world.now_ns)

    with pytest.raises(Deadlock):
        World(1).run(main)
    assert times == [1_000_000, 1_000_000]


def test_a_cancellation_at_the_end_of_a_sleep_is_not_lost() -> None:
    async def main(world: World) -> None:
        reached: list[str] = []
        with trio.move_on_after(0.010):
            await world.sleep_ms(10)
            reached.append("past the sleep")
        assert not reached

    for seed in range(5):
        World(seed).run(main)


def test_a_disk_call_that_has_started_completes_although_its_caller_is_cancelled() -> None:
    async def main(world: World) -> None:
        disk = world.node("server").disk
        done: list[int] = []
        with trio.move_on_after(1e-6) as scope:
            await disk.offload(lambda: done.append(world.now_ns))
            await trio.lowlevel.checkpoint()
            done.append(-1)
        assert scope.cancelled_caught
        assert done == [0]
        assert world.now_ns > 1_000

    World(1).run(main)


def test_waiting_for_a_condition_uses_no_trio_loop_cycle_until_the_condition_is_true() -> None:
    steps: list[str] = []

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            steps.append(task.name)

    async def main(world: World) -> None:
        looks: list[int] = []

        def is_late() -> bool:
            looks.append(world.now_ns)
            return len(looks) == 50

        trio.lowlevel.add_instrument(Steps())
        assert await world.wait_until(is_late, 1_000, 3)
        assert len(steps) <= 2
        assert world.now_ns - looks[0] == 49 * 3_000_000
        assert not await world.wait_until(lambda: False, 10, 3)
        assert world.now_ns - looks[-1] == 12_000_000

    World(1).run(main)


def test_waiting_for_a_condition_raises_the_conditions_exception_and_stops_when_cancelled() -> None:
    async def main(world: World) -> None:
        looks: list[int] = []

        def note() -> bool:
            looks.append(world.now_ns)
            return False

        with trio.move_on_after(0.01):
            await world.wait_until(note, 1_000, 3)
        count = len(looks)
        await world.sleep_ms(100)
        assert len(looks) == count
        with pytest.raises(ZeroDivisionError):
            await world.wait_until(lambda: 1 // 0 == 1, 1_000, 3)

    World(1).run(main)
