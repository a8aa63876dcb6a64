"""ControllerChannel: send requests from this broker to the active controller.

The channel learns which controller is active from the quorum that the broker observes, and from responses. It keeps a
connection to every controller, so that each controller notices at once when this process dies.

If a connection ends or a controller answers NOT_CONTROLLER, the request goes to the next candidate, until its deadline.
If the active controller is too busy for a request (REQUEST_TIMED_OUT), the request is sent to it again. When the leader
changes while a request is in flight, the request goes to the new leader.

So a request may be carried out twice: a CreateTopics that was committed but not answered gets TOPIC_ALREADY_EXISTS when
it is sent again, as with Kafka.
Source: docs/decisions/05-fast-fencing.md#brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
import trio

from kraft.broker.serving.session import Session
from kraft.config import NodeConfig
from kraft.node.peers import CallOutcome, Failed, PeerRequestFailed, Peers
from kraft.quorum.quorum import Quorum
from kraft.seam import Address, Peer, Seam
from kraft.wire import messages
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import RpcMessage
from kraft.wire.rpc.controller_messages import FORWARD_BODY_BYTES_MAX, ForwardRequest

log = structlog.get_logger("kraft.broker.controller_channel")

BROKER_PURPOSE = "broker"
"""Purpose of the connection by which a controller knows that this process is alive. It carries registration, heartbeats
and all other requests of the broker itself."""
FORWARD_PURPOSE = "forward"
"""Purpose of the connection for forwarded client requests. It is a separate connection because these may take long."""
RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 100
REDIAL_BACKOFF_MS_MAX = 1_000
REQUEST_TIMEOUT_MS = 30_000
GUESS_TIMEOUT_MS = 500
"""Milliseconds to wait for a response of a controller that is not known to be the active one."""
FORWARD_TIMEOUT_MS = 60_000
"""Maximum milliseconds for a forwarded request. Kafka retries it for twice request.timeout.ms, when the client has
already given up."""


class ControllerChannel:
    """Sends requests to the active controller. Call `on_leader` whenever the quorum has another leader."""

    def __init__(self, config: NodeConfig, seam: Seam, quorum: Quorum, peers: Peers) -> None:
        self._config = config
        self._clock = seam.clock
        self._quorum = quorum
        self._peers = peers
        self._silence_ms = config.integer("broker.session.timeout.ms") // 2
        """Milliseconds without received bytes after which a connection is closed, even if the deadline of a request has
        not passed. It is so short that a heartbeat on the next connection can keep the session alive (KAFKA-14392)."""
        self._listener = config.controller_listener_names[0]
        self._tls = config.dial_tls(self._listener)
        self._leader: int | None = None
        self._epoch = -1
        self._suspect_epoch = -1
        """Epoch whose leader did not answer. That leader is tried again only after the other controllers."""
        self._hint: int | None = None
        """The leader named by a controller that is not active. It is tried once."""
        self._next_candidate = 0
        self._in_flight: dict[trio.Event, tuple[int | None, int | None]] = {}
        """For each attempt in flight: the event that ends its wait → the node to which the request was sent, and the
        leader epoch."""
        self._changed = trio.Event()

    def on_leader(self, leader_id: int | None, epoch: int) -> None:
        """Switch to the leader of a newer epoch. Requests that wait or are in flight now go to that leader.

        A request that was sent to the same node in an earlier term is also sent again: the node may have lost power,
        and then nothing reports the end of its connections."""
        if epoch < self._epoch or (epoch == self._epoch and leader_id in (None, self._leader)):
            return
        self._epoch = epoch
        self._leader = leader_id
        self._hint = None
        if leader_id is not None:
            self._wake()

    # requests

    @property
    def active_controller(self) -> int | None:
        """Return the node id of the active controller, as far as this broker knows."""
        return self._leader

    async def request(
        self, message: RpcMessage, *, timeout_ms: int = REQUEST_TIMEOUT_MS, purpose: str = BROKER_PURPOSE
    ) -> Any:
        """Send a request and return the active controller's response. Raises PeerRequestFailed (with the last outcome)
        if no response came in time; then it is not known whether the request was carried out."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        backoff_ms = RETRY_BACKOFF_MS
        outcome = CallOutcome.UNREACHABLE
        peer: Peer | None = None
        while (remaining_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            changed = self._changed
            peer = self._candidate()
            if peer is not None:
                answer = await self._attempt(peer, message, remaining_ms, purpose)
                if answer is None:
                    continue
                if isinstance(answer, Failed):
                    outcome = answer.outcome
                    if outcome is CallOutcome.BAD_ANSWER:
                        break
                    self._distrust(peer, -1)
                elif answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
                    outcome, self._hint = CallOutcome.TIMED_OUT, peer.node_id
                elif answer.error_code == ErrorCode.NOT_CONTROLLER:
                    self._distrust(peer, answer.leader_id)
                else:
                    return answer
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            await self._clock.wait_at_most(changed, max(0, min(backoff_ms, remaining_ms)))
            backoff_ms = min(backoff_ms + RETRY_BACKOFF_MS // 2, RETRY_BACKOFF_MS_MAX)
        raise PeerRequestFailed(peer or Peer(None, self._listener, Address("", 0)), outcome)

    async def forward(
        self,
        session: Session,
        api_key: int,
        body: bytes,
        *,
        version: int | None = None,
        timeout_ms: int = FORWARD_TIMEOUT_MS,
    ) -> bytes:
        """Forward a client's admin request to the active controller, on behalf of the client's principal, and return
        the body of the response. Request and response are in `version`, by default the newest.

        Raises PeerRequestFailed as in `request`. Raises ForwardRefused, also for a body of more than
        FORWARD_BODY_BYTES_MAX."""
        if len(body) > FORWARD_BODY_BYTES_MAX:
            raise ForwardRefused(ErrorCode.MESSAGE_TOO_LARGE)
        newest = messages.newest_version(api_key) if version is None else version
        envelope = ForwardRequest(
            principal=session.principal,
            client_address=session.client_address,
            client_id=session.client_id,
            forwarded_key=api_key,
            forwarded_version=newest,
            body=body,
            timeout_ms=timeout_ms,
        )
        answer = await self.request(envelope, timeout_ms=timeout_ms, purpose=FORWARD_PURPOSE)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and 0 <= answer.newest_version < newest:
            return await self._forward_older(envelope, answer.newest_version, timeout_ms)
        if answer.error_code != ErrorCode.NONE:
            raise ForwardRefused(ErrorCode.of(answer.error_code))
        return bytes(answer.body)

    async def _forward_older(self, envelope: ForwardRequest, version: int, timeout_ms: int) -> bytes:
        """Convert the request for an active controller of an older release, if the older version can express it."""
        key, newest = envelope.forwarded_key, envelope.forwarded_version
        try:
            body = messages.encode_request(key, version, messages.decode_request(key, newest, envelope.body))
        except ValueError:
            raise ForwardRefused(ErrorCode.UNSUPPORTED_VERSION) from None
        older = replace(envelope, forwarded_version=version, body=body)
        answer = await self.request(older, timeout_ms=timeout_ms, purpose=FORWARD_PURPOSE)
        if answer.error_code != ErrorCode.NONE:
            raise ForwardRefused(ErrorCode.of(answer.error_code))
        return messages.encode_response(key, newest, messages.decode_response(key, version, answer.body))

    # connections

    async def keep_connected(self, greeting: Callable[[], RpcMessage]) -> None:
        """Keep a connection to every controller until cancelled, reconnecting with backoff. `greeting()` is sent on
        each new connection, so that the controller knows which broker connected. The list of controllers is read again
        whenever there is a new leader, because voters change."""
        kept: dict[Peer, trio.CancelScope] = {}
        async with trio.open_nursery() as nursery:
            while True:
                changed, wanted = self._changed, self._controllers()
                for peer in [peer for peer in kept if peer not in wanted]:
                    kept.pop(peer).cancel()
                for peer in wanted:
                    if peer not in kept:
                        kept[peer] = trio.CancelScope()
                        nursery.start_soon(self._keep_one, peer, greeting, kept[peer])
                await changed.wait()

    async def _keep_one(self, peer: Peer, greeting: Callable[[], RpcMessage], scope: trio.CancelScope) -> None:
        with scope:
            await self._hold(peer, greeting)
        self._peers.forget(peer, BROKER_PURPOSE)

    async def _hold(self, peer: Peer, greeting: Callable[[], RpcMessage]) -> None:
        ended = trio.Event()

        def on_end(_: Peer) -> None:
            nonlocal ended
            ended.set()

        self._peers.on_connection_end(peer, BROKER_PURPOSE, on_end)
        backoff_ms = RETRY_BACKOFF_MS
        while True:
            ended = trio.Event()
            changed = self._changed
            try:
                await self._peers.request(peer, greeting(), timeout_ms=REQUEST_TIMEOUT_MS, purpose=BROKER_PURPOSE)
            except PeerRequestFailed:
                # Send the greeting to a new leader at once: a controller that does not know this broker's connection
                # would not notice the end of this process.
                await self._clock.wait_at_most(changed, backoff_ms)
                backoff_ms = min(2 * backoff_ms, REDIAL_BACKOFF_MS_MAX)
            else:
                backoff_ms = RETRY_BACKOFF_MS
                await ended.wait()

    # internals

    async def _attempt(self, peer: Peer, message: RpcMessage, timeout_ms: int, purpose: str) -> Any:
        """Send the request to one candidate. Return the response, Failed, or None if a newer leader appeared first."""
        answers: list[Any] = []
        over = trio.Event()

        def on_answer(answer: Any) -> None:
            answers.append(answer)
            over.set()

        self._in_flight[over] = peer.node_id, self._epoch if peer.node_id == self._leader else None
        try:
            self._peers.send(peer, message, on_answer, timeout_ms=max(timeout_ms, self._silence_ms), purpose=purpose)
            if peer.node_id != self._leader:
                timeout_ms = min(timeout_ms, GUESS_TIMEOUT_MS)
            if not await self._clock.wait_at_most(over, timeout_ms):
                return Failed(CallOutcome.TIMED_OUT)
        finally:
            del self._in_flight[over]
        return answers[0] if answers else None

    def _wake(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        for over, (node_id, epoch) in list(self._in_flight.items()):
            if node_id != self._leader or (epoch is not None and epoch < self._epoch):
                over.set()

    def _candidate(self) -> Peer | None:
        """Return the node id of the leader. If no leader is known or it does not answer, return the next controller in
        turn."""
        controllers = self._controllers()
        first = self._leader if self._epoch > self._suspect_epoch else self._hint
        self._hint = None
        for peer in controllers:
            if first is not None and peer.node_id == first:
                return peer
        if not controllers:
            return None
        self._next_candidate = (self._next_candidate + 1) % len(controllers)
        return controllers[self._next_candidate]

    def _distrust(self, peer: Peer, named: int) -> None:
        """Record that this node is not the active controller, and which node it names as the leader (-1: none)."""
        if peer.node_id == self._leader:
            self._suspect_epoch = self._epoch
        if named >= 0 and named != peer.node_id:
            self._hint = named

    def _controllers(self) -> list[Peer]:
        addresses = list(self._quorum.describe().endpoints) or [
            (voter.node_id, voter.host, voter.port) for voter in self._config.quorum_voters
        ]
        return [Peer(node_id, self._listener, Address(host, port), self._tls) for node_id, host, port in addresses]


class ForwardRefused(Exception):
    """Raised when the controller rejects the envelope, not the request in it; `error` is the envelope's error code."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(f"the controller refused to handle the forwarded request: {error.name}")
        self.error = error
