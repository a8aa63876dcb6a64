"""The server's side of a connection: parses frames, calls plain handlers, and sends responses in request order.

Invariants:
- A handler is a plain function that is called once per request with a `Request`. It answers once, immediately or later.
- Responses are sent in the order of the requests, whatever the order in which they are given (one slot each).
- At most `outstanding_requests_max` slots and about `outstanding_bytes_max` bytes of responses are held, including
  those that wait for an earlier request. Beyond that nothing is read.
- A turn handles requests of at most `TURN_COST_MAX`. The others wait until other connections have had their turns.
- A handler that needs much memory for a request pauses its connection until that request is done (`pause`). Every
  `LongRequest` does this too.
- A request with an unknown key or version, or bytes that do not parse, ends the connection and has no other effect.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kraft.seam import Chunk, CloseReason, FileRange, InvariantError, Transport, WireError
from kraft.wire.api_keys import (
    BROKER_APIS,
    CONTROLLER_APIS,
    ApiKey,
    ApiVersionRange,
    is_flexible,
    response_header_version,
)
from kraft.wire.budget import MemoryBudget
from kraft.wire.framing import (
    EMPTY,
    FRAME_BYTES_MAX,
    IDLE_BUFFER_BYTES,
    JOIN_BYTES_MAX,
    KEPT_BUFFER_BYTES,
    SIZE_BYTES,
    Block,
    FramedConnection,
)
from kraft.wire.request_meter import RequestMeter, RequestTiming
from kraft.wire.rpc import FIRST_INTERNAL_KEY, InternalKey
from kraft.wire.varints import skip_tagged_fields

_HEAD = struct.Struct(">iIih")
"""Struct of a request's start: frame size, key and version together, correlation id, length of the client id."""
_HEAD_BYTES = _HEAD.size
_HEADER_BYTES_MIN = _HEAD_BYTES - SIZE_BYTES
_SIZE = struct.Struct(">i")
_RESPONSE_HEADER_V0 = struct.Struct(">ii").pack
_RESPONSE_HEADER_V1 = struct.Struct(">iib").pack
_unpack_head = _HEAD.unpack_from

_connection_numbers = itertools.count(1)

_WAITING, _READY, _ANSWERED = range(3)

TURN_COST_MAX = 16
"""Maximum cost of one turn. A request of CHEAP_KEYS takes some microseconds and costs 1."""
CHEAP_KEYS = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})
"""Keys of the requests that clients pipeline; each such request costs 1."""
OTHER_COST = 8
"""Cost of any other request. It may take a few milliseconds and is rarely pipelined: two per turn."""
TIMINGS_MAX = 256
"""Maximum timed responses of one connection that wait for the end of their sending. Without this limit they would
accumulate for a peer that keeps sending and never reads everything. Further responses are not timed."""
INTERNAL_VERSION_MAX = 127
_INTERNAL_VERSIONS = range(INTERNAL_VERSION_MAX + 1)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of one connection, in bytes and counts."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    outstanding_requests_max: int = 1000
    outstanding_bytes_max: int = 2 * 1024 * 1024
    long_request_bytes: int = FRAME_BYTES_MAX
    """Size above which a request is a `LongRequest`, unless its key is one of CHEAP_KEYS."""


class ApiTable:
    """The requests that a listener accepts: (key, version) → the facts that framing needs. Build one per listener."""

    __slots__ = ("kinds", "ranges")

    def __init__(
        self, apis: Mapping[ApiKey, ApiVersionRange], internal_keys: Collection[InternalKey] = frozenset()
    ) -> None:
        """`apis`: Kafka's own APIs. `internal_keys`: accepted in any version up to 127, which `decode_rpc` checks."""
        self.ranges: dict[int, tuple[int, int]] = {int(key): (row.min, row.max) for key, row in apis.items()}
        self.kinds: dict[int, tuple[int, int, bool, bool]] = {}
        for key, (low, high) in self.ranges.items():
            for version in range(low, high + 1):
                header_v1 = response_header_version(key, version) == 1
                self.kinds[key << 16 | version] = (key, version, is_flexible(key, version), header_v1)
        for key in map(int, internal_keys):
            self.ranges[key] = (0, INTERNAL_VERSION_MAX)
            first = key << 16
            self.kinds.update({first | version: (key, version, False, False) for version in _INTERNAL_VERSIONS})

    def kind(self, number: int) -> tuple[int, int, bool, bool]:
        """Return (key, version, tagged request header, tagged response header) of a pair that is not in `kinds`. An
        unsupported version of ApiVersions is still passed to the handler. Raises WireError otherwise."""
        key, version = number >> 16, number & 0xFFFF
        if key == ApiKey.API_VERSIONS and key in self.ranges:
            return key, version, is_flexible(key, version), False
        spoken = self.ranges.get(key)
        if spoken is None:
            raise WireError(f"request key {key} (version {version}) is not served on this listener")
        raise WireError(f"version {version} of request key {key} is not supported, {spoken[0]} to {spoken[1]} are")


CONTROLLER_TABLE = ApiTable(CONTROLLER_APIS, tuple(InternalKey))
EVERY_TABLE = ApiTable({**CONTROLLER_APIS, **BROKER_APIS}, tuple(InternalKey))


class Request:
    """One request. `body` is a writable view into the receive buffer, valid until the handler returns.

    A handler that answers later copies what it needs first. After its return `body` is empty: otherwise a pending
    request would keep alive a buffer that the connection has returned to its budget."""

    __slots__ = (
        "_answer",
        "_has_tagged_header",
        "_state",
        "api_key",
        "api_version",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "timing",
    )

    def __init__(
        self,
        connection: ServerConnection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        body: memoryview,
        has_tagged_header: bool,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self._has_tagged_header = has_tagged_header
        self._state = _WAITING
        self.timing: RequestTiming | None = None
        """The timing of this request; None for most requests, which are not timed."""

    @property
    def is_answered(self) -> bool:
        """Whether a response was given, or `respond_nothing` was called."""
        return self._state != _WAITING

    def respond(self, *chunks: Chunk) -> None:
        """Answer with a body; length and header are added. The response is sent when all earlier requests are answered.
        No effect if the connection is over. Raises InvariantError on a second response."""
        connection = self.connection
        slots = connection._slots
        if self._state:
            raise InvariantError(f"request {self.correlation_id} (key {self.api_key}) was answered twice")
        if not slots:
            self._state = _ANSWERED
            connection._answer(self, chunks)
        elif slots[0] is self:
            self._state = _ANSWERED
            connection._answer(self, chunks)
            connection._drain()
        else:
            self._state = _READY
            self._answer: tuple[Chunk, ...] | None = chunks
            connection._count_output(_size_of(chunks))
            if self.timing is not None:
                self.timing.answered()

    def respond_nothing(self) -> None:
        """Finish the request without a response (Produce with acks=0)."""
        slots = self.connection._slots
        if self._state:
            raise InvariantError(f"request {self.correlation_id} (key {self.api_key}) was answered twice")
        if self.timing is not None:
            self.timing.queued()
            self.timing.sent()
        if not slots:
            self._state = _ANSWERED
        elif slots[0] is self:
            self._state = _ANSWERED
            self.connection._drain()
        else:
            self._state = _READY
            self._answer = None

    def fail(self, why: str, reason: CloseReason = CloseReason.BAD_BYTES) -> None:
        """Close the connection, as there is no other way to reject this request."""
        self.connection.close(
            f"{_name(self.api_key)} version {self.api_version} from {self.client_id!r}: {why}", reason
        )


class LongRequest(Request):
    """A request with very many elements. Until it is answered, its connection handles no other request, to limit the
    memory that such requests need."""

    __slots__ = ()

    def respond(self, *chunks: Chunk) -> None:
        super().respond(*chunks)
        self.connection.resume()

    def respond_nothing(self) -> None:
        super().respond_nothing()
        self.connection.resume()


class ServerConnection(FramedConnection):
    """One accepted connection. Implements kraft.seam.Connection."""

    __slots__ = (
        "_client_id",
        "_client_id_bytes",
        "_hold_requests",
        "_kinds",
        "_long_request_bytes",
        "_on_closed",
        "_on_request",
        "_outstanding_requests_max",
        "_pauses",
        "_slots",
        "_spent",
        "_table",
        "_timings",
        "client_software",
        "meter",
        "number",
        "session",
        "unheld_keys",
    )

    def __init__(
        self,
        transport: Transport,
        on_request: Callable[[Request], None],
        *,
        limits: ServerLimits,
        budget: MemoryBudget | None,
        on_closed: Callable[[ServerConnection, CloseReason], None] | None = None,
        table: ApiTable = EVERY_TABLE,
        meter: RequestMeter | None = None,
    ) -> None:
        """`table`: the requests that this listener accepts. `meter`: the node's RequestMeter. `on_request` may raise
        WireError, which closes the connection."""
        super().__init__(
            transport,
            frame_bytes_max=limits.frame_bytes_max,
            idle_buffer_bytes=IDLE_BUFFER_BYTES,
            kept_buffer_bytes=KEPT_BUFFER_BYTES,
            outstanding_bytes_max=limits.outstanding_bytes_max,
            budget=budget,
        )
        self._outstanding_requests_max = limits.outstanding_requests_max
        self._long_request_bytes = limits.long_request_bytes
        self._on_request = on_request
        self._on_closed = on_closed
        self._table = table
        self._kinds = table.kinds
        self._slots: deque[Request] = deque()
        self._client_id_bytes = b""
        self._client_id = ""
        self._hold_requests = False
        self._pauses = 0
        self._spent = 0
        self.unheld_keys: Collection[int] = frozenset((ApiKey.API_VERSIONS, InternalKey.IDENTIFY))
        self.meter = RequestMeter(lambda: 0) if meter is None else meter
        self._timings: list[RequestTiming] = []
        """Timings of responses that are queued and not sent; at most TIMINGS_MAX."""
        self.number = next(_connection_numbers)
        self.session: object | None = None
        self.client_software = ("unknown", "unknown")
        """Name and version in the client's ApiVersions request."""
        self.meter.connection_opened(self)

    @property
    def in_flight(self) -> int:
        """Number of requests that were handled and not answered yet."""
        return len(self._slots)

    @property
    def has_unhandled_requests(self) -> bool:
        """Whether unhandled requests wait, for their turn or because the connection is paused."""
        return self._unhandled and self._start != self._end

    @property
    def hold_requests(self) -> bool:
        """Whether requests wait unread. Requests with keys in `unheld_keys` are handled even then, if they arrive
        before any other request."""
        return self._hold_requests

    @hold_requests.setter
    def hold_requests(self, hold: bool) -> None:
        self._hold_requests = hold
        if not hold:
            self._unblock(Block.HELD)

    def pause(self) -> None:
        """Handle no further request, because the last one is expensive. The pause ends once `resume` was called as
        often as `pause`."""
        self._pauses += 1
        self._blocked |= Block.PAUSED

    def resume(self) -> None:
        """End one `pause`."""
        self._pauses -= 1
        if not self._pauses:
            self._unblock(Block.PAUSED)

    def spend(self, cost: int) -> None:
        """Add `cost` to the current turn, for a request that is more expensive than its key suggests."""
        self._spent += cost

    def sent(self, count: int) -> None:
        """Remove the first `count` bytes of `output()`, which were sent."""
        super().sent(count)
        if self._timings and not self._output and not self._small:
            timings, self._timings = self._timings, []
            for timing in timings:
                timing.sent()

    def closed(self, reason: CloseReason) -> None:
        """Handle the end of the stream. Responses given from now on are discarded."""
        super().closed(reason)
        self._slots.clear()
        self._timings.clear()
        self.meter.connection_closed(self)
        if self._on_closed is not None:
            self._on_closed(self, reason)

    def _handle_frames(self) -> int:
        buffer, view, kinds, slots = self._buffer, self._view, self._kinds, self._slots
        on_request, meter = self._on_request, self.meter
        counts = meter.counts
        start, end = self._start, self._end
        cost = 0
        while not self._blocked:
            available = end - start
            if available < _HEAD_BYTES:
                return self._begun_frame_bytes(start, available) if available else 0
            size, number, correlation_id, client_id_size = _unpack_head(buffer, start)
            if size > available - SIZE_BYTES or size < _HEADER_BYTES_MIN:
                return self._begun_frame_bytes(start, available)
            known = kinds.get(number)
            key, version, has_tags, has_tagged_answer = known if known is not None else self._table.kind(number)
            if self._hold_requests and key not in self.unheld_keys:
                self._blocked |= Block.HELD
                break
            if cost >= TURN_COST_MAX:
                self._end_turn()
                break
            is_long = False
            if key in CHEAP_KEYS:
                cost += 1
            else:
                cost += OTHER_COST
                is_long = size > self._long_request_bytes
            body_start = start + _HEAD_BYTES
            body_end = start + SIZE_BYTES + size
            if client_id_size > 0:
                body_start += client_id_size
                if buffer[body_start - client_id_size : body_start] != self._client_id_bytes:
                    self._read_client_id(body_start - client_id_size, body_start, body_end)
                client_id = self._client_id
            else:
                client_id = ""
            if body_start + has_tags > body_end:
                raise WireError(f"the header of request key {key} runs past the end of its frame")
            if has_tags:
                # one zero byte is the usual case: no tagged fields
                body_start = skip_tagged_fields(view, body_start, body_end) if buffer[body_start] else body_start + 1
            start = self._start = body_end
            body = view[body_start:body_end]
            if is_long:
                self.pause()
            request_class = LongRequest if is_long else Request
            request = request_class(self, key, version, correlation_id, client_id, body, has_tagged_answer)
            counts[number if known is not None else key << 16] += 1
            meter.until_timed -= 1
            if meter.until_timed > 0:
                on_request(request)
            else:
                request.timing = meter.time(request, size)
                on_request(request)
                request.timing.handled()
            if self._spent:
                cost += self._spent
                self._spent = 0
            if request._state != _ANSWERED:
                if request.body is body:
                    request.body = EMPTY
                slots.append(request)
                if len(slots) >= self._outstanding_requests_max:
                    self._blocked |= Block.SLOTS
        return 0

    def _begun_frame_bytes(self, start: int, available: int) -> int:
        """Return the total size of the frame at `start`; 0 if it is not known yet. Raises WireError for an impossible
        size."""
        if available < SIZE_BYTES:
            return 0
        size: int = _SIZE.unpack_from(self._buffer, start)[0]
        self._check_frame_bytes(size, start)
        if size < _HEADER_BYTES_MIN:
            raise WireError(f"a frame of {size} bytes cannot hold a request header")
        return SIZE_BYTES + size

    def _read_client_id(self, start: int, stop: int, frame_end: int) -> None:
        raw = bytes(self._view[start:stop])
        if stop > frame_end:
            raise WireError(f"a client id of {stop - start} bytes runs past the end of its frame")
        try:
            self._client_id = raw.decode()
        except UnicodeDecodeError:
            raise WireError(f"a client id is not UTF-8: {raw[:40]!r}") from None
        self._client_id_bytes = raw

    def _answer(self, request: Request, chunks: tuple[Chunk, ...]) -> None:
        """Send the response of the first slot's request."""
        if self._blocked & Block.CLOSED:
            return
        if request.timing is not None and len(self._timings) < TIMINGS_MAX:
            request.timing.queued()
            self._timings.append(request.timing)
        if len(chunks) == 1 and type(chunks[0]) is bytes and len(chunks[0]) <= JOIN_BYTES_MAX:
            # the usual response: one short body
            size = len(chunks[0])
            if request._has_tagged_header:
                header = _RESPONSE_HEADER_V1(size + 5, request.correlation_id, 0)
            else:
                header = _RESPONSE_HEADER_V0(size + 4, request.correlation_id)
            self._small += header, chunks[0]
            self._count_output(len(header) + size)
            if not self._handling:
                self._transport.wake()
            return
        size = _size_of(chunks)
        if request._has_tagged_header:
            header = _RESPONSE_HEADER_V1(size + 5, request.correlation_id, 0)
        else:
            header = _RESPONSE_HEADER_V0(size + 4, request.correlation_id)
        self._push(header, chunks, len(header) + size)

    def _drain(self) -> None:
        """Remove the first slot, whose request is done, and send the responses that waited for it."""
        slots = self._slots
        slots.popleft()
        while slots and slots[0]._state == _READY:
            request = slots.popleft()
            request._state = _ANSWERED
            answer, request._answer = request._answer, None
            if answer is not None:
                self._output_bytes -= _size_of(answer)
                self._answer(request, answer)
        if self._blocked & Block.SLOTS and len(slots) * 2 <= self._outstanding_requests_max:
            self._unblock(Block.SLOTS)


def _size_of(chunks: tuple[Chunk, ...]) -> int:
    size = 0
    for chunk in chunks:
        size += chunk.count if type(chunk) is FileRange else len(chunk)  # type: ignore[arg-type]
    return size


def _name(key: int) -> str:
    try:
        return (InternalKey(key) if key >= FIRST_INTERNAL_KEY else ApiKey(key)).name
    except ValueError:
        return f"key {key}"
