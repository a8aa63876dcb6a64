"""The client's side of a connection: sends pipelined requests, and matches responses to them in order.

Invariants: responses arrive in the order in which the requests were sent; an unexpected correlation id is a WireError.
`on_reply` is called exactly once per request that expects a response, with None if the connection ended first.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kraft.seam import Buffer, CloseReason, Transport, WireError
from kraft.wire.api_keys import is_flexible, response_header_version
from kraft.wire.budget import MemoryBudget
from kraft.wire.framing import IDLE_BUFFER_BYTES, SIZE_BYTES, FramedConnection
from kraft.wire.varints import skip_tagged_fields

_HEAD = struct.Struct(">ii")
_HEAD_BYTES = _HEAD.size
_CORRELATION_BYTES = 4
_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">ihhi").pack
_REQUEST_HEADER_BYTES = 8
_CORRELATION_MASK = 0x7FFFFFFF

KEPT_BUFFER_BYTES = 16 * 1024 * 1024
"""Size of the idle receive buffer that a client keeps: larger than a server's, because consecutive responses are long.
"""

OnReply = Callable[[memoryview | None], None]


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of one connection, in bytes. The limit of a response is large, because it contains as much as the request
    asked for."""

    frame_bytes_max: int = 2**31 - 1
    outstanding_bytes_max: int = 64 * 1024 * 1024


class ClientConnection(FramedConnection):
    """One dialled connection. Implements kraft.seam.Connection."""

    __slots__ = ("_client_id", "_closed_reason", "_next_correlation_id", "_on_closed", "_pending")

    def __init__(
        self,
        transport: Transport,
        *,
        client_id: str,
        on_closed: Callable[[ClientConnection, CloseReason], None] | None = None,
        limits: ClientLimits = ClientLimits(),
        budget: MemoryBudget | None = None,
    ) -> None:
        """`client_id` goes into every request header. `budget`: accounts for the bytes of responses longer than the
        idle buffer; with None the only bound is `frame_bytes_max`."""
        super().__init__(
            transport,
            frame_bytes_max=limits.frame_bytes_max,
            idle_buffer_bytes=IDLE_BUFFER_BYTES,
            kept_buffer_bytes=KEPT_BUFFER_BYTES,
            outstanding_bytes_max=limits.outstanding_bytes_max,
            budget=budget,
        )
        encoded = client_id.encode()
        self._client_id = struct.pack(">h", len(encoded)) + encoded
        self._on_closed = on_closed
        self._closed_reason: CloseReason | None = None
        self._next_correlation_id = 0
        self._pending: deque[tuple[int, bool, OnReply]] = deque()

    @property
    def in_flight(self) -> int:
        """Number of requests sent and not answered yet."""
        return len(self._pending)

    @property
    def closed_reason(self) -> CloseReason | None:
        """Why the connection ended; None while it is open."""
        return self._closed_reason

    def send(self, api_key: int, api_version: int, chunks: Sequence[Buffer], on_reply: OnReply | None) -> int:
        """Send a request and return its correlation id.

        `chunks`: the body in pieces. `on_reply(body)` gets a read-only view that is valid during the call, or None if
        the connection ended first. If it has already ended, `on_reply(None)` is called immediately. With `on_reply`
        None, no response is expected."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_MASK
        if self.is_closed:
            if on_reply is not None:
                on_reply(None)
            return correlation_id
        tags = b"\0" if is_flexible(api_key, api_version) else b""
        size = _REQUEST_HEADER_BYTES + len(self._client_id) + len(tags) + sum(map(len, chunks))
        header = _REQUEST_HEADER(size, api_key, api_version, correlation_id) + self._client_id + tags
        if on_reply is not None:
            self._pending.append((correlation_id, response_header_version(api_key, api_version) == 1, on_reply))
        self._push(header, tuple(chunks), SIZE_BYTES + size)
        return correlation_id

    def closed(self, reason: CloseReason) -> None:
        """Handle the end of the connection: call `on_reply(None)` of every pending request."""
        super().closed(reason)
        self._closed_reason = reason
        while self._pending:
            self._pending.popleft()[2](None)
        if self._on_closed is not None:
            self._on_closed(self, reason)

    def _handle_frames(self) -> int:
        start, end = self._start, self._end
        while not self._blocked:
            available = end - start
            if available < SIZE_BYTES:
                return 0
            size: int = _SIZE.unpack_from(self._buffer, start)[0]
            if size > available - SIZE_BYTES or size < _CORRELATION_BYTES:
                self._check_frame_bytes(size, start)
                if size < _CORRELATION_BYTES:
                    raise WireError(f"a frame of {size} bytes cannot hold a response header")
                return SIZE_BYTES + size
            frame_end = start + SIZE_BYTES + size
            correlation_id = _SIZE.unpack_from(self._buffer, start + SIZE_BYTES)[0]
            if not self._pending:
                raise WireError(f"an answer to request {correlation_id} came, but no request waits for one")
            expected, has_tags, on_reply = self._pending[0]
            if correlation_id != expected:
                raise WireError(f"an answer to request {correlation_id} came, expected one to request {expected}")
            body_start = start + _HEAD_BYTES
            if has_tags:
                body_start = skip_tagged_fields(self._view[:frame_end], body_start, frame_end)
            self._pending.popleft()
            start = self._start = frame_end
            on_reply(self._view[body_start:frame_end].toreadonly())
        return 0
