"""Connections to other nodes, one per (peer, purpose), so that a long poll of one purpose never blocks another.

A request that finds no connection starts a connection attempt. A failed attempt is repeated by the next request, not by
the pool. A failed request has a precise reason (`CallOutcome`), because failure detection depends on the difference
between "refused", "accepted and then closed" and "silent". A request that times out ends its connection: responses come
in order, so all requests behind it would wait as well.

Each request uses the newest version that this node supports, or the one that the peer has named on this connection. If
the peer rejects the version, the request is repeated in one that both know (`kraft.wire.rpc`). A peer without a
connection, a call or a watcher is forgotten.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import structlog
import trio

from kraft.seam import Address, CloseReason, DialFailed, DialOutcome, InvariantError, Peer, Seam, WireError
from kraft.wire.client import ClientConnection
from kraft.wire.primitives import CannotEncode
from kraft.wire.rpc import RpcMessage, choose_version, decode_rpc_response, encode_rpc, refused_range

log = structlog.get_logger("kraft.peers")

DIAL_TIMEOUT_MS = 2_000
IDLE_MS = 60_000
"""Maximum milliseconds after which the timer of all calls wakes."""


class CallOutcome(Enum):
    """How a request that got no response ended."""

    REFUSED = "the dial was refused"
    CLOSED = "the connection was accepted and ended before the answer"
    TIMED_OUT = "no answer in time"
    UNREACHABLE = "the dial failed otherwise"
    BAD_ANSWER = "the answer does not parse"
    NO_COMMON_VERSION = "the peer speaks no version of it that this node speaks"
    ABANDONED = "this node ended the connection itself: that says nothing of the peer"


_DIAL_OUTCOMES = MappingProxyType(
    {
        DialOutcome.REFUSED: CallOutcome.REFUSED,
        DialOutcome.RESET: CallOutcome.CLOSED,
        DialOutcome.TIMED_OUT: CallOutcome.TIMED_OUT,
        DialOutcome.UNREACHABLE: CallOutcome.UNREACHABLE,
    }
)
_END_OUTCOMES: Mapping[CloseReason | None, CallOutcome] = MappingProxyType(
    {
        CloseReason.PEER: CallOutcome.CLOSED,
        CloseReason.RESET: CallOutcome.CLOSED,
        CloseReason.BAD_BYTES: CallOutcome.BAD_ANSWER,
    }
)
"""Close reason of a connection → outcome of the calls in flight on it. For any other reason this node itself ended the
connection."""


class PeerRequestFailed(Exception):
    """A request got no response; `outcome` is the reason."""

    def __init__(self, peer: Peer, outcome: CallOutcome) -> None:
        super().__init__(f"request to {peer.address} ({peer.listener}): {outcome.value}")
        self.peer = peer
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """The value that `send` passes to its callback instead of a response."""

    outcome: CallOutcome


OnAnswer = Callable[[Any], None]
LinkKey = tuple[int | None, Address, str, str]


@dataclass(slots=True, eq=False)
class _Call:
    """One request in flight; `finish` runs its callback once."""

    message: RpcMessage | None
    """The request to send. None once the call is done: the timer may hold the call for long, and a message may be
    large."""
    on_answer: OnAnswer
    deadline_ms: float

    @property
    def is_done(self) -> bool:
        return self.message is None

    def finish(self, answer: Any) -> None:
        if self.message is not None:
            self.message = None
            self.on_answer(answer)


@dataclass(slots=True, eq=False)
class _Link:
    """The state of one (peer, purpose), connected or not. `waiting` holds calls until the connection attempt ends."""

    peer: Peer
    key: LinkKey
    connection: ClientConnection | None = None
    versions: dict[int, int] = field(default_factory=dict)
    """Internal key → the version that this node uses on this connection, if it is not its newest."""
    is_dialling: bool = False
    is_forgotten: bool = False
    """Whether the peer was forgotten and no request was made to it since. If its connection attempt succeeds now, the
    connection is closed."""
    waiting: list[_Call] = field(default_factory=list)
    in_flight: list[_Call] = field(default_factory=list)
    on_end: list[Callable[[Peer], None]] = field(default_factory=list)
    on_dialled: list[Callable[[CallOutcome | None], None]] = field(default_factory=list)

    @property
    def is_unused(self) -> bool:
        """Whether this link has no connection, no calls and no watcher."""
        is_busy = self.is_dialling or self.waiting or self.in_flight or self.on_end
        return self.connection is None and not is_busy


class Peers:
    """The pool of connections. `run` drives connection attempts and timeouts for the node's whole life."""

    def __init__(self, seam: Seam, *, client_id: str) -> None:
        self._seam = seam
        self._client_id = client_id
        self._links: dict[LinkKey, _Link] = {}
        self._deadlines: list[tuple[float, int, _Link, _Call]] = []
        self._numbers = itertools.count()
        self._nursery: trio.Nursery | None = None
        self._to_dial: list[_Link] = []
        self._earlier_deadline = trio.Event()
        self.requests = 0
        """Number of requests sent; the other counters are bytes of request and response bodies."""
        self.request_bytes = 0
        self.answers = 0
        self.answer_bytes = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then every connection is closed."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for link in self._to_dial:
                    nursery.start_soon(self._dial, link)
                self._to_dial.clear()
                task_status.started()
                try:
                    await self._expire_calls()
                # before the last task has ended: a closed nursery would reject connection attempts that a pass still
                # starts
                finally:
                    self._nursery = None
        finally:
            for link in self._links.values():
                if link.connection is not None:
                    link.connection.close("this node stops", CloseReason.SHUTDOWN)

    async def request(self, peer: Peer, message: RpcMessage, *, timeout_ms: int, purpose: str = "") -> Any:
        """Send a request, and wait for the decoded response. Raises PeerRequestFailed if none came."""
        answers: list[Any] = []
        arrived = trio.Event()

        def on_answer(answer: Any) -> None:
            answers.append(answer)
            arrived.set()

        self.send(peer, message, on_answer, timeout_ms=timeout_ms, purpose=purpose)
        await arrived.wait()
        if isinstance(answers[0], Failed):
            raise PeerRequestFailed(peer, answers[0].outcome)
        return answers[0]

    def send(
        self,
        peer: Peer,
        message: RpcMessage,
        on_answer: OnAnswer,
        *,
        timeout_ms: int,
        purpose: str = "",
    ) -> None:
        """Send a request; `on_answer` gets the decoded response, or a `Failed`, exactly once and never inside
        `send`."""
        link = self._link(peer, purpose)
        call = _Call(message, on_answer, self._seam.clock.monotonic_ms() + timeout_ms)
        self._watch(link, call)
        if link.connection is not None and not link.connection.is_closed:
            self._put(link, link.connection, call)
            return
        link.waiting.append(call)
        self._start_dial(link)

    def connect(self, peer: Peer, on_result: Callable[[CallOutcome | None], None], *, purpose: str = "") -> None:
        """Start a connection attempt if there is no connection, and later call `on_result` with None for success, or
        with how the attempt failed. Do nothing if there is a connection already."""
        link = self._link(peer, purpose)
        if link.connection is None or link.connection.is_closed:
            link.on_dialled.append(on_result)
            self._start_dial(link)

    def on_connection_end(self, peer: Peer, purpose: str, callback: Callable[[Peer], None]) -> None:
        """Call back whenever an established connection to this peer for this purpose ends, in flight or idle."""
        self._link(peer, purpose).on_end.append(callback)

    def is_connected(self, peer: Peer, purpose: str) -> bool:
        """Return whether a connection is up now."""
        link = self._links.get(_key(peer, purpose))
        return link is not None and link.connection is not None and not link.connection.is_closed

    def disconnect(self, peer: Peer, purpose: str) -> None:
        """End the connection, if there is one; its requests fail with ABANDONED."""
        link = self._links.get(_key(peer, purpose))
        if link is not None and link.connection is not None:
            link.connection.close("not needed any more", CloseReason.LOCAL)

    def forget(self, peer: Peer, purpose: str) -> None:
        """Disconnect, and drop the callback of `on_connection_end`."""
        link = self._links.get(_key(peer, purpose))
        if link is not None:
            link.is_forgotten = True
            link.on_end.clear()
            self.disconnect(peer, purpose)
            self._prune(link)

    @property
    def known_peers(self) -> list[Peer]:
        """Return the peers that are connected, connecting or watched by a callback, once for each purpose."""
        return [link.peer for link in self._links.values()]

    def _link(self, peer: Peer, purpose: str) -> _Link:
        key = _key(peer, purpose)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = _Link(peer, key)
        link.is_forgotten = False
        return link

    def _prune(self, link: _Link) -> None:
        """Drop unused links, so that links to removed peers and to old addresses do not accumulate."""
        if link.is_unused and self._links.get(link.key) is link:
            del self._links[link.key]

    def _start_dial(self, link: _Link) -> None:
        if link.is_dialling:
            return
        link.is_dialling = True
        if self._nursery is None:
            self._to_dial.append(link)
        else:
            self._nursery.start_soon(self._dial, link)

    async def _dial(self, link: _Link) -> None:
        outcome: CallOutcome | None = None
        try:
            connection = await self._seam.network.dial(
                link.peer, lambda transport: self._connect(link, transport), timeout_ms=DIAL_TIMEOUT_MS
            )
        except DialFailed as failure:
            outcome = _DIAL_OUTCOMES[failure.outcome]
            if failure.why:
                log.warning(
                    "connection attempt failed",
                    peer=str(link.peer.address),
                    listener=link.peer.listener,
                    why=failure.why,
                )
        finally:
            link.is_dialling = False
        # No checkpoint from here on: waiting calls are sent, or failed, in one step.
        waiting, link.waiting = link.waiting, []
        dialled, link.on_dialled = link.on_dialled, []
        if outcome is None:
            link.connection = connection
        for on_result in dialled:
            on_result(outcome)
        if outcome is not None:
            for call in waiting:
                call.finish(Failed(outcome))
            self._prune(link)
            return
        for call in waiting:
            if not call.is_done:
                self._put(link, connection, call)
        if link.is_forgotten and not link.in_flight:
            connection.close("not needed any more", CloseReason.LOCAL)

    def _connect(self, link: _Link, transport: Any) -> ClientConnection:
        def on_closed(connection: ClientConnection, reason: CloseReason) -> None:
            if link.connection is connection:
                link.connection = None
                link.versions.clear()
            for callback in list(link.on_end):
                callback(link.peer)
            self._prune(link)

        return ClientConnection(transport, client_id=self._client_id, on_closed=on_closed)

    def _put(self, link: _Link, connection: ClientConnection, call: _Call) -> None:
        message = call.message
        if message is None:
            return
        version = link.versions.get(message.api_key, message.max_version)
        link.in_flight.append(call)

        def on_reply(body: memoryview | None) -> None:
            link.in_flight.remove(call)
            if body is None:
                call.finish(Failed(_END_OUTCOMES.get(connection.closed_reason, CallOutcome.ABANDONED)))
                return
            self.answers += 1
            self.answer_bytes += len(body)
            try:
                spoken = refused_range(body)
                answer = decode_rpc_response(message.api_key, version, body) if spoken is None else None
            except WireError:
                call.finish(Failed(CallOutcome.BAD_ANSWER))
                raise
            if spoken is None:
                call.finish(answer)
            else:
                self._retry_in_version(link, connection, call, version, spoken)

        try:
            body = encode_rpc(message, version)
        except CannotEncode as problem:
            raise InvariantError(f"cannot encode a request of this node: {problem}") from None
        self.requests += 1
        self.request_bytes += len(body)
        connection.send(message.api_key, version, [body], on_reply)

    def _retry_in_version(
        self, link: _Link, connection: ClientConnection, call: _Call, refused: int, spoken: tuple[int, int]
    ) -> None:
        """Repeat a request in a version that both nodes support, after the peer rejected the first version and named
        its own range."""
        message = call.message
        if message is None:
            return
        version = choose_version(type(message), *spoken)
        if version is not None and version != refused:
            link.versions[message.api_key] = version
            self._put(link, connection, call)
            return
        log.error(
            "no common version: install releases that are closer to each other",
            peer=link.peer.node_id,
            address=str(link.peer.address),
            request=type(message).__name__,
            spoken_there=f"{spoken[0]} to {spoken[1]}",
            spoken_here=f"{message.min_version} to {message.max_version}",
        )
        call.finish(Failed(CallOutcome.NO_COMMON_VERSION))

    def _watch(self, link: _Link, call: _Call) -> None:
        first = self._deadlines[0][0] if self._deadlines else math.inf
        heapq.heappush(self._deadlines, (call.deadline_ms, next(self._numbers), link, call))
        if call.deadline_ms < first:
            self._earlier_deadline.set()

    async def _expire_calls(self) -> None:
        """Run the one timer of all calls."""
        while True:
            self._earlier_deadline = trio.Event()
            now_ms = self._seam.clock.monotonic_ms()
            while self._deadlines and (self._deadlines[0][3].is_done or self._deadlines[0][0] <= now_ms):
                _, _, link, call = heapq.heappop(self._deadlines)
                if not call.is_done:
                    self._give_up(link, call)
            wait_ms = self._deadlines[0][0] - now_ms if self._deadlines else IDLE_MS
            await self._seam.clock.wait_at_most(self._earlier_deadline, min(wait_ms, IDLE_MS))

    def _give_up(self, link: _Link, call: _Call) -> None:
        call.finish(Failed(CallOutcome.TIMED_OUT))
        if call in link.waiting:
            link.waiting.remove(call)
        elif call in link.in_flight and link.connection is not None:
            link.connection.close("a request was not answered in time", CloseReason.LOCAL)


def _key(peer: Peer, purpose: str) -> LinkKey:
    return (peer.node_id, peer.address, peer.listener, purpose)
