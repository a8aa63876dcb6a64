"""Turns: long work on the event loop, done in short pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import trio

from kraft.broker.serving.turns import STEP_PIECES_MAX, TURN_NS_MAX, Turns, in_steps


class Watch:
    """A clock that moves only when the test moves it."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


class Bench:
    """A Turns object whose pieces of work each take some time on a fake clock."""

    def __init__(self, piece_ns: int) -> None:
        self.clock = Watch()
        self.done: list[Any] = []
        self.tasks: list[Callable[[], Any]] = []
        self.turns = Turns(self.clock, self.tasks.append, lambda: self.done.append("over"))  # type: ignore[arg-type]
        self._piece_ns = piece_ns

    def work(self, piece: Any) -> None:
        self.done.append(piece)
        self.clock.now_ns += self._piece_ns


def test_work_that_fits_into_one_turn_is_done_when_start_returns() -> None:
    bench = Bench(TURN_NS_MAX // 10)
    bench.turns.add(bench.work, "ab")
    bench.turns.add(bench.work, "c")
    bench.turns.start()
    assert bench.done == ["a", "b", "c", "over"]
    assert bench.turns.is_idle
    assert not bench.tasks


def test_long_work_lets_other_tasks_run_between_turns_and_keeps_its_order() -> None:
    bench = Bench(TURN_NS_MAX // 2)

    async def other() -> None:
        while not bench.turns.is_idle:
            bench.done.append("other")
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        bench.turns.add(bench.work, "abc")
        bench.turns.start()
        assert bench.done == ["a", "b", "over"]
        bench.turns.add(bench.work, "defgh")
        bench.turns.start()
        assert bench.done == ["a", "b", "over"], "there is a task for it already"
        (task,) = bench.tasks
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            nursery.start_soon(other)

    trio.run(main)
    pieces = [one for one in bench.done if len(one) == 1]
    assert pieces == list("abcdefgh")
    between = bench.done[bench.done.index("c") : bench.done.index("g")]
    assert "other" in between, "whichever of the two trio runs first in a pass"


def test_work_added_within_a_turn_is_done_in_that_turn() -> None:
    bench = Bench(TURN_NS_MAX // 10)

    def add_another(piece: str) -> None:
        bench.work(piece)
        bench.turns.add(bench.work, "b")
        bench.turns.start()
        bench.work("c")

    bench.turns.add(add_another, "a")
    bench.turns.start()
    assert bench.done == ["a", "c", "b", "over"]


def test_a_turn_can_end_while_a_generator_searches_for_the_next_piece_of_work() -> None:
    bench = Bench(TURN_NS_MAX)

    def pieces() -> Iterator[str | None]:
        for _ in range(3):
            bench.clock.now_ns += TURN_NS_MAX
            yield None
        yield "a"

    bench.turns.add(bench.work, pieces())
    bench.turns.start()
    assert bench.done == ["over"], "None is no work"
    trio.run(bench.tasks.pop())
    assert bench.done[:5] == ["over", "over", "over", "a", "over"]


def test_work_added_to_turns_while_their_task_ends_is_done() -> None:
    bench = Bench(TURN_NS_MAX)

    async def other() -> None:
        while not bench.turns.is_idle:
            await trio.lowlevel.checkpoint()
        bench.turns.add(bench.work, "c")
        bench.turns.start()

    async def main() -> None:
        bench.turns.add(bench.work, "ab")
        bench.turns.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.tasks.pop())
            nursery.start_soon(other)
        while bench.tasks:  # the other piece was added after the task's end
            await bench.tasks.pop()()

    for _ in range(10):  # trio runs the two tasks in random order
        bench.done.clear()
        trio.run(main)
        assert bench.done.count("c") == 1


def test_work_added_to_turns_after_their_task_has_ended_is_done() -> None:
    bench = Bench(TURN_NS_MAX)

    async def main() -> None:
        for pieces in ("ab", "cd"):
            bench.turns.add(bench.work, pieces)
            bench.turns.start()
            await bench.tasks.pop()()

    trio.run(main)
    assert [one for one in bench.done if one != "over"] == list("abcd")


async def test_iterating_over_very_many_pieces_with_in_steps_lets_other_tasks_run() -> None:
    seen: list[int] = []
    others: list[int] = []

    async def other() -> None:
        while True:
            others.append(len(seen))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async for piece in in_steps(range(3 * STEP_PIECES_MAX)):
            seen.append(piece)
        nursery.cancel_scope.cancel()
    assert seen == list(range(3 * STEP_PIECES_MAX))
    assert {STEP_PIECES_MAX, 2 * STEP_PIECES_MAX} & set(others), "whichever of the two trio runs first"
