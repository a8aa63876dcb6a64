"""Synchronous: one connection to a broker over a blocking socket, with pipelined requests. No event loop.

Invariants: answers belong to requests in the order in which these were sent; each answer has a buffer of its own, so a
caller may keep views of it for as long as it likes; after any failure of the connection it is closed, and every request
without an answer fails with the same error. A request whose answer does not come may have been carried out.
Not for use by two threads.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from kraft.client.core.records import KafkaError
from kraft.client.spark.settings import ConnectionSettings, TlsFiles
from kraft.runtime.tls import TlsContexts, TlsSettings
from kraft.seam import Address, Buffer, WireError
from kraft.wire import messages
from kraft.wire.api_keys import CLIENT_APIS, ApiKey, is_flexible, response_header_version
from kraft.wire.error_codes import ErrorCode
from kraft.wire.framing import JOIN_BYTES_MAX, foreign_protocol
from kraft.wire.varints import skip_tagged_fields

API_VERSIONS_VERSION = 3
DIAL_TIMEOUT_MS = 10_000
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""A longer announcement is no answer of a broker: each protocol that is known to come instead announces more."""

_HEAD = struct.Struct(">ii")
_REQUEST_HEADER = struct.Struct(">ihhi")
_CORRELATION_BYTES = 4
_CORRELATION_MASK = 0x7FFFFFFF
_CONTEXTS = TlsContexts()


class LinkFailed(OSError):
    """No connection, or it did not bring an answer. `address` is the broker's; the text names it and the request."""

    def __init__(self, address: Address, message: str) -> None:
        super().__init__(message)
        self.address = address


class LinkClosed(LinkFailed):
    """The connection could not be made, or ended before the answer."""


class LinkTimedOut(LinkFailed):
    """No connection or no answer within the time-out."""


class VersionMismatch(Exception):
    """Broker and client share no version of this API; the text names the broker, the API and both ranges."""


class Ticket:
    """A request that was sent; `receive` gives its answer."""

    __slots__ = ("answer", "correlation_id", "key", "timeout_ms", "version")

    def __init__(self, key: ApiKey, version: int, correlation_id: int, timeout_ms: float) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        self.answer: memoryview | None = None


class SyncLink:
    """A live connection with negotiated versions. A context manager: leaving it closes the socket."""

    def __init__(self, address: Address, settings: ConnectionSettings, *, timeout_ms: float | None = None) -> None:
        """Connect and ask for the versions, within `timeout_ms` (None: the request time-out, at most 10 s).

        LinkClosed or LinkTimedOut if there can be no connection now, WireError if the peer is no broker, KafkaError if
        the broker refuses ApiVersions, TlsConfigError for files that cannot be used."""
        self.address = address
        self._client_id = struct.pack(">h", len(settings.client_id.encode())) + settings.client_id.encode()
        self._ranges: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, API_VERSIONS_VERSION)}
        self._next_correlation_id = 0
        self._pending: deque[Ticket] = deque()
        self._failure: LinkFailed | WireError | None = None
        if timeout_ms is None:
            timeout_ms = min(settings.request_timeout_ms, DIAL_TIMEOUT_MS)
        deadline = time.monotonic() + timeout_ms / 1000
        self._socket = _connect(address, settings.tls, timeout_ms)
        try:
            self._negotiate(max(1.0, (deadline - time.monotonic()) * 1000))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    @property
    def in_flight(self) -> int:
        """Requests whose answer was not read from the socket yet."""
        return len(self._pending)

    def fileno(self) -> int:
        """The socket's, to wait for an answer with `select.poll`; -1 once it is closed."""
        return self._socket.fileno()

    @property
    def has_decrypted(self) -> bool:
        """Whether bytes of an answer are here that `select.poll` does not see, because TLS has read them already."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def version(self, key: ApiKey) -> int:
        """The newest version of `key` that both sides know. VersionMismatch if there is none."""
        ours = CLIENT_APIS[key]
        theirs = self._ranges.get(key)
        if theirs is None:
            raise VersionMismatch(f"the broker at {self.address} does not know {key.name}")
        newest = min(ours.max, theirs[1])
        if newest < max(ours.min, theirs[0]):
            raise VersionMismatch(
                f"{key.name}: this client knows versions {ours.min} to {ours.max}, the broker at {self.address} "
                f"{theirs[0]} to {theirs[1]}"
            )
        return newest

    def request(self, key: ApiKey, message: Any, *, timeout_ms: float) -> Any:
        """Send a message of the newest class and wait for the answer in its newest class. ValueError for one that
        the broker's version cannot say."""
        ticket = self.send_message(key, message, timeout_ms=timeout_ms)
        return self.receive_message(ticket)

    def send_message(self, key: ApiKey, message: Any, *, timeout_ms: float) -> Ticket:
        """Send a message of the newest class, in the newest version that both sides know."""
        version = self.version(key)
        try:
            body = messages.encode_request(key, version, message)
        except struct.error as problem:
            raise ValueError(f"a number is too large for its field in {key.name}: {problem}") from problem
        return self.send(key, version, [body], timeout_ms=timeout_ms)

    def receive_message(self, ticket: Ticket) -> Any:
        """The answer to a request in its newest class. As `receive`; WireError if it does not parse."""
        body = self.receive(ticket)
        try:
            return messages.decode_response(ticket.key, ticket.version, body)
        except WireError as error:
            problem = WireError(f"the answer of {self.address}: {error}")
            self._fail(problem)
            raise problem from error

    def send(self, key: ApiKey, version: int, chunks: Sequence[Buffer], *, timeout_ms: float) -> Ticket:
        """Send an encoded body, given in pieces. `timeout_ms` is how long sending may take, and then `receive`.

        LinkClosed or LinkTimedOut if it could not be sent."""
        ticket = Ticket(key, version, self._next_correlation_id, timeout_ms)
        self._next_correlation_id = (ticket.correlation_id + 1) & _CORRELATION_MASK
        self._require_open(ticket)
        tags = b"\0" if is_flexible(key, version) else b""
        size = _REQUEST_HEADER.size - 4 + len(self._client_id) + len(tags) + sum(map(len, chunks))
        head = _REQUEST_HEADER.pack(size, key, version, ticket.correlation_id) + self._client_id + tags
        try:
            deadline = time.monotonic() + timeout_ms / 1000
            for piece in _joined(head, chunks):
                self._socket.settimeout(_seconds_until(deadline))
                self._socket.sendall(piece)
        except OSError as error:
            raise self._failed(ticket, error) from error
        self._pending.append(ticket)
        return ticket

    def receive(self, ticket: Ticket) -> memoryview:
        """The body of the answer, in a buffer that belongs to it alone. Answers to earlier requests are kept for their
        tickets. A ticket can be received once. The time-out counts from this call: the caller may have been busy.

        LinkClosed or LinkTimedOut if no answer came, WireError if what came is no answer."""
        deadline = time.monotonic() + ticket.timeout_ms / 1000
        while ticket.answer is None:
            self._require_open(ticket)
            if ticket not in self._pending:
                raise ValueError(f"the answer to {ticket.key.name} has been received already")
            earliest = self._pending[0]
            try:
                earliest.answer = self._read_answer(earliest, deadline)
            except WireError as error:
                problem = WireError(f"{self.address}, asked for {ticket.key.name}: {error}")
                self._fail(problem)
                raise problem from error
            except OSError as error:
                raise self._failed(ticket, error) from error
            self._pending.popleft()
        body, ticket.answer = ticket.answer, None
        return body

    def close(self) -> None:
        """End the connection; requests without an answer fail."""
        self._fail(LinkClosed(self.address, f"the connection to {self.address} was closed by this client"))

    def _read_answer(self, expected: Ticket, deadline: float) -> memoryview:
        head = bytearray(_HEAD.size)
        self._fill(memoryview(head), deadline)
        size, correlation_id = _HEAD.unpack(head)
        if not _CORRELATION_BYTES <= size <= ANSWER_BYTES_MAX:
            hint = foreign_protocol(bytes(head[:4]))
            raise WireError(hint or f"a frame announces {size} bytes, expected 4 to {ANSWER_BYTES_MAX}")
        if correlation_id != expected.correlation_id:
            raise WireError(
                f"an answer to request {correlation_id} came, expected one to request {expected.correlation_id}"
            )
        body = memoryview(bytearray(size - _CORRELATION_BYTES))
        self._fill(body, deadline)
        start = 0
        if response_header_version(expected.key, expected.version) == 1:
            start = skip_tagged_fields(body, 0, len(body))
        return body[start:].toreadonly()

    def _fill(self, view: memoryview, deadline: float) -> None:
        """Receive until the view is full. TimeoutError if it is not full at the deadline."""
        while view:
            self._socket.settimeout(_seconds_until(deadline))
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            view = view[count:]

    def _negotiate(self, timeout_ms: float) -> None:
        request = build_request(ApiKey.API_VERSIONS, client_software_name="pykraft", client_software_version="1")
        answer = self.request(ApiKey.API_VERSIONS, request, timeout_ms=timeout_ms)
        code = ErrorCode.of(int(answer.error_code))
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"the broker at {self.address} refused ApiVersions")
        self._ranges = {
            int(entry.api_key): (int(entry.min_version), int(entry.max_version)) for entry in answer.api_keys
        }

    def _require_open(self, ticket: Ticket) -> None:
        if self._failure is not None:
            raise LinkClosed(
                self.address, f"{self.address}, asked for {ticket.key.name}: the connection is over ({self._failure})"
            ) from self._failure

    def _failed(self, ticket: Ticket, error: OSError) -> LinkFailed:
        """What to raise for an error of the socket; the connection is over."""
        problem: LinkFailed
        if isinstance(error, TimeoutError):
            problem = LinkTimedOut(
                self.address, f"{self.address} did not answer {ticket.key.name} within {ticket.timeout_ms:g} ms"
            )
        else:
            problem = LinkClosed(
                self.address,
                f"the connection to {self.address} ended before the answer to {ticket.key.name} ({_reason(error)})",
            )
        self._fail(problem)
        return problem

    def _fail(self, problem: LinkFailed | WireError) -> None:
        if self._failure is None:
            self._failure = problem
            with contextlib.suppress(OSError):
                self._socket.close()


def _connect(address: Address, tls: TlsFiles | None, timeout_ms: float) -> socket.socket:
    wanted = tls_settings(tls)
    context = None if wanted is None else _CONTEXTS.client(wanted)
    try:
        raw = socket.create_connection((address.host, address.port), timeout=timeout_ms / 1000)
    except TimeoutError as error:
        raise LinkTimedOut(address, f"no connection to {address} within {timeout_ms:g} ms") from error
    except OSError as error:
        raise LinkClosed(address, f"no connection to {address} ({_reason(error)})") from error
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return raw if context is None else context.wrap_socket(raw, server_hostname=address.host)
    except TimeoutError as error:
        raw.close()
        raise LinkTimedOut(address, f"no TLS handshake with {address} within {timeout_ms:g} ms") from error
    except OSError as error:
        raw.close()
        raise LinkClosed(address, f"the TLS handshake with {address} failed ({_reason(error)})") from error


def tls_settings(tls: TlsFiles | None) -> TlsSettings | None:
    """TLS as every client of this project takes it; None for plain text."""
    if tls is None:
        return None
    return TlsSettings(
        certificate_path=tls.keystore_location,
        certificate_and_key=tls.certificate_and_key,
        key_password=tls.key_password,
        authorities_path=tls.truststore_location,
        authorities=tls.truststore_certificates,
        verify_hostname=tls.verify_hostname,
    )


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return error.strerror or str(error)


def _joined(head: bytes, chunks: Sequence[Buffer]) -> list[Buffer]:
    """The pieces to send: short ones joined, so that a small request is one segment; long ones as they are."""
    pieces: list[Buffer] = []
    short: list[Buffer] = [head]
    for chunk in chunks:
        if len(chunk) <= JOIN_BYTES_MAX:
            short.append(chunk)
            continue
        if short:
            pieces.append(b"".join(short))
            short = []
        pieces.append(chunk)
    if short:
        pieces.append(b"".join(short))
    return pieces


def _seconds_until(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def build_request(key: ApiKey, **fields: Any) -> Any:
    """A request of the newest class; fields that are not given have their defaults."""
    _import_message_classes()
    return messages.build(messages.request_class(key), **fields)


def _import_message_classes() -> None:
    """Import kio without hypothesis, which it looks for to register strategies: in a development environment that
    would load pytest and trio into each worker, for 0.25 s of CPU."""
    if "kio.index" in sys.modules or "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.index
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
