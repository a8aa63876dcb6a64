"""Synchronous: one connection to a broker over a blocking socket, with pipelined requests and without an event loop.

Invariants: responses are matched to requests in the order of sending. Each response has its own buffer, so a caller may
keep views of it. Any connection failure closes the connection, and all requests without a response fail with that
error. The broker may nevertheless have carried them out. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
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
"""Maximum size of a response in bytes. A larger size field does not come from a broker: the first bytes of other common
protocols, read as a size, exceed it."""

_HEAD = struct.Struct(">ii")
_REQUEST_HEADER = struct.Struct(">ihhi")
_CORRELATION_BYTES = 4
_CORRELATION_MASK = 0x7FFFFFFF
_CONTEXTS = TlsContexts()

NEWEST_HERE: Mapping[ApiKey, int] = MappingProxyType({ApiKey.END_TXN: 4})
"""Newest version that this client uses of each API for which pykraft's async client uses a newer one. The newer EndTxn
requires that leaders add partitions to transactions, but this client adds them itself."""


class LinkFailed(OSError):
    """The connection could not be made, or a request got no response. `address` is the broker's; the message names the
    address and the request."""

    def __init__(self, address: Address, message: str) -> None:
        super().__init__(message)
        self.address = address


class LinkClosed(LinkFailed):
    """The connection could not be made, or was closed before the response arrived."""


class LinkTimedOut(LinkFailed):
    """The connection was not made, or the response did not arrive, within the timeout."""


class VersionMismatch(Exception):
    """Broker and client share no version of this API; the message names the broker, the API and both ranges."""


class Ticket:
    """Handle of a sent request; `receive` returns the response to the request."""

    __slots__ = ("answer", "correlation_id", "key", "timeout_ms", "version")

    def __init__(self, key: ApiKey, version: int, correlation_id: int, timeout_ms: float) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        self.answer: memoryview | None = None


class SyncLink:
    """An open connection to a broker, with negotiated API versions. A context manager that closes the socket."""

    def __init__(self, address: Address, settings: ConnectionSettings, *, timeout_ms: float | None = None) -> None:
        """Connect and negotiate the API versions, within `timeout_ms` (None: the request timeout, at most 10 s).

        Raises LinkClosed or LinkTimedOut if the connection cannot be made, WireError if the peer is not a broker,
        KafkaError if the broker rejects ApiVersions, TlsConfigError for unusable TLS files."""
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
        """Number of sent requests with a response that is not read from the socket yet."""
        return len(self._pending)

    def fileno(self) -> int:
        """Return the socket's file descriptor, to wait for a response with `select.poll`; -1 once it is closed."""
        return self._socket.fileno()

    @property
    def has_decrypted(self) -> bool:
        """Whether TLS holds decrypted bytes of a response. `select.poll` does not report such bytes, because the socket
        itself has none."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def version(self, key: ApiKey) -> int:
        """Return the newest version of API `key` that client and broker both support. Raises VersionMismatch if there
        is none."""
        ours = CLIENT_APIS[key]
        theirs = self._ranges.get(key)
        if theirs is None:
            raise VersionMismatch(f"the broker at {self.address} does not know {key.name}")
        newest = min(ours.max, theirs[1], NEWEST_HERE.get(key, ours.max))
        if newest < max(ours.min, theirs[0]):
            raise VersionMismatch(
                f"{key.name}: this client knows versions {ours.min} to {ours.max}, the broker at {self.address} "
                f"{theirs[0]} to {theirs[1]}"
            )
        return newest

    def request(self, key: ApiKey, message: Any, *, timeout_ms: float) -> Any:
        """Send a request of the newest message class, and return the response in its newest class. Raises ValueError
        for a request that cannot be expressed in the broker's version."""
        ticket = self.send_message(key, message, timeout_ms=timeout_ms)
        return self.receive_message(ticket)

    def send_message(self, key: ApiKey, message: Any, *, timeout_ms: float) -> Ticket:
        """Send a request of the newest message class, encoded in the newest version that client and broker both
        support."""
        version = self.version(key)
        try:
            body = messages.encode_request(key, version, message)
        except struct.error as problem:
            raise ValueError(f"a number is too large for its field in {key.name}: {problem}") from problem
        return self.send(key, version, [body], timeout_ms=timeout_ms)

    def receive_message(self, ticket: Ticket) -> Any:
        """Receive the response to a request, and return it in its newest message class. Raises the errors of `receive`,
        and WireError for a response that does not parse."""
        body = self.receive(ticket)
        try:
            return messages.decode_response(ticket.key, ticket.version, body)
        except WireError as error:
            problem = WireError(f"the answer of {self.address}: {error}")
            self._fail(problem)
            raise problem from error

    def send(self, key: ApiKey, version: int, chunks: Sequence[Buffer], *, timeout_ms: float) -> Ticket:
        """Send an encoded request body, given in pieces. `timeout_ms` limits the sending, and later, separately, the
        wait in `receive`.

        Raises LinkClosed or LinkTimedOut if the request could not be sent."""
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
        """Return the body of the response to a sent request, in its own buffer. Each response can be received once.

        Responses to earlier requests that arrive first are kept for their own `receive`. The timeout counts from this
        call, because the caller may have been busy before. Raises LinkClosed or LinkTimedOut if no response came,
        WireError if the bytes are not a response."""
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
        """Close the connection; pending requests fail."""
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
        """Receive until the view is full. Raises TimeoutError if it is not full at the deadline."""
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
            raise KafkaError(code, f"the broker at {self.address} rejected ApiVersions")
        self._ranges = {
            int(entry.api_key): (int(entry.min_version), int(entry.max_version)) for entry in answer.api_keys
        }

    def _require_open(self, ticket: Ticket) -> None:
        if self._failure is not None:
            raise LinkClosed(
                self.address, f"{self.address}, asked for {ticket.key.name}: the connection is over ({self._failure})"
            ) from self._failure

    def _failed(self, ticket: Ticket, error: OSError) -> LinkFailed:
        """Close the connection after a socket error, and return the exception that the caller raises."""
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
    """Return the TLS settings in the form that every client of this project takes; None for plaintext."""
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
    """Join short pieces, so that a small request is sent as one segment; long pieces remain separate."""
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
    """Build a request of the newest message class; fields that are not given have their defaults."""
    _import_message_classes()
    return messages.build(messages.request_class(key), **fields)


def _import_message_classes() -> None:
    """Import kio's message classes while hiding hypothesis from kio, which registers test strategies if hypothesis is
    installed. That import would load pytest and trio into each worker and cost 0.25 s of CPU."""
    if "kio.index" in sys.modules or "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.index
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
