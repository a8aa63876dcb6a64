"""Test peers of an HttpConnection: a driver that feeds it bytes and collects its output, and a client of a simulated
listener.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from kraft.seam import Address, Chunk, CloseReason, Peer, Seam, Transport
from kraft.wire.http import HttpAnswer, HttpConnection, HttpRequest
from tests.stages.broker_harness import StillTransport

Handle = Callable[[HttpRequest], HttpAnswer]


@dataclass
class Driven:
    """An HttpConnection whose driver is controlled by the test."""

    transport: StillTransport
    connection: HttpConnection
    turns_taken: int = 0
    text: bytes = b""
    ended: list[HttpConnection] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    @staticmethod
    def of(handle: Handle, **settings: int | bool) -> Driven:
        transport = StillTransport()
        ended: list[HttpConnection] = []
        failures: list[Exception] = []
        connection = HttpConnection(
            transport,
            handle,
            now_ms=lambda: 0,
            ended=ended.append,
            failed=failures.append,
            **settings,  # type: ignore[arg-type]
        )
        return Driven(transport, connection, ended=ended, failures=failures)

    def feed(self, data: bytes, *, piece_bytes: int = 1 << 20) -> bytes:
        """Feed `data` to the connection in pieces until the connection stops reading. Return all bytes of its
        responses."""
        while data:
            space = self.connection.space()
            if not len(space):
                break
            count = min(piece_bytes, len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)
            self.drain()
        return self.text

    def send_all(self) -> None:
        while self.connection.output():
            chunk = bytes(self.connection.output()[0])  # type: ignore[arg-type]
            self.text += chunk
            self.connection.sent(len(chunk))

    def drain(self) -> None:
        """Run turns and send output until the connection has nothing more to send."""
        self.send_all()
        while self.turns_taken < self.transport.turns:
            self.turns_taken += 1
            self.connection.take_turn()
            self.send_all()


class HttpClient:
    """An implementation of kraft.seam.Connection that stores the bytes that it receives."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.text = b""
        self.ended = trio.Event()
        self._buffer = memoryview(bytearray(4096))
        self._output: deque[Chunk] = deque()

    def send(self, data: bytes) -> None:
        self._output.append(data)
        self.transport.wake()

    def space(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self.text += bytes(self._buffer[:count])

    def take_turn(self) -> None: ...

    def output(self) -> deque[Chunk]:
        return self._output

    def sent(self, count: int) -> None:
        while count:
            chunk = bytes(self._output.popleft())  # type: ignore[arg-type]
            if count < len(chunk):
                self._output.appendleft(chunk[count:])
            count -= min(count, len(chunk))

    def closed(self, reason: CloseReason) -> None:
        self.ended.set()


async def connect(seam: Seam, address: Address) -> HttpClient:
    return await seam.network.dial(Peer(None, "ADMIN", address), HttpClient, timeout_ms=1_000)


async def get(seam: Seam, address: Address, target: str, *headers: str) -> tuple[int, str]:
    """Return status and body of a page. A chunked body includes the chunk sizes."""
    client = await connect(seam, address)
    lines = (f"GET {target} HTTP/1.1", "Host: node", "Connection: close", *headers, "", "")
    client.send("\r\n".join(lines).encode())
    await client.ended.wait()
    head, _, body = client.text.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()
