"""Turns: work of many small pieces, done on the loop in their order, a few milliseconds at a time.

Work that fits into one turn is done at once, so small work is over when `start` returns. Other work runs between two
turns. Source: docs/decisions/19-blank-replicas.md, docs/decisions/26-long-requests.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import trio

from kraft.seam import Clock

T = TypeVar("T")

Steps = Generator[None, None, None]
"""Work that ends a step, of some milliseconds at most, at each `yield`."""

TURN_NS_MAX = 5_000_000
"""How long others wait for a turn's end, but for the piece that is under way."""
STEP_PIECES_MAX = 5_000


class Turns:
    """A queue of pieces. `after_turn` is called at the end of each turn in which something was done."""

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
        """Do `work` for each of `pieces`, after what was added before. The pieces are taken one by one. None is no
        work: whoever looks for long for the next piece lets a turn end there."""
        self._queue.append((work, iter(pieces)))

    def start(self) -> None:
        """Take a turn now; a task takes the others, if any are left. No effect inside of a turn."""
        if not (self._is_running or self._is_in_turn) and self._take():
            self._is_running = True
            self._start_task(self._go_on)

    async def finish(self) -> None:
        """Suspend until everything is done."""
        while self._take():
            await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    async def _go_on(self) -> None:
        try:
            while self._queue:  # also what came while the last checkpoint let others run
                await self.finish()
        finally:
            self._is_running = False

    def _take(self) -> bool:
        """One turn. True if something is left."""
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
    """Each of `pieces`, with a checkpoint behind every STEP_PIECES_MAX: for work of which thousands take no turn's
    time."""
    for number, piece in enumerate(pieces, 1):
        yield piece
        if not number % STEP_PIECES_MAX:
            await trio.lowlevel.checkpoint()
