"""The garbage collection policy of a node's process."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from kraft.runtime.garbage import WORK_NS_CALM, WORK_NS_MAX, YOUNG_MAX, GarbagePolicy, young_count


class Cycle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def policy() -> Iterator[GarbagePolicy]:
    made = GarbagePolicy()
    made.start()
    yield made
    made.stop()


def test_garbage_policy_excludes_survivors_from_later_collections(policy: GarbagePolicy) -> None:
    kept = [[number] for number in range(1000)]
    before = gc.get_freeze_count()
    gc.collect(1)
    assert gc.get_freeze_count() >= before + len(kept)
    assert not any(one is kept for one in gc.get_objects())


def test_garbage_policy_frees_young_cycles_early_and_old_cycles_in_a_full_collection(policy: GarbagePolicy) -> None:
    young = weakref.ref(Cycle())
    gc.collect(1)
    assert young() is None
    knot = Cycle()
    old = weakref.ref(knot)
    gc.collect(1)
    del knot
    gc.collect()
    assert old() is not None, "it is frozen"
    policy.collect_all()
    assert old() is None


def test_garbage_policy_collects_many_young_objects_that_python_does_not_notice(
    policy: GarbagePolicy,
) -> None:
    states = [[number] for number in range(10 * YOUNG_MAX)]
    gc.collect(1)
    for number in range(len(states)):
        states[number] = [number]
    assert young() > 9 * YOUNG_MAX, "one was freed for each that was made"
    policy.worked(WORK_NS_MAX - 1)
    assert young() > 9 * YOUNG_MAX
    policy.worked(1)
    assert young() < YOUNG_MAX


def test_garbage_policy_does_not_collect_few_young_objects(policy: GarbagePolicy) -> None:
    gc.collect(1)
    knot = Cycle()
    passing = weakref.ref(knot)
    policy.worked(10 * WORK_NS_MAX)
    del knot
    gc.collect(1)
    assert passing() is None, "it was not frozen"


def test_garbage_policy_counts_young_objects_less_often_while_they_do_not_grow(
    policy: GarbagePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0
    ask = gc.get_objects

    def get_objects(generation: int) -> list[object]:
        nonlocal counted
        counted += generation == 0
        return ask(generation)

    monkeypatch.setattr(gc, "get_objects", get_objects)
    gc.collect(1)
    pieces = 8
    for _ in range(pieces * WORK_NS_CALM // WORK_NS_MAX):
        policy.worked(WORK_NS_MAX)
    assert pieces <= counted <= pieces + 1
    grown = [[number] for number in range(YOUNG_MAX // 2)]
    policy.worked(WORK_NS_CALM)
    before = counted
    policy.worked(WORK_NS_MAX)
    assert counted == before + 1, "they had grown"
    assert grown


def young() -> int:
    return len(gc.get_objects(0)) + len(gc.get_objects(1))


def test_garbage_policy_counts_work_of_trio_turns_but_not_waiting(
    policy: GarbagePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses a clock that only the tasks and the wait advance: the counted work is the tasks' part."""
    now_ns = 0
    held: list[int] = []
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    monkeypatch.setattr(policy, "worked", held.append)

    async def work(ns: int) -> None:
        nonlocal now_ns
        now_ns += ns

    class Waits(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            nonlocal now_ns
            now_ns += 1_000_000

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(policy.run)
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(Waits())  # after the policy's own
            held.clear()
            nursery.start_soon(work, 300)
            nursery.start_soon(work, 40)
            await trio.testing.wait_all_tasks_blocked()
            assert [held_ns for held_ns in held if held_ns] == [340]
            nursery.cancel_scope.cancel()

    trio.run(main)
    ended = len(held)
    trio.run(trio.lowlevel.checkpoint)
    assert len(held) == ended


def test_counting_the_young_objects_does_not_disturb_a_thread_that_builds_tuples() -> None:
    failures: list[SystemError] = []
    is_over = threading.Event()

    def build() -> None:
        while not is_over.is_set():
            try:
                tuple(number for number in range(200))
            except SystemError as failure:
                failures.append(failure)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=build)
    thread.start()
    try:
        for _ in range(20_000):
            young_count()
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval_s)
    assert failures == []
