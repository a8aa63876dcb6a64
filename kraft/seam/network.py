"""Network: ordered byte streams that drive sans-io connections.

A `Connection` is an object of `kraft.wire`: the driver gives it bytes (`space`, `received`) and takes bytes from it
(`output`, `sent`). The driver owns sockets, readiness, TLS and file ranges. It calls a connection only from its own
task, one call at a time. A connection announces activity outside those calls with `Transport.wake()`: for example, a
parked fetch is answered because of an append that arrived on another connection.

A *pass* is one round of the driver. First, everything readable is read and handled. Then every `end_of_pass` callback
runs once. Then each connection that was woken or has output is flushed once.

A connection's *turn* is what it handles in one call. It ends after a bounded number of requests, so that a peer with
many requests does not delay the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

from kraft.seam.disk import Buffer, FileRange

Chunk = Buffer | FileRange


class CloseReason(Enum):
    """Reason why a connection ended, as far as this node knows."""

    PEER = "the peer closed it"
    RESET = "the peer reset it"
    LOCAL = "we closed it"
    BAD_BYTES = "the peer sent bytes that do not parse"
    IDLE = "nothing was heard for connections.max.idle.ms"
    SHUTDOWN = "this node stops"


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a listener. `port` 0 in a bind requests a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Binding:
    """A listener that a node opens: its name, its address, and the TLS settings that only the driver reads."""

    listener: str
    address: Address
    tls: object | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer to dial. `node_id` is None for a bootstrap address.

    The network's dial map and link policy are keyed by (node_id, listener); they may redirect to an address other than
    `address`."""

    node_id: int | None
    listener: str
    address: Address
    tls: object | None = None


class DialOutcome(Enum):
    REFUSED = "refused"
    RESET = "reset"
    TIMED_OUT = "timed out"
    UNREACHABLE = "unreachable"


class DialFailed(Exception):
    """A dial did not produce a connection.

    `outcome` is the kind of failure, which failure detection uses (docs/decisions/05-fast-fencing.md). `why` is for
    people: an untrusted certificate, a name that does not resolve."""

    def __init__(self, peer: Peer, outcome: DialOutcome, why: str = "") -> None:
        super().__init__(f"dialling {peer.address} ({peer.listener}): {outcome.value}" + (f" ({why})" if why else ""))
        self.peer = peer
        self.outcome = outcome
        self.why = why


class LinkPolicy(Enum):
    """Fault injection on the link to one dialled peer. OPEN by default."""

    OPEN = "pass"
    REFUSE = "dials are refused; the connection that exists is reset"
    HANG = "dials time out; on a connection that exists nothing moves until the policy changes"
    RESET = "dials and the connection that exists are reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkQuality:
    """Latency, bandwidth and losses of one direction of a link; 0 means no limit. By default the link is perfect."""

    latency_ms: int = 0
    """Delay of each byte in ms. A random delay of up to `jitter_ms` is added; bytes are never reordered."""
    jitter_ms: int = 0
    bytes_per_second: int = 0
    bytes_max: int = 0
    """Number of bytes after which the connection ends for both sides, even in the middle of a frame."""
    is_cut: bool = False
    """Whether the direction is cut: nothing arrives while it is, and delivery resumes afterwards."""


DialMap = Mapping[tuple[int, str], Address]
"""(node id, listener) -> where to dial instead of the advertised address, so that a proxy can be put on each link."""


@dataclass(slots=True)
class ListenerStats:
    """A driver's counters for one listener. Without TLS no client is authenticated."""

    authenticated: int = 0
    """Number of TLS handshakes that clients completed."""
    authentications_failed: int = 0
    certificate_expiry_s: Callable[[], float] | None = None
    """Earliest expiry in the certificate chain that the listener presents to clients now, in seconds since 1970. None
    without TLS."""


@dataclass(slots=True)
class NetworkStats:
    """A driver's counters, read by the metrics registry. All but `connections` only increase."""

    passes: int = 0
    waited_ns: int = 0
    """Nanoseconds that the driver was idle, waiting for events."""
    long_steps: int = 0
    """Number of passes that blocked the loop for more than 20 ms."""
    longest_step_ns: int = 0
    schedule: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Two times of the loop's thread in nanoseconds: how long it ran on a processor, and how long it waited for a
    processor."""
    connections: int = 0
    accepted: int = 0
    dialled: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    cold_reads: int = 0
    """Number of file ranges that were not in the page cache and were read by the thread pool."""
    listeners: dict[str, ListenerStats] = field(default_factory=dict)
    """Listener name → counters of the bound listener."""


class AddressInUse(Exception):
    """A listener's port is already in use; the text names it."""


class Transport(Protocol):
    """The methods of a driver that a connection calls."""

    @property
    def listener(self) -> str:
        """Name of the listener that accepted this connection, or that was dialled."""
        ...

    @property
    def peer_host(self) -> str:
        """The peer's address without the port."""
        ...

    @property
    def peer_principal(self) -> str | None:
        """The distinguished name in the peer's certificate; None if the peer presented no certificate."""
        ...

    @property
    def heard_ns(self) -> int:
        """Start of the latest pass in which the driver read from the peer; nanoseconds of the monotonic clock."""
        ...

    def wake(self) -> None:
        """Announce new output, or that reading is possible again: the driver serves this connection at the end of this
        pass (or starts a pass)."""
        ...

    def wait_turn(self) -> None:
        """End this turn although whole frames remain. The driver calls `Connection.take_turn` once other connections
        have had their turns. If the peer does not read, it first waits until the queued output has been sent."""
        ...

    def close(self, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        """End the connection, now or (with `flush`) after the queued output has been sent. `closed` is called once,
        later."""
        ...


class Connection(Protocol):
    """A sans-io connection as its driver sees it.

    It may have an attribute `in_flight: int`, the number of unanswered requests. While that is above zero, the driver
    does not close the connection for idleness."""

    def space(self) -> memoryview:
        """Return the buffer for the next bytes. An empty buffer means that the driver must not read now (back-pressure)
        until `Transport.wake`."""
        ...

    def received(self, count: int) -> None:
        """Handle `count` bytes that were written into the last `space()`. Frames are handled inside this call.

        WireError closes this connection; any other exception stops the node."""
        ...

    def take_turn(self) -> None:
        """Handle frames that remain from the last turn, as in `received`. Called once for each
        `Transport.wait_turn`."""
        ...

    def output(self) -> deque[Chunk]:
        """Return the chunks to send, in order; none is empty. The driver does not change the queue; `sent` does."""
        ...

    def sent(self, count: int) -> None:
        """Remove the first `count` bytes of `output()`, which were sent: whole chunks are dropped, and a partly sent
        chunk is replaced by its remainder."""
        ...

    def closed(self, reason: CloseReason) -> None:
        """Handle the end of the connection; called exactly once."""
        ...


C = TypeVar("C", bound=Connection)


class BoundListener(Protocol):
    @property
    def address(self) -> Address:
        """The address with the actually bound port."""
        ...

    def close(self) -> None:
        """Stop accepting; existing connections stay open."""
        ...


class Network(Protocol):
    """A node's network. The driver behind it runs as long as the node."""

    @property
    def stats(self) -> NetworkStats: ...

    def serve(self, binding: Binding, make_connection: Callable[[Transport], Connection]) -> BoundListener:
        """Bind, and accept immediately; `serve` makes a connection for each accepted stream. Raises AddressInUse if the
        port is taken."""
        ...

    async def dial(self, peer: Peer, make_connection: Callable[[Transport], C], *, timeout_ms: int) -> C:
        """Connect to a peer and return the connection that was made for it. Raises DialFailed if that fails."""
        ...

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        """Call `callback` once at the end of every pass, before connections are flushed. Register it once, at start."""
        ...

    def request_pass(self) -> None:
        """Run a pass soon, as something changed outside the driver (for example, a sync finished)."""
        ...
