"""HttpConnection: the server's side of an HTTP/1.1 connection, for small pages and long texts.

Invariants:
- One request at a time: nothing is read while a response is being sent.
- A body is taken from its iterator one piece per turn, and only after the earlier pieces have been sent. A long text
  therefore neither blocks the loop nor fills memory when a peer does not read.
- Only GET and HEAD are answered; a request with a body ends the connection after its response.
- A request head longer than `head_bytes_max` is answered with 431, and bytes that are not HTTP with 400. Both end the
  connection.
- An error in a page closes its connection and has no other effect. The error is passed to `failed`. A response that has
  begun is cut short, which a client notices. A violated invariant is raised.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import parse_qsl

import h11

from kraft.seam import Chunk, CloseReason, InvariantError, Transport
from kraft.wire.framing import EMPTY

READ_BYTES = 4096
HEAD_BYTES_MAX = 8192
METHODS = frozenset({"GET", "HEAD"})
QUERY_FIELDS_MAX = 16
TEXT = "text/plain; charset=utf-8"
_EXTRA: Mapping[int, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        HTTPStatus.METHOD_NOT_ALLOWED: (("Allow", "GET, HEAD"),),
        HTTPStatus.UNAUTHORIZED: (("WWW-Authenticate", "Bearer"),),
    }
)
"""Status → extra headers of a response with this status."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. If a field of the query occurs twice, the last one applies. `authorization`: the header of that
    name."""

    path: str
    query: dict[str, str]
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response. `pieces` are sent one by one, each when the one before has been sent."""

    status: int
    content_type: str = TEXT
    pieces: Iterable[bytes] = ()


def text_answer(status: int, text: str) -> HttpAnswer:
    """Return a response with one line of text for people."""
    return HttpAnswer(status, TEXT, (text.encode() + b"\n",))


class HttpConnection:
    """An HTTP connection. Implements kraft.seam.Connection.

    `handle` returns the response to a GET. `ended` is called once, when the connection is over. `failed` gets the error
    of a page. `now_ms` is the clock for `moved_ms`. Without `keeps_alive` the connection ends after one response."""

    def __init__(
        self,
        transport: Transport,
        handle: Callable[[HttpRequest], HttpAnswer],
        *,
        now_ms: Callable[[], int],
        ended: Callable[[HttpConnection], None],
        failed: Callable[[Exception], None],
        head_bytes_max: int = HEAD_BYTES_MAX,
        keeps_alive: bool = True,
    ) -> None:
        self.transport = transport
        self.moved_ms = now_ms()
        """Time of the latest of: connection made, whole request received, bytes sent."""
        self._handle = handle
        self._now_ms = now_ms
        self._ended = ended
        self._failed = failed
        self._head_bytes_max = head_bytes_max
        self._keeps_alive = keeps_alive
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=head_bytes_max)
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._output: deque[Chunk] = deque()
        self._pieces: Iterator[bytes] | None = None
        self._is_closing = False

    # kraft.seam.Connection

    def space(self) -> memoryview:
        return EMPTY if self._is_closing or self._pieces is not None or self._output else self._buffer

    def received(self, count: int) -> None:
        self._http.receive_data(bytes(self._buffer[:count]))
        self._next_request()

    def take_turn(self) -> None:
        """Send the next piece of the response, or end the response. Between two responses, check for a request that
        arrived together with the previous one."""
        if self._is_closing:
            return
        if self._pieces is None:
            self._next_request()
            return
        try:
            piece = next(self._pieces, None)
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - a page must not end the node
            self._failed(error)
            self._pieces = None
            self._close()
            return
        if piece is None:
            self._pieces = None
            self._finish()
        else:
            self._send(h11.Data(data=piece))
            self.transport.wait_turn()

    def output(self) -> deque[Chunk]:
        return self._output

    def sent(self, count: int) -> None:
        self.moved_ms = self._now_ms()
        while count:
            chunk = memoryview(self._output[0])  # type: ignore[arg-type]  # it holds bytes alone
            if count < len(chunk):
                self._output[0] = chunk[count:]
                return
            count -= len(chunk)
            self._output.popleft()

    def closed(self, reason: CloseReason) -> None:
        self._is_closing = True
        self._pieces = None
        self._output.clear()
        self._ended(self)

    # requests

    def _next_request(self) -> None:
        try:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._answer(event)
            elif isinstance(event, h11.ConnectionClosed):
                self._close()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)

    def _refuse(self, status: int) -> None:
        """Answer bytes that are not a valid request, if a response can still be sent, and end the connection."""
        text = "this is no HTTP request"
        if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            text = f"the head of a request may have {self._head_bytes_max} bytes (kraft.admin.head.bytes.max)"
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = text.encode() + b"\n"
            self._send(_head(status, TEXT, ("Content-Length", str(len(body))), ("Connection", "close")))
            self._send(h11.Data(data=body))
        self._close()

    def _answer(self, request: h11.Request) -> None:
        self.moved_ms = self._now_ms()
        method = request.method.decode("ascii")
        has_body = self._has_body(request)
        if method not in METHODS:
            answer = text_answer(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not served here; GET and HEAD are")
        elif has_body:
            answer = text_answer(HTTPStatus.BAD_REQUEST, "send no body with GET or HEAD")
        else:
            answer = self._found(request)
        extra = list(_EXTRA.get(answer.status, ()))
        if has_body or method not in METHODS or not self._keeps_alive:
            extra.append(("Connection", "close"))
        self._send(_head(answer.status, answer.content_type, *self._length_of(answer), *extra))
        self._pieces = iter(() if method == "HEAD" else answer.pieces)
        self.take_turn()

    def _found(self, request: h11.Request) -> HttpAnswer:
        path, _, query = request.target.decode("ascii").partition("?")
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX))
        except ValueError:
            return text_answer(HTTPStatus.BAD_REQUEST, f"a query may have {QUERY_FIELDS_MAX} fields")
        authorization = dict(request.headers).get(b"authorization", b"").decode("latin-1")
        try:
            return self._handle(HttpRequest(path, fields, authorization))
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - a page must not end the node
            self._failed(error)
            return text_answer(HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed; the log of this node says why")

    @staticmethod
    def _has_body(request: h11.Request) -> bool:
        headers = dict(request.headers)
        return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""

    @staticmethod
    def _length_of(answer: HttpAnswer) -> tuple[tuple[str, str], ...]:
        """Return the header for the body's length. It is known if the body is already complete. A body that is
        generated is sent in chunks, or until the end of the connection for HTTP/1.0."""
        if answer.status == HTTPStatus.NO_CONTENT or not isinstance(answer.pieces, tuple):
            return ()
        return (("Content-Length", str(sum(map(len, answer.pieces)))),)

    def _finish(self) -> None:
        self._send(h11.EndOfMessage())
        try:
            while self._http.their_state is h11.SEND_BODY and self._http.next_event() is not h11.NEED_DATA:
                pass  # end of a request without a body
        except h11.RemoteProtocolError:
            self._close()
            return
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self._close()
        else:
            self._http.start_next_cycle()
            self.transport.wait_turn()  # one turn per request, however many arrived together

    def _send(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        data = self._http.send(event)
        if data:
            self._output.append(data)
            self.transport.wake()

    def _close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.transport.close(flush=True)


def _head(status: int, content_type: str, *headers: tuple[str, str]) -> h11.Response:
    base = (("Content-Type", content_type), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
    return h11.Response(status_code=status, headers=[*base, *headers], reason=HTTPStatus(status).phrase.encode())
