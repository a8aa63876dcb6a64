"""Network: ordered byte streams that drive sans-io connections.

A `Connection` is a value of `kraft.wire`: the driver gives it bytes (`space`, `received`) and takes bytes from it
(`output`, `sent`). The driver owns sockets, readiness, TLS and file ranges; it calls a connection only from its own
task, one call at a time. What a connection does outside those calls (a parked fetch is answered by an append that came
in on another connection) it announces with `Transport.wake()`.

A *pass* is one turn of the driver: all that is readable is read and handled; then every `end_of_pass` callback runs
once; then each connection that was woken or has output is flushed once. A connection's *turn* is what it handles in one
call: it ends after a bounded number of requests, so that a peer with many requests does not hold up the others.
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
    """Why a connection ended, as far as this side knows."""

    PEER = "the peer closed it"
    RESET = "the peer reset it"
    LOCAL = "we closed it"
    BAD_BYTES = "the peer sent bytes that do not parse"
    IDLE = "nothing was heard for connections.max.idle.ms"
    SHUTDOWN = "this node stops"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a listener is reached. `port` 0 on a bind asks for a free one."""

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
    """Whom to dial. `node_id` is None for a bootstrap address. The network's dial map and link policy are looked up by
    (node_id, listener), and may lead to another address than `address`."""

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
    """A dial did not give a connection; `outcome` says how, which matters to failure detection (DESIGN 12). `why` says
    more to people, where there is more to say: a certificate that is not trusted, a name that leads nowhere."""

    def __init__(self, peer: Peer, outcome: DialOutcome, why: str = "") -> None:
        super().__init__(f"dialling {peer.address} ({peer.listener}): {outcome.value}" + (f" ({why})" if why else ""))
        self.peer = peer
        self.outcome = outcome
        self.why = why


class LinkPolicy(Enum):
    """What the network does to the link towards one dialled peer. OPEN unless faults are injected on purpose."""

    OPEN = "pass"
    REFUSE = "dials are refused; the connection that exists is reset"
    HANG = "dials time out; on a connection that exists nothing moves until the policy changes"
    RESET = "dials and the connection that exists are reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkQuality:
    """How bytes fare in one direction of a link; 0 is no limit. As it is by default, they fare well."""

    latency_ms: int = 0
    """So much later each byte arrives, and up to `jitter_ms` more, drawn; in order still."""
    jitter_ms: int = 0
    bytes_per_second: int = 0
    bytes_max: int = 0
    """After so many bytes, wherever in a frame that is, a connection ends for both sides."""
    is_cut: bool = False
    """Nothing arrives; it does when this ends."""


DialMap = Mapping[tuple[int, str], Address]
"""(node id, listener) -> where to dial instead of the advertised address, so that a proxy can stand on each link."""


@dataclass(slots=True)
class ListenerStats:
    """What a driver counts of one listener. Without TLS no client is authenticated."""

    authenticated: int = 0
    """TLS handshakes that clients completed."""
    authentications_failed: int = 0
    certificate_expiry_s: Callable[[], float] | None = None
    """When the certificate expires that the next client is shown, or one of its chain before it; seconds since 1970.
    None without TLS."""


@dataclass(slots=True)
class NetworkStats:
    """What a driver counts; the metrics registry reads it. Counts only rise, except `connections`."""

    passes: int = 0
    waited_ns: int = 0
    """How long the driver had nothing to do and waited for events."""
    long_steps: int = 0
    """Passes that held the loop for more than 20 ms."""
    longest_step_ns: int = 0
    schedule: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """How long the loop's thread had a processor, and was kept waiting for one (ns)."""
    connections: int = 0
    accepted: int = 0
    dialled: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    cold_reads: int = 0
    """File ranges that were not in the page cache and went through the thread pool."""
    listeners: dict[str, ListenerStats] = field(default_factory=dict)
    """By name, of those that were bound."""


class AddressInUse(Exception):
    """A listener's port is taken; the text names it."""


class Transport(Protocol):
    """What a connection may ask of its driver."""

    @property
    def listener(self) -> str:
        """Name of the listener that this came in on, or was dialled to."""
        ...

    @property
    def peer_host(self) -> str:
        """The peer's address without port."""
        ...

    @property
    def peer_principal(self) -> str | None:
        """The distinguished name of the peer's certificate, or None."""
        ...

    @property
    def heard_ns(self) -> int:
        """When the pass began that last read from the peer; nanoseconds of the monotonic clock."""
        ...

    def wake(self) -> None:
        """There is output, or room to read again: look at this connection at the end of this pass (or start one)."""
        ...

    def wait_turn(self) -> None:
        """This turn is over and whole frames are left: call `Connection.take_turn` once other connections have had
        theirs. Not before what is queued has left, if the peer does not read."""
        ...

    def close(self, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        """End the connection: now, or after what is queued has left (`flush`). `closed` is called once, later."""
        ...


class Connection(Protocol):
    """A sans-io connection as its driver sees it.

    It may have an attribute `in_flight: int`, its requests that are not answered yet; while that is above zero the
    driver does not close it for idleness.
    """

    def space(self) -> memoryview:
        """Where the next bytes go. Empty means: do not read now (back-pressure); `Transport.wake` ends that."""
        ...

    def received(self, count: int) -> None:
        """`count` bytes were put into the last `space()`. Frames are handled inside this call. WireError closes this
        connection; any other exception stops the node."""
        ...

    def take_turn(self) -> None:
        """Handle frames that the last turn left, as in `received`. Called once for each `Transport.wait_turn`."""
        ...

    def output(self) -> deque[Chunk]:
        """What is to be sent, in order; no chunk is empty. The driver does not change it; `sent` does."""
        ...

    def sent(self, count: int) -> None:
        """`count` bytes of the front of `output()` have left: drop whole chunks, and replace one that left in part by
        its rest."""
        ...

    def closed(self, reason: CloseReason) -> None:
        """The connection is over; called exactly once."""
        ...


C = TypeVar("C", bound=Connection)


class BoundListener(Protocol):
    @property
    def address(self) -> Address:
        """With the port that was bound."""
        ...

    def close(self) -> None:
        """Stop to accept; connections that exist stay."""
        ...


class Network(Protocol):
    """A node's network. The driver behind it runs for the node's whole life."""

    @property
    def stats(self) -> NetworkStats: ...

    def serve(self, binding: Binding, make_connection: Callable[[Transport], Connection]) -> BoundListener:
        """Bind and accept at once; each accepted stream gets a connection. AddressInUse if the port is taken."""
        ...

    async def dial(self, peer: Peer, make_connection: Callable[[Transport], C], *, timeout_ms: int) -> C:
        """Connect, and give the connection that was made for it. DialFailed otherwise."""
        ...

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        """Run `callback` once at the end of every pass, before connections are flushed. Register once, at start."""
        ...

    def request_pass(self) -> None:
        """Something changed outside the driver (a sync finished): run a pass soon."""
        ...
