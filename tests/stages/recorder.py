"""A connection for tests. It records the data that it receives and sends the data that the test gives it. A test can
wait for either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from kraft.seam import Chunk, CloseReason, FileRange, Transport


class Recorder:
    """A kraft.seam.Connection for tests. `room` is the size of its receive space; `muted` makes this space empty."""

    def __init__(self, transport: Transport, *, room: int = 65536) -> None:
        self.transport = transport
        self.heard = bytearray()
        self.reads: list[int] = []
        self.reasons: list[CloseReason] = []
        self.sent_bytes = 0
        self.muted = False
        self.on_heard: Callable[[Recorder], None] | None = None
        self.on_turn: Callable[[Recorder], None] | None = None
        self._space = bytearray(room)
        self._output: deque[Chunk] = deque()
        self._changed = trio.Event()

    # kraft.seam.Connection

    def space(self) -> memoryview:
        return memoryview(self._space)[: 0 if self.muted else len(self._space)]

    def received(self, count: int) -> None:
        self.heard += self._space[:count]
        self.reads.append(count)
        if self.on_heard is not None:
            self.on_heard(self)
        self._notify()

    def take_turn(self) -> None:
        if self.on_turn is not None:
            self.on_turn(self)
        self._notify()

    def output(self) -> deque[Chunk]:
        return self._output

    def sent(self, count: int) -> None:
        self.sent_bytes += count
        while count:
            first = self._output[0]
            size = first.count if isinstance(first, FileRange) else len(first)
            if size <= count:
                self._output.popleft()
                count -= size
                continue
            if isinstance(first, FileRange):
                self._output[0] = FileRange(first.file, first.position + count, first.count - count)
            else:
                self._output[0] = memoryview(first)[count:]
            count = 0
        self._notify()

    def closed(self, reason: CloseReason) -> None:
        self.reasons.append(reason)
        self._notify()

    # methods for tests

    def say(self, *chunks: Chunk) -> None:
        self._output.extend(chunks)
        self.transport.wake()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_heard(self, count: int) -> bytes:
        while len(self.heard) < count:
            await self._changed.wait()
        return bytes(self.heard)

    async def wait_closed(self) -> CloseReason:
        while not self.reasons:
            await self._changed.wait()
        return self.reasons[0]

    async def wait_sent(self, count: int) -> None:
        while self.sent_bytes < count:
            await self._changed.wait()


def echo(connection: Recorder) -> None:
    """Send received data back."""
    connection.output().append(bytes(connection.heard[-connection.reads[-1] :]))
