"""Relay on a dialled connection: it is between the channel and its socket, and degrades the stream.

The channel continues with one end of a socket pair (`Channel.splice`). Two small tasks carry bytes between the other
end and the peer, according to the current quality of their direction. The order is kept, and few bytes are buffered, so
that the sender notices a slow link. Only used where faults are injected.
"""

from __future__ import annotations

import socket
import struct
from math import inf

import trio

from kraft.runtime.clock import RealRandom
from kraft.seam import LinkQuality

READ_BYTES_MAX = 4_096
"""Maximum size of a piece, which is delayed as a whole."""
PIECES_MAX = 64
"""Maximum pieces in flight in one direction."""
SLICE_SECONDS = 0.02
"""Seconds per slice: a link with limited bandwidth passes the bytes of one slice at once."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Piece = tuple[float, bytes]
"""(bytes that were read at once, time of the read). Empty bytes mark the end of the stream."""


class _Broken(Exception):
    """Raised when the maximum number of bytes has passed, so that the connection ends."""


class _RelayDirection:
    """One direction of a relay."""

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
        """Read pieces from the source, and note their times."""
        with way:
            while True:
                data = await self._source.recv(READ_BYTES_MAX)
                await way.send((trio.current_time(), data))
                if not data:
                    return

    async def write(self, way: trio.MemoryReceiveChannel[Piece]) -> None:
        """Write the pieces to the sink with their delays, until the stream ends."""
        async for read_at, data in way:
            await self._wait_late(read_at)
            if not data:
                return
            while data:
                part = self._next_part(data)
                data = data[len(part) :]
                await self._send(part)

    async def _wait_late(self, read_at: float) -> None:
        """Wait until the piece's delay is over and no cut or limit of the link blocks it."""
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
        """Send the piece, taking as long as a slow link does. Raises _Broken if nothing more may pass."""
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
    """Relay between `near`, the channel's end of the socket pair, and `far`, the peer's socket. The relay owns both,
    and closes them at the end."""

    def __init__(self, near: socket.socket, far: socket.socket, sends: LinkQuality, receives: LinkQuality) -> None:
        self._far = far
        self._near = near
        ends = trio.socket.from_stdlib_socket(near), trio.socket.from_stdlib_socket(far)
        self._sends = _RelayDirection(ends[0], ends[1], sends)
        self._receives = _RelayDirection(ends[1], ends[0], receives)
        self._ends = ends
        self._scope = trio.CancelScope()

    def change(self, sends: LinkQuality, receives: LinkQuality) -> None:
        """Set new qualities, which apply also to bytes already in flight."""
        self._sends.change(sends)
        self._receives.change(receives)

    def reset(self) -> None:
        """End the relay with a reset for the peer."""
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

    async def _carry(self, direction: _RelayDirection) -> None:
        """Carry the bytes of one direction until it ends, and then end the other direction: half-closed connections are
        not used here."""
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
