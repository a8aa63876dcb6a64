"""Turns: work of many small pieces, done on the event loop in order, a few milliseconds at a time.

Work that fits into one turn is done at once, so a small amount of work is complete when `start` returns. Other tasks
run between two turns. Source: docs/decisions/19-blank-replicas.md, docs/decisions/26-long-requests.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import trio

from kraft.seam import Clock

T = TypeVar("T")

Steps = Generator[None, None, None]
"""Iterator that does work in steps: each `yield` ends a step, which takes some milliseconds at most."""

TURN_NS_MAX = 5_000_000
"""Maximum nanoseconds of a turn, without the piece that exceeds them. Other tasks wait at most this long, plus that
piece."""
STEP_PIECES_MAX = 5_000


class Turns:
    """A queue of pieces of work. `after_turn` is called at the end of each turn that did work."""

    def __init__(self, clock: Clock, start_task: Callable[..., None], after_turn: Callable[[], None]) -> None:
        self._clock = clock
        self._start_task = start_task
        self._after_turn = after_turn
        self._queue: deque[tuple[Callable[[Any], None], Iterator[Any]]] = deque()
        self._is_running = False
        self._is_in_turn = False

    @property
    def is_idle(self) -> bool:
        return not self._queue

    def add(self, work: Callable[[T], None], pieces: Iterable[T | None]) -> None:
        """Do `work` for each of `pieces`, after the pieces added before. Pieces are taken from the iterator one by one.
        A piece that is None needs no work: a generator that searches long for its next piece yields None so that the
        turn can end."""
        self._queue.append((work, iter(pieces)))

    def start(self) -> None:
        """Run one turn now. If pieces remain, a task runs further turns. No effect when called inside a turn."""
        if not (self._is_running or self._is_in_turn) and self._take():
            self._is_running = True
            self._start_task(self._take_next_turns)

    async def finish(self) -> None:
        """Suspend until all pieces are done."""
        while self._take():
            await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    async def _take_next_turns(self) -> None:
        try:
            while self._queue:  # including pieces that other tasks added during the last checkpoint
                await self.finish()
        finally:
            self._is_running = False

    def _take(self) -> bool:
        """Run one turn. Return True if pieces remain."""
        if not self._queue:
            return False
        self._is_in_turn = True
        try:
            self._work()
        finally:
            self._is_in_turn = False
        self._after_turn()
        return bool(self._queue)

    def _work(self) -> None:
        queue, clock = self._queue, self._clock
        end_ns = clock.monotonic_ns() + TURN_NS_MAX
        is_over = False
        while queue and not is_over:
            work, pieces = queue[0]
            for piece in pieces:
                if piece is not None:
                    work(piece)
                is_over = clock.monotonic_ns() >= end_ns
                if is_over:
                    break
            else:
                queue.popleft()


async def in_steps(pieces: Iterable[T]) -> AsyncIterator[T]:
    """Yield each of `pieces`, with a checkpoint after every STEP_PIECES_MAX pieces. For work so small that even
    thousands of pieces take less than a turn."""
    for number, piece in enumerate(pieces, 1):
        yield piece
        if not number % STEP_PIECES_MAX:
            await trio.lowlevel.checkpoint()
