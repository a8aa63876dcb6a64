"""HttpConnection without a network: its responses to given bytes, and the memory that it uses until it has sent
them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.seam import CloseReason, InvariantError
from kraft.wire.http import HttpAnswer, HttpRequest, text_answer
from tests.broker.admin.http_peer import Driven

GET = b"GET /live HTTP/1.1\r\nHost: node\r\n\r\n"


def echo(request: HttpRequest) -> HttpAnswer:
    return text_answer(200, f"{request.path} {sorted(request.query.items())}")


def body_of(text: bytes) -> bytes:
    return text.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_an_http_get_received_in_pieces_of_any_size_is_answered_once(piece_bytes: int) -> None:
    text = Driven.of(echo).feed(b"GET /a?x=1&y=%2F HTTP/1.1\r\nHost: node\r\n\r\n", piece_bytes=piece_bytes)
    assert text.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body_of(text) == b"/a [('x', '1'), ('y', '/')]\n"


@pytest.mark.parametrize("piece_bytes", [1, 1000])
def test_http_requests_on_one_connection_are_answered_in_order(piece_bytes: int) -> None:
    driven = Driven.of(echo)
    text = driven.feed(GET + GET.replace(b"live", b"ready") + GET.replace(b"live", b"info"), piece_bytes=piece_bytes)
    assert [text.count(b"HTTP/1.1 200"), text.index(b"/live") < text.index(b"/ready") < text.index(b"/info")] == [
        3,
        True,
    ]
    assert driven.transport.closed_for is None


def test_an_http_head_request_gets_the_headers_without_the_body() -> None:
    text = Driven.of(echo).feed(GET.replace(b"GET", b"HEAD"))
    assert b"Content-Length: 9\r\n" in text
    assert body_of(text) == b""


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"OPTIONS"])
def test_an_http_method_other_than_get_or_head_gets_405_and_ends_the_connection(method: bytes) -> None:
    driven = Driven.of(echo)
    text = driven.feed(method + b" /live HTTP/1.1\r\nHost: node\r\nContent-Length: 3\r\n\r\nabc")
    assert text.startswith(b"HTTP/1.1 405 ")
    assert b"Allow: GET, HEAD\r\n" in text
    assert driven.transport.closed_for is CloseReason.LOCAL


def test_an_http_get_with_a_body_gets_400_and_ends_the_connection() -> None:
    driven = Driven.of(echo)
    assert driven.feed(GET[:-2] + b"Content-Length: 3\r\n\r\nabc").startswith(b"HTTP/1.1 400 ")
    assert driven.transport.closed_for is CloseReason.LOCAL


def test_http_headers_above_the_size_limit_get_431_that_names_the_config_key() -> None:
    driven = Driven.of(echo, head_bytes_max=300)
    text = driven.feed(b"GET /live HTTP/1.1\r\nX: " + b"y" * 1000)
    assert text.startswith(b"HTTP/1.1 431 ")
    assert b"kraft.admin.head.bytes.max" in text
    assert driven.transport.closed_for is CloseReason.LOCAL


def test_bytes_that_are_not_http_get_400_and_end_the_connection() -> None:
    driven = Driven.of(echo)
    assert driven.feed(b"\x00\x00\x00\x10\x00\x12\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert driven.transport.closed_for is CloseReason.LOCAL


def test_an_http_response_in_pieces_requests_a_piece_only_after_earlier_pieces_were_sent() -> None:
    taken: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(5):
            taken.append(number)
            yield b"%d\n" % number

    driven = Driven.of(lambda request: HttpAnswer(200, pieces=pieces()))
    space = driven.connection.space()
    space[: len(GET)] = GET
    driven.connection.received(len(GET))
    assert taken == [0]
    assert driven.transport.turns == 1, "one piece, and a turn is asked for the next"
    assert not len(driven.connection.space()), "nothing is read while an answer is sent"
    driven.drain()
    assert taken == [0, 1, 2, 3, 4]
    assert driven.text.endswith(b"\r\n0\r\n\r\n")
    assert len(driven.connection.space())


def test_an_http_1_0_response_in_pieces_is_ended_by_closing_the_connection() -> None:
    driven = Driven.of(lambda request: HttpAnswer(200, pieces=iter([b"a", b"b"])))
    assert body_of(driven.feed(b"GET /metrics HTTP/1.0\r\n\r\n")) == b"ab"
    assert driven.transport.closed_for is CloseReason.LOCAL


def test_an_http_connection_that_ends_during_a_response_releases_the_response() -> None:
    driven = Driven.of(lambda request: HttpAnswer(200, pieces=iter([b"a", b"b"])))
    driven.connection.space()[: len(GET)] = GET
    driven.connection.received(len(GET))
    driven.connection.closed(CloseReason.RESET)
    driven.connection.take_turn()
    assert not driven.connection.output()
    assert driven.ended == [driven.connection]


def test_an_http_page_that_raises_gets_500_and_the_connection_serves_the_next_request() -> None:
    def handle(request: HttpRequest) -> HttpAnswer:
        if request.path == "/live":
            raise OSError("too many open files")
        return text_answer(200, "fine")

    driven = Driven.of(handle)
    text = driven.feed(GET + GET.replace(b"live", b"ready"))
    assert text.startswith(b"HTTP/1.1 500 ")
    assert text.endswith(b"fine\n")
    assert [str(failure) for failure in driven.failures] == ["too many open files"]


def test_an_http_response_that_raises_half_way_is_truncated_and_ends_the_connection() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"first"
        raise RuntimeError("dictionary changed size during iteration")

    driven = Driven.of(lambda request: HttpAnswer(200, pieces=pieces()))
    text = driven.feed(GET)
    assert b"first" in text
    assert not text.endswith(b"0\r\n\r\n"), "the client sees that the answer is not whole"
    assert driven.transport.closed_for is CloseReason.LOCAL
    assert len(driven.failures) == 1


def test_an_invariant_error_in_an_http_page_is_not_caught() -> None:
    def handle(request: HttpRequest) -> HttpAnswer:
        raise InvariantError("broken")

    with pytest.raises(InvariantError):
        Driven.of(handle).feed(GET)


def test_http_requests_that_arrive_together_are_handled_in_separate_turns() -> None:
    many = 150
    driven = Driven.of(lambda request: HttpAnswer(204))
    assert driven.feed(b"HEAD / HTTP/1.1\nHost:\n\n" * many).count(b"HTTP/1.1 204") == many
    assert driven.turns_taken >= many
