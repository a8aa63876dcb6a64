"""Connections of the real driver take turns. A peer that pipelines thousands of requests delays the others by only one
turn of each connection. A peer that does not read its responses, or has gone, is not served further.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio

from kraft.runtime import RuntimeSettings, open_seam
from kraft.runtime import driver as driver_module
from kraft.seam import Address, Binding, CloseReason, Transport
from kraft.wire.api_keys import ApiKey
from kraft.wire.server import TURN_COST_MAX, Request, ServerConnection, ServerLimits
from tests.stages.fake_transport import frame

FLOODERS = 5
FLOOD = 5_000
POLITE_REQUESTS = 10


class Service:
    """A listener that answers each request with `answer` (None: never), and counts the requests per client id."""

    def __init__(self, answer: bytes | None = b"") -> None:
        self.handled: list[str] = []
        self.connections: list[ServerConnection] = []
        self.ends: list[CloseReason] = []
        self.changed = trio.Event()
        self._answer = answer

    def accept(self, transport: Transport) -> ServerConnection:
        connection = ServerConnection(transport, self.handle, limits=ServerLimits(), budget=None, on_closed=self.closed)
        self.connections.append(connection)
        return connection

    def handle(self, request: Request) -> None:
        self.handled.append(request.client_id)
        if self._answer is None:
            request.respond_nothing()
        else:
            request.respond(self._answer)
        self._tell()

    def closed(self, connection: ServerConnection, reason: CloseReason) -> None:
        self.ends.append(reason)
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed.wait()


@contextmanager
def connected(address: Address, count: int) -> Iterator[list[trio.SocketStream]]:
    with ExitStack() as stack:
        streams = []
        for _ in range(count):
            plain = stack.enter_context(socket.create_connection((address.host, address.port)))
            plain.setblocking(False)
            streams.append(trio.SocketStream(trio.socket.from_stdlib_socket(plain)))
        yield streams


def run(service: Service, body: Callable[[Address], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_seam(node_name="node", settings=RuntimeSettings()) as seam:
            bound = seam.network.serve(Binding("PLAINTEXT", Address("127.0.0.1", 0)), service.accept)
            await body(bound.address)

    trio.run(main)


def requests(client_id: bytes, count: int) -> bytes:
    return b"".join(
        frame(key=ApiKey.PRODUCE, version=7, correlation_id=number, client_id=client_id) for number in range(count)
    )


async def answer_of(stream: trio.SocketStream) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        part = await stream.receive_some()
        assert part
        data += part
    return data


def test_a_peer_with_one_request_waits_for_one_turn_of_each_flooding_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    # The time limit of a pass is over at once, so it has one read and one turn.
    monkeypatch.setattr(driver_module, "PASS_NS_MAX", -1)
    monkeypatch.setattr(driver_module, "TURNS_NS", -1)
    service = Service()
    asked_at: list[int] = []

    async def body(address: Address) -> None:
        with connected(address, FLOODERS + 1) as (polite, *flooders):
            for flooder in flooders:
                await flooder.send_all(requests(b"flooder", FLOOD))
            for number in range(POLITE_REQUESTS):
                await service.wait(lambda n=number: len(service.handled) > n * 1_000)  # type: ignore[misc]
                asked_at.append(len(service.handled))
                await polite.send_all(requests(b"polite", 1))
                await answer_of(polite)

    run(service, body)
    answered_at = [place for place, name in enumerate(service.handled) if name == "polite"]
    waited_for = [answered - asked for asked, answered in zip(asked_at, answered_at, strict=True)]
    assert max(waited_for) <= 4 * (FLOODERS + 1) * TURN_COST_MAX
    assert max(asked_at) < FLOODERS * FLOOD, "the flood was not over when the last polite request came"


def test_requests_pipelined_before_a_connection_reset_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "PASS_NS_MAX", -1)
    monkeypatch.setattr(driver_module, "TURNS_NS", -1)
    service = Service(bytes(100))

    async def body(address: Address) -> None:
        with connected(address, 1) as (flooder,):
            await flooder.send_all(requests(b"flooder", FLOOD))
            await service.wait(lambda: bool(service.handled))
            flooder.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            flooder.socket.close()
            await service.wait(lambda: bool(service.ends))

    run(service, body)
    assert service.ends == [CloseReason.RESET]
    assert len(service.handled) < FLOOD // 4


def test_acks_0_requests_that_arrived_before_a_clean_close_are_handled_after_the_close() -> None:
    service = Service(None)

    async def body(address: Address) -> None:
        with connected(address, 1) as (producer,):
            await producer.send_all(requests(b"acks=0", 1_000))
            await producer.aclose()
            await service.wait(lambda: bool(service.ends))

    run(service, body)
    assert service.ends == [CloseReason.PEER]
    assert len(service.handled) == 1_000


def test_requests_of_a_peer_that_does_not_read_its_responses_wait_until_it_reads_them() -> None:
    service = Service(bytes(100_000))

    async def body(address: Address) -> None:
        with connected(address, 2) as (deaf, polite):
            await deaf.send_all(requests(b"deaf", 400))
            handled = -1
            while handled != len(service.handled):  # nothing more is handled for the peer that does not read …
                handled = len(service.handled)
                for _ in range(5):
                    await polite.send_all(requests(b"polite", 1))
                    await answer_of(polite)
                handled += 5
            deaf_handled = service.handled.count("deaf")
            assert deaf_handled < 400
            connection = service.connections[0]
            assert connection._output_bytes <= 2 * ServerLimits().outstanding_bytes_max
            left = 400 * (4 + 4 + 100_000)
            while left:  # … until it reads
                left -= len(await deaf.receive_some())
            assert service.handled.count("deaf") == 400

    run(service, body)
