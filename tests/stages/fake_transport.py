"""A transport that records its calls, a file in memory, and helpers that build and feed frames."""

from __future__ import annotations

import struct

from kraft.seam import Buffer, Chunk, CloseReason, FileRange
from kraft.wire.client import ClientConnection
from kraft.wire.framing import FramedConnection
from kraft.wire.server import ServerConnection


class RecordingTransport:
    listener = "PLAINTEXT"
    peer_host = "127.0.0.1"
    peer_principal = None
    heard_ns = 0

    def __init__(self) -> None:
        self.wakes = 0
        self.turns = 0
        self.closes: list[tuple[CloseReason, bool]] = []

    def wake(self) -> None:
        self.wakes += 1

    def wait_turn(self) -> None:
        self.turns += 1

    def close(self, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        self.closes.append((reason, flush))


class MemoryFile:
    """A kraft.seam.File in memory. If `cached` is False, reads report that they would wait for the disk."""

    path = "/memory"
    closed = False

    def __init__(self, data: bytes, *, cached: bool = True) -> None:
        self.data = bytearray(data)
        self.cached = cached

    @property
    def size(self) -> int:
        return len(self.data)

    def append(self, *buffers: Buffer) -> None:
        for buffer in buffers:
            self.data += buffer

    def truncate(self, size: int) -> None:
        del self.data[size:]

    def read_cached(self, position: int, count: int) -> bytes | None:
        return bytes(self.data[position : position + count]) if self.cached else None

    def read(self, position: int, count: int) -> bytes:
        return bytes(self.data[position : position + count])

    def sync_blocking(self) -> None: ...

    def close(self) -> None: ...


def frame(
    body: bytes = b"", *, key: int = 3, version: int = 1, correlation_id: int = 1, client_id: bytes | None = b"test"
) -> bytes:
    """Return a complete request frame with a header of version 1."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    rest = struct.pack(">hhi", key, version, correlation_id) + name + body
    return struct.pack(">i", len(rest)) + rest


def feed(connection: FramedConnection, data: Buffer, *, piece_bytes: int | None = None) -> int:
    """Pass `data` to the connection like a driver, and stop when the connection does not read. Return the number of
    bytes that it accepted."""
    view = memoryview(data)
    taken = 0
    while taken < len(view):
        take_turns(connection)
        space = connection.space()
        if not len(space):
            break
        count = min(len(space), len(view) - taken, piece_bytes or len(view))
        space[:count] = view[taken : taken + count]
        connection.received(count)
        taken += count
    take_turns(connection)
    return taken


def take_turns(connection: FramedConnection) -> None:
    """Let the connection process all requests that it has, like a driver with a single connection."""
    transport = connection.transport
    while isinstance(transport, RecordingTransport) and transport.turns:
        transport.turns -= 1
        connection.take_turn()


def chunk_bytes(chunk: Chunk) -> bytes:
    if isinstance(chunk, FileRange):
        return chunk.file.read(chunk.position, chunk.count)
    return bytes(chunk)


def drain(connection: FramedConnection, *, count_max: int = 1 << 60) -> bytes:
    """Send the queued output, at most `count_max` bytes at a time, and return the bytes."""
    data = b"".join(chunk_bytes(chunk) for chunk in connection.output())[:count_max]
    connection.sent(len(data))
    return data


def frames_in(data: bytes) -> list[bytes]:
    """Return the contents of the frames in these bytes, without the size fields."""
    frames = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        frames.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    assert position == len(data)
    return frames


def pipe(client: ClientConnection, server: ServerConnection, *, piece_bytes: int | None = None) -> None:
    """Carry bytes between the two connections until neither has bytes to send."""
    while True:
        requests = drain(client)
        assert feed(server, requests, piece_bytes=piece_bytes) == len(requests)
        answers = drain(server)
        assert feed(client, answers, piece_bytes=piece_bytes) == len(answers)
        if not requests and not answers:
            return
