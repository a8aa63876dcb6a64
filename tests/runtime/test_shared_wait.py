"""Shared wait of trio and the driver: all work of both is done, and only the speed depends on whether they share a
wait.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from kraft.runtime import RuntimeSettings, open_seam, shared_wait
from kraft.runtime.driver import Driver
from kraft.runtime.shared_wait import SharedWait
from kraft.seam import InvariantError, Seam
from tests.runtime.test_runtime import Node
from tests.stages.recorder import Recorder, echo

SHARED = RuntimeSettings(shares_wait=True)


def run(body: Callable[[Seam], Awaitable[None]], settings: RuntimeSettings = SHARED) -> None:
    async def main() -> None:
        async with open_seam(node_name="node", settings=settings) as seam:
            await body(seam)

    trio.run(main)


def wait_of_trio() -> object:
    return trio._core._run.GLOBAL_RUN_CONTEXT.runner.io_manager._epoll  # type: ignore[attr-defined]


def test_the_pinned_trio_release_supports_shared_wait() -> None:
    async def body(seam: Seam) -> None:
        await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(wait_of_trio(), SharedWait)

    run(body)


def test_a_seam_restores_trios_original_wait_at_its_end() -> None:
    async def main() -> None:
        async with open_seam(node_name="node", settings=SHARED):
            await trio.testing.wait_all_tasks_blocked()
        assert isinstance(wait_of_trio(), select.epoll)
        with trio.move_on_after(0.001) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught

    trio.run(main)


def test_only_the_first_of_two_seams_shares_trios_wait_and_both_work() -> None:
    async def body(seam: Seam) -> None:
        await trio.testing.wait_all_tasks_blocked()
        async with open_seam(node_name="other", settings=SHARED) as other:
            near = await Node(other).dial()
            assert await near.wait_heard(1) == b"?"
            near = await Node(seam).dial()
            assert await near.wait_heard(1) == b"?"

    run(body)


def test_the_driver_runs_as_a_task_if_trio_lacks_the_attributes_for_shared_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_wait, "trio", object())

    async def body(seam: Seam) -> None:
        near = await Node(seam).dial()
        assert await near.wait_heard(1) == b"?"
        assert isinstance(wait_of_trio(), select.epoll)

    run(body)


def test_trio_timers_tasks_and_threads_run_while_connections_are_always_busy() -> None:
    async def body(seam: Seam) -> None:
        near = await Node(seam).dial()
        near.on_heard = echo  # each byte is sent back and forth forever
        near.say(b"!" * 1000)
        passes = seam.network.stats.passes
        while seam.network.stats.passes <= passes + 10:  # noqa: ASYNC110 - the driver notifies nobody
            await trio.sleep(0.001)
        assert await trio.to_thread.run_sync(threading.get_ident) != threading.get_ident()
        woken = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(woken.wait)
            woken.set()

    run(body)


def test_a_task_woken_by_a_connection_runs_under_shared_wait() -> None:
    async def body(seam: Seam) -> None:
        node = Node(seam)
        near = await node.dial()
        heard = trio.Event()

        def on_heard(recorder: Recorder) -> None:
            heard.set()

        near.on_heard = on_heard
        near.say(b"!")
        await heard.wait()

    run(body)


def test_a_failing_pass_ends_the_seam_with_its_exception() -> None:
    async def body(seam: Seam) -> None:
        def fail() -> None:
            raise InvariantError("a broken rule")

        seam.network.at_end_of_pass(fail)
        seam.network.request_pass()
        await trio.sleep_forever()

    with pytest.raises(InvariantError, match="a broken rule"):
        run(body)


def test_requested_driver_pass_runs_although_no_descriptor_is_ready() -> None:
    async def body(seam: Seam) -> None:
        passed = trio.Event()
        seam.network.at_end_of_pass(passed.set)
        await trio.testing.wait_all_tasks_blocked()
        seam.network.request_pass()
        await passed.wait()

    run(body)


def test_a_failed_install_of_shared_wait_leaves_trio_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        before = wait_of_trio()
        monkeypatch.setattr(trio._core._run, "GLOBAL_RUN_CONTEXT", object())  # type: ignore[attr-defined]
        driver = Driver("node", cold_limiter=trio.CapacityLimiter(1), sweep_interval_ms=1000)
        assert SharedWait.install(driver, select.epoll()) is None
        monkeypatch.undo()
        assert wait_of_trio() is before
        driver.close()

    trio.run(main)


@pytest.mark.parametrize("settings", [SHARED, RuntimeSettings()], ids=["shared", "alone"])
def test_the_time_that_the_driver_waits_for_events_is_counted(settings: RuntimeSettings) -> None:
    async def body(seam: Seam) -> None:
        await trio.testing.wait_all_tasks_blocked()
        clock, stats = seam.clock, seam.network.stats
        began_ns = clock.monotonic_ns()
        await clock.sleep_ms(1)  # ends the wait that began before `began_ns`
        before_ns = stats.waited_ns
        for _ in range(3):
            await clock.sleep_ms(5)
            seam.network.request_pass()
            await trio.lowlevel.checkpoint()
        await clock.sleep_ms(1)  # ends the last wait
        waited_ns, passed_ns = stats.waited_ns - before_ns, clock.monotonic_ns() - began_ns
        assert 10_000_000 < waited_ns <= passed_ns

    run(body, settings)
