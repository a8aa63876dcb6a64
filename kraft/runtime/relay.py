"""A relay on a dialled connection: it stands between the channel and its socket, and lets bytes fare badly.

The channel goes on with one end of a pair of sockets (`Channel.splice`); two small tasks carry bytes between the other
end and the peer, each as its direction's quality says at the moment. Bytes stay in order, and few are kept on the way,
so that the sender feels a slow link. Only where a node is told to inject faults.
"""

from __future__ import annotations

import socket
import struct
from math import inf

import trio

from kraft.runtime.clock import RealRandom
from kraft.seam import LinkQuality

READ_BYTES_MAX = 4_096
"""A piece, which is late as a whole."""
PIECES_MAX = 64
"""On the way in one direction."""
SLICE_SECONDS = 0.02
"""A slow link lets through what comes in so long, at once."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Piece = tuple[float, bytes]
"""When it was read, and the bytes; none are the end."""


class _Broken(Exception):
    """As many bytes have passed as may: the connection is over."""


class _Direction:
    """What goes one way."""

    def __init__(self, source: trio.socket.SocketType, sink: trio.socket.SocketType, quality: LinkQuality) -> None:
        self._source = source
        self._sink = sink
        self._quality = quality
        self._left = quality.bytes_max
        self._changed = trio.Event()
        self._random = RealRandom()

    def change(self, quality: LinkQuality) -> None:
        if quality != self._quality:
            self._quality, self._left = quality, quality.bytes_max
            self._changed.set()
            self._changed = trio.Event()

    async def read(self, way: trio.MemorySendChannel[Piece]) -> None:
        """Take what the source sends, and when."""
        with way:
            while True:
                data = await self._source.recv(READ_BYTES_MAX)
                await way.send((trio.current_time(), data))
                if not data:
                    return

    async def write(self, way: trio.MemoryReceiveChannel[Piece]) -> None:
        """Hand it to the sink in its time, to the end."""
        async for read_at, data in way:
            await self._wait_late(read_at)
            if not data:
                return
            while data:
                part = self._next_part(data)
                data = data[len(part) :]
                await self._send(part)

    async def _wait_late(self, read_at: float) -> None:
        """Until the piece is as late as it should be, or nothing holds it any more."""
        while True:
            quality = self._quality
            late_ms = quality.latency_ms + self._random.below(quality.jitter_ms + 1)
            due = inf if quality.is_cut else read_at + late_ms / 1000
            if due <= trio.current_time():
                return
            with trio.move_on_at(due):
                await self._changed.wait()
            if quality is self._quality:
                return

    def _next_part(self, data: bytes) -> bytes:
        quality = self._quality
        if quality.bytes_per_second:
            data = data[: max(1, int(quality.bytes_per_second * SLICE_SECONDS))]
        return data[: self._left] if quality.bytes_max else data

    async def _send(self, part: bytes) -> None:
        """Send it, and wait for as long as it takes on a slow link. _Broken if nothing more may pass."""
        quality = self._quality
        if quality.bytes_max:
            self._left -= len(part)
            if not part:
                raise _Broken
        rest = memoryview(part)
        while rest:
            rest = rest[await self._sink.send(rest) :]
        if quality.bytes_per_second:
            with trio.move_on_after(len(part) / quality.bytes_per_second):
                await self._changed.wait()


class Relay:
    """Between `near`, the channel's other end, and `far`, the peer. Both are the relay's, and are closed in the end."""

    def __init__(self, near: socket.socket, far: socket.socket, sends: LinkQuality, receives: LinkQuality) -> None:
        self._far = far
        self._near = near
        ends = trio.socket.from_stdlib_socket(near), trio.socket.from_stdlib_socket(far)
        self._sends = _Direction(ends[0], ends[1], sends)
        self._receives = _Direction(ends[1], ends[0], receives)
        self._ends = ends
        self._scope = trio.CancelScope()

    def change(self, sends: LinkQuality, receives: LinkQuality) -> None:
        """From now on bytes fare so, also those that are on the way."""
        self._sends.change(sends)
        self._receives.change(receives)

    def reset(self) -> None:
        """End it, as a reset for the peer."""
        if self._far.fileno() >= 0:
            self._far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._scope.cancel()

    async def run(self) -> None:
        """Carry bytes until one side has ended."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    for direction in (self._sends, self._receives):
                        nursery.start_soon(self._carry, direction)
        finally:
            for end in self._ends:
                end.close()

    async def _carry(self, direction: _Direction) -> None:
        """One way, to its end, which is that of the other way too: nobody half-closes here."""
        into, out = trio.open_memory_channel[Piece](PIECES_MAX)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(direction.read, into)
                await direction.write(out)
        except* _Broken:
            pass
        except* OSError:
            self.reset()
        self._scope.cancel()
