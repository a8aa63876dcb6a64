"""Turns: long work on the loop in short pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import trio

from kraft.broker.serving.turns import STEP_PIECES_MAX, TURN_NS_MAX, Turns, in_steps


class Watch:
    """A clock that moves when it is told."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


class Bench:
    """Turns whose pieces take a while each."""

    def __init__(self, piece_ns: int) -> None:
        self.clock = Watch()
        self.done: list[Any] = []
        self.tasks: list[Callable[[], Any]] = []
        self.turns = Turns(self.clock, self.tasks.append, lambda: self.done.append("over"))  # type: ignore[arg-type]
        self._piece_ns = piece_ns

    def work(self, piece: Any) -> None:
        self.done.append(piece)
        self.clock.now_ns += self._piece_ns


def test_what_fits_into_one_turn_is_done_when_start_returns() -> None:
    bench = Bench(TURN_NS_MAX // 10)
    bench.turns.add(bench.work, "ab")
    bench.turns.add(bench.work, "c")
    bench.turns.start()
    assert bench.done == ["a", "b", "c", "over"]
    assert bench.turns.is_idle
    assert not bench.tasks


def test_long_work_lets_others_run_between_turns_and_keeps_its_order() -> None:
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


def test_work_that_is_added_within_a_turn_follows_in_that_turn() -> None:
    bench = Bench(TURN_NS_MAX // 10)

    def add_another(piece: str) -> None:
        bench.work(piece)
        bench.turns.add(bench.work, "b")
        bench.turns.start()
        bench.work("c")

    bench.turns.add(add_another, "a")
    bench.turns.start()
    assert bench.done == ["a", "c", "b", "over"]


def test_a_turn_may_end_where_the_next_piece_is_looked_for() -> None:
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


def test_work_that_comes_while_the_task_ends_is_done_too() -> None:
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
        while bench.tasks:  # the other was later than the task's end
            await bench.tasks.pop()()

    for _ in range(10):  # trio shuffles the two
        bench.done.clear()
        trio.run(main)
        assert bench.done.count("c") == 1


def test_work_that_comes_after_the_task_has_ended_is_done_too() -> None:
    bench = Bench(TURN_NS_MAX)

    async def main() -> None:
        for pieces in ("ab", "cd"):
            bench.turns.add(bench.work, pieces)
            bench.turns.start()
            await bench.tasks.pop()()

    trio.run(main)
    assert [one for one in bench.done if one != "over"] == list("abcd")


async def test_a_walk_over_very_many_lets_others_run() -> None:
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
