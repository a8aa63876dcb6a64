from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import CloseReason
from kraft.wire.client import ClientConnection, ClientLimits
from kraft.wire.rpc import InternalKey
from kraft.wire.server import Request, ServerConnection, ServerLimits
from tests.stages.fake_transport import RecordingTransport, drain, feed, pipe


class Client:
    def __init__(self, limits: ClientLimits | None = None) -> None:
        self.transport = RecordingTransport()
        self.ends: list[CloseReason] = []
        self.replies: list[bytes | None] = []
        self.connection = ClientConnection(
            self.transport,
            client_id="me",
            on_closed=lambda _, reason: self.ends.append(reason),
            limits=limits or ClientLimits(),
        )

    def reply(self, body: memoryview | None) -> None:
        if body is not None:
            assert body.readonly
        self.replies.append(None if body is None else bytes(body))

    def send(self, body: bytes = b"", *, key: int = 3, version: int = 1) -> int:
        return self.connection.send(key, version, [body], self.reply)


def answer(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


KINDS = st.sampled_from([(3, 1), (3, 9), (18, 3), (18, 0), (int(InternalKey.VOTE), 0)])


@given(st.lists(st.tuples(KINDS, st.binary(max_size=70_000)), max_size=6), st.integers(1, 80_000))
def test_client_and_server_connections_exchange_requests_and_responses(
    requests: list[tuple[tuple[int, int], bytes]], piece_bytes: int
) -> None:
    client = Client()
    seen = []

    def echo(request: Request) -> None:
        seen.append((request.api_key, request.api_version, request.client_id, bytes(request.body)))
        request.respond(bytes(request.body))

    server = ServerConnection(
        RecordingTransport(), echo, limits=ServerLimits(outstanding_bytes_max=1 << 30), budget=None
    )
    for (key, version), body in requests:
        client.send(body, key=key, version=version)
    pipe(client.connection, server, piece_bytes=piece_bytes)
    assert seen == [(key, version, "me", body) for (key, version), body in requests]
    assert client.replies == [body for _, body in requests]
    assert client.connection.in_flight == 0


@pytest.mark.parametrize("piece_bytes", [None, 1, 5])
def test_client_reads_responses_whole_byte_by_byte_and_several_at_once(piece_bytes: int | None) -> None:
    client = Client()
    first, second = client.send(), client.send()
    feed(client.connection, answer(first, b"one") + answer(second, b"two")[:-1], piece_bytes=piece_bytes)
    assert client.replies == [b"one"]
    feed(client.connection, b"o", piece_bytes=piece_bytes)
    assert client.replies == [b"one", b"two"]


def test_client_requests_are_pipelined_and_wake_the_driver() -> None:
    client = Client()
    assert [client.send(), client.send()] == [0, 1]
    assert client.connection.in_flight == 2
    assert client.transport.wakes == 2


def test_a_request_without_a_response_is_not_in_flight() -> None:
    client = Client()
    client.connection.send(0, 7, [b"acks", b"=0"], None)
    assert client.connection.in_flight == 0
    assert drain(client.connection).endswith(b"acks=0")


def test_a_response_with_a_wrong_correlation_id_closes_the_connection() -> None:
    client = Client()
    client.send()
    feed(client.connection, answer(9, b""))
    assert client.transport.closes == [(CloseReason.BAD_BYTES, False)]
    assert client.connection.closed_because == "an answer to request 9 came, expected one to request 0"
    client.connection.closed(CloseReason.BAD_BYTES)
    assert client.replies == [None]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (answer(0, b""), "no request waits"),
        (struct.pack(">i", 3) + bytes(10), "cannot hold a response header"),
        (struct.pack(">i", -1) + bytes(10), "announces -1 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP answer"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS alert"),
    ],
)
def test_response_bytes_that_do_not_parse_close_the_client_connection(data: bytes, reason: str) -> None:
    client = Client(ClientLimits(frame_bytes_max=100 << 20))
    feed(client.connection, data)
    assert client.transport.closes == [(CloseReason.BAD_BYTES, False)]
    assert reason in (client.connection.closed_because or "")


def test_tagged_fields_in_a_response_header_are_skipped_and_checked() -> None:
    client = Client()
    client.send(version=9)
    feed(client.connection, answer(0, b"\1\5\2zzbody"))
    assert client.replies == [b"body"]
    client.send(version=9)
    feed(client.connection, answer(1, b"\1\5\x7fzz"))
    assert client.connection.is_closed


def test_end_of_connection_is_reported_once_to_pending_and_at_once_to_later_requests() -> None:
    client = Client()
    client.send()
    client.send()
    client.connection.closed(CloseReason.PEER)
    assert client.replies == [None, None]
    assert client.ends == [CloseReason.PEER]
    client.send()
    client.connection.send(0, 7, [b""], None)
    assert client.replies == [None, None, None]


def test_closed_client_connection_accepts_no_more_responses() -> None:
    client = Client()
    client.send()
    client.connection.close("the metadata moved on")
    assert client.transport.closes == [(CloseReason.LOCAL, False)]
    assert feed(client.connection, answer(0, b"late")) == 0
    assert client.replies == []


def test_response_callback_may_send_the_next_request() -> None:
    client = Client()

    def again(body: memoryview | None) -> None:
        client.send(b"next")

    client.connection.send(3, 1, [b"first"], again)
    drain(client.connection)
    feed(client.connection, answer(0, b""))
    assert client.connection.in_flight == 1


def test_response_callback_that_closes_the_connection_stops_later_responses() -> None:
    client = Client()
    client.connection.send(3, 1, [b""], lambda _: client.connection.close("enough"))
    client.send()
    feed(client.connection, answer(0, b"") + answer(1, b""))
    assert client.replies == []


@given(st.binary(max_size=60), st.integers(1, 10))
def test_client_connection_that_receives_random_bytes_never_raises(data: bytes, piece_bytes: int) -> None:
    client = Client()
    client.send()
    client.send(version=9)
    feed(client.connection, data, piece_bytes=piece_bytes)
