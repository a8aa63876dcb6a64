"""Observes the simulated network: assembles and decodes frames from what each node sends, and reports them as
observations.

A guarantee that a message gives (a vote, an acknowledgement) is reported when the message is sent. A message's effect
on its receiver is reported when its last byte is about to be handled there, so a lost message never counts. Only what
the checks need is decoded: the quorum's messages, registrations, heartbeats and probes, and Produce. The client
observer decodes other responses to clients.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

from kraft.seam import CloseReason, DialOutcome, Peer
from kraft.sim.check.observations import (
    Campaigned,
    EpochClaimed,
    FetchSent,
    Observation,
    ProbeEnded,
    QuorumFetchHandled,
    TopicPartition,
    VoteGranted,
)
from kraft.sim.cluster.client_observer import CLIENT_KEYS, ClientObserver, LeaderLookup
from kraft.sim.cluster.shape import CONTROLLER_LISTENER, node_of
from kraft.sim.world.endpoint import FakeEndpoint
from kraft.sim.world.streams import Stream
from kraft.wire.api_keys import ApiKey
from kraft.wire.client import ClientConnection
from kraft.wire.messages.produce import decode_produce_request, decode_produce_response
from kraft.wire.records import read_header
from kraft.wire.rpc import InternalKey, decode_rpc, decode_rpc_request, decode_rpc_response
from kraft.wire.rpc.controller_messages import (
    ForwardRequest,
    HeartbeatRequest,
    IdentifyResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from kraft.wire.rpc.quorum_messages import FetchSnapshotRequest, MetadataFetchRequest, VoteRequest, VoteResponse

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
QUORUM_KEYS = frozenset(
    {
        InternalKey.VOTE,
        InternalKey.BEGIN_QUORUM_EPOCH,
        InternalKey.END_QUORUM_EPOCH,
        InternalKey.METADATA_FETCH,
        InternalKey.FETCH_SNAPSHOT,
    }
)
BROKER_KEYS = frozenset({InternalKey.REGISTER_BROKER, InternalKey.HEARTBEAT, InternalKey.IDENTIFY})
FLEXIBLE_PRODUCE = 9
ACKS_ALL = -1

PROBE_FAILURES = MappingProxyType({DialOutcome.REFUSED: "REFUSED", DialOutcome.RESET: "CLOSED"})
SILENT = "SILENT"


@dataclass(frozen=True, slots=True)
class ProducedBatch:
    """A batch of an acks=all request: its log, its number of records, and the end of the leader's log when the request
    was sent."""

    log: TopicPartition
    count: int
    log_end_then: int


@dataclass(frozen=True, slots=True)
class _OpenRequest:
    """A request that has not been answered: its content; for Produce its batches by partition."""

    key: int
    version: int
    message: Any


@dataclass(slots=True)
class StreamDirection:
    """One direction of a connection. `asked` are unanswered requests sent in this direction. `due` holds (position,
    callback): the callback is called when the receiver is about to handle the byte at that position."""

    rest: bytes = b""
    asked: dict[int, _OpenRequest] = field(default_factory=dict)
    sent: int = 0
    handled: int = 0
    due: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)
    ballots: deque[tuple[int, bool]] = field(default_factory=deque)
    """Requests to a voter that are in flight in the stream: the position at which each ends, and whether it is a
    pre-vote."""

    def frames(self, data: bytes) -> Iterator[memoryview]:
        """Yield the complete frames that end in `data`, without their size field."""
        first = self.sent - len(self.rest)
        whole = self.rest + data if self.rest else data
        position = 0
        while len(whole) - position >= _SIZE.size:
            end = position + _SIZE.size + _SIZE.unpack_from(whole, position)[0]
            if end > len(whole):
                break
            frame = memoryview(whole)[position + _SIZE.size : end]
            position = end
            self.sent = first + end
            yield frame
        self.rest = whole[position:]
        self.sent = first + len(whole)

    def when_handled(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the current frame has arrived completely and its receiver is about to handle it."""
        self.due.append((self.sent, tell))


class ObservedCluster(LeaderLookup, Protocol):
    """Interface through which the network observer (WireObserver) queries the run and reports to it."""

    def incarnation_of(self, controller: int, broker: int) -> tuple[UUID, int] | None:
        """Return the (incarnation id, broker epoch) that this controller's probes expect at this broker."""
        ...

    def directory_of(self, node: int) -> str: ...

    def is_voter(self, node: int) -> bool: ...

    def quorum_state_of(self, node: int) -> tuple[int, int, int]:
        """Return (epoch, leader id, voted id) in the node's memory."""
        ...

    def fetched(self, voter: int, leader: int, epoch: int, endpoint: FakeEndpoint) -> None:
        """Report that `leader` is about to handle a voter's fetch that names it as the leader of `epoch`."""
        ...

    def heartbeat_handled(self, controller: int, request: HeartbeatRequest, connection: int) -> None: ...

    def forward_handled(self, controller: int, request: ForwardRequest) -> None:
        """Report that a controller is about to handle a client's request that a broker forwarded."""
        ...

    def registered(self, controller: int, broker: int, broker_epoch: int, connection: int) -> None:
        """Report that the controller sends a successful response to a registration."""
        ...

    def hosted_log(self, node: int, topic: str | UUID, partition: int) -> TopicPartition | None:
        """Return the log that a node hosts for a topic's name or id; None if it hosts none."""
        ...

    def log_end(self, node: int, log: TopicPartition) -> int: ...

    def produce_answered(self, node: int, base_offset: int, batch: ProducedBatch) -> None:
        """Report that this node sends a successful response to an acks=all request."""
        ...

    def produce_acknowledged(self, base_offset: int, batch: ProducedBatch) -> None:
        """Report that the successful response to an acks=all request has reached the client."""
        ...

    def prevote_answered(self, node: int, before: tuple[int, int, int]) -> None: ...


class WireObserver:
    """Reads every stream of the world of which one end is a node of the cluster."""

    def __init__(self, view: ObservedCluster, tell: Callable[[Observation], None], now_ms: Callable[[], int]) -> None:
        self._view = view
        self._tell = tell
        self._now_ms = now_ms
        self._clients = ClientObserver(view, tell)
        self._streams: dict[Stream, StreamDirection] = {}
        self._before: tuple[int, int, int] | None = None

    def _direction(self, stream: Stream) -> StreamDirection:
        direction = self._streams.get(stream)
        if direction is None:
            direction = self._streams[stream] = StreamDirection()
        return direction

    # sent bytes

    def sending(self, endpoint: FakeEndpoint, data: bytes) -> None:
        """Observe the frames that these sent bytes complete."""
        source, target = node_of(endpoint.outgoing.source.name), node_of(endpoint.outgoing.target.name)
        if source is None and target is None:
            return
        direction = self._direction(endpoint.outgoing)
        if isinstance(endpoint.connection, ClientConnection):
            for frame in direction.frames(data):
                self._request(endpoint, direction, source, target, frame)
        elif source is not None:
            asked = self._direction(endpoint.incoming)
            for frame in direction.frames(data):
                known = asked.asked.pop(_SIZE.unpack_from(frame, 0)[0], None)
                if known is not None:
                    self._answer(endpoint, direction, source, target, known, frame[_SIZE.size :])

    def _request(
        self,
        endpoint: FakeEndpoint,
        direction: StreamDirection,
        source: int | None,
        target: int | None,
        frame: memoryview,
    ) -> None:
        key, version, correlation_id, client_id_size = _HEAD.unpack_from(frame, 0)
        body = frame[_HEAD.size + max(0, client_id_size) :]
        if key in QUORUM_KEYS and source is not None:
            message = decode_rpc_request(key, version, body)
            direction.asked[correlation_id] = _OpenRequest(key, version, message)
            self._quorum_request(endpoint, direction, source, target, message)
        elif key in BROKER_KEYS:
            message = decode_rpc_request(key, version, body)
            direction.asked[correlation_id] = _OpenRequest(key, version, message)
            if isinstance(message, HeartbeatRequest) and target is not None:
                connection: Any = endpoint.outgoing.receiver
                number = connection.connection.number
                direction.when_handled(partial(self._view.heartbeat_handled, target, message, number))
        elif key == InternalKey.FORWARD and target is not None:
            forwarded = decode_rpc(ForwardRequest, version, body)
            direction.when_handled(partial(self._view.forward_handled, target, forwarded))
        elif key == ApiKey.PRODUCE and target is not None:
            self._produce_request(direction, target, correlation_id, version, body)
        elif key in CLIENT_KEYS and source is None:
            host = endpoint.outgoing.source
            client_asked = self._clients.asked(key, version, body, f"{host.name} {host.lives}")
            direction.asked[correlation_id] = _OpenRequest(key, version, client_asked)
            direction.when_handled(partial(self._clients.handled, client_asked))

    def _quorum_request(
        self, endpoint: FakeEndpoint, direction: StreamDirection, source: int, target: int | None, message: Any
    ) -> None:
        is_prevote = isinstance(message, VoteRequest) and message.pre_vote
        direction.ballots.append((direction.sent, is_prevote))
        if isinstance(message, VoteRequest):
            asked = target if message.pre_vote else None
            self._tell(Campaigned(source, self._view.directory_of(source), message.epoch, asked))
            if not message.pre_vote:
                self._tell(EpochClaimed(source, message.epoch, -1))
            return
        self._tell(EpochClaimed(source, message.epoch, getattr(message, "leader_id", -1)))
        if isinstance(message, MetadataFetchRequest | FetchSnapshotRequest) and target is not None:
            direction.when_handled(partial(self._tell, QuorumFetchHandled(target, source, message.epoch)))
        if isinstance(message, MetadataFetchRequest) and target is not None and self._view.is_voter(source):
            self._tell(FetchSent(source, message.epoch, message.fetch_offset))
            direction.when_handled(partial(self._view.fetched, source, target, message.epoch, endpoint))

    def _produce_request(
        self, direction: StreamDirection, target: int, correlation_id: int, version: int, body: memoryview
    ) -> None:
        request = decode_produce_request(version, body[1:] if version >= FLEXIBLE_PRODUCE else body)
        if request.acks != ACKS_ALL:
            return
        batches: dict[tuple[str | UUID, int], ProducedBatch] = {}
        for name, topic_id, partitions in request.topics:
            topic = _topic_key(name, topic_id)
            for index, records in partitions:
                log = self._view.hosted_log(target, topic, index)
                if records is not None and log is not None:
                    count = read_header(records).last_offset_delta + 1
                    batches[topic, index] = ProducedBatch(log, count, self._view.log_end(target, log))
        direction.asked[correlation_id] = _OpenRequest(ApiKey.PRODUCE, version, batches)

    def _answer(
        self,
        endpoint: FakeEndpoint,
        direction: StreamDirection,
        source: int,
        target: int | None,
        asked: _OpenRequest,
        body: memoryview,
    ) -> None:
        if asked.key == ApiKey.PRODUCE:
            self._produced(direction, source, asked, body)
            return
        if asked.key in CLIENT_KEYS:
            self._clients.answered(source, asked.message, body)
            return
        answer = decode_rpc_response(asked.key, asked.version, body)
        if asked.key in QUORUM_KEYS:
            self._quorum_answer(source, asked.message, answer)
        elif isinstance(answer, RegisterBrokerResponse) and isinstance(asked.message, RegisterBrokerRequest):
            connection: Any = endpoint.connection
            if answer.error_code == 0:
                self._view.registered(source, asked.message.broker_id, answer.broker_epoch, connection.number)
        elif isinstance(answer, IdentifyResponse) and target is not None:
            direction.when_handled(partial(self._identified, target, source, answer))

    def _quorum_answer(self, source: int, request: Any, answer: Any) -> None:
        self._tell(EpochClaimed(source, answer.epoch, answer.leader_id))
        if not isinstance(request, VoteRequest) or not isinstance(answer, VoteResponse):
            return
        if answer.vote_granted and not request.pre_vote:
            claim = (request.last_epoch, request.last_offset)
            directory = self._view.directory_of(source)
            self._tell(VoteGranted(source, directory, request.epoch, request.candidate_id, claim))

    def _produced(self, direction: StreamDirection, source: int, asked: _OpenRequest, body: memoryview) -> None:
        answer = decode_produce_response(asked.version, body[1:] if asked.version >= FLEXIBLE_PRODUCE else body)
        for name, topic_id, results in answer.topics:
            for result in results:
                batch = asked.message.get((_topic_key(name, topic_id), result.partition))
                if result.error_code == 0 and batch is not None and result.base_offset >= 0:
                    self._view.produce_answered(source, result.base_offset, batch)
                    direction.when_handled(partial(self._view.produce_acknowledged, result.base_offset, batch))

    # received bytes

    def receiving(self, endpoint: FakeEndpoint, count: int) -> None:
        """Observe bytes that are about to be handled. A heartbeat is reported before its effects. If the bytes complete
        only pre-votes, the quorum state is recorded, so that a later comparison can show that they did not change it.
        """
        direction = self._streams.get(endpoint.incoming)
        if direction is None:
            return
        direction.handled += count
        while direction.due and direction.due[0][0] <= direction.handled:
            direction.due.popleft()[1]()
        self._before = None
        if not direction.ballots or direction.ballots[0][0] > direction.handled:
            return
        handled: list[bool] = []
        while direction.ballots and direction.ballots[0][0] <= direction.handled:
            handled.append(direction.ballots.popleft()[1])
        node = node_of(endpoint.incoming.target.name)
        if node is not None and all(handled):
            self._before = self._view.quorum_state_of(node)

    def received(self, endpoint: FakeEndpoint, count: int) -> None:
        """Observe that the bytes were handled, and compare the quorum state if they were pre-votes."""
        before, self._before = self._before, None
        node = node_of(endpoint.incoming.target.name) if before is not None else None
        if before is not None and node is not None:
            self._view.prevote_answered(node, before)

    # probes

    def _identified(self, controller: int, broker: int, answer: IdentifyResponse) -> None:
        meant = self._view.incarnation_of(controller, broker)
        if meant is not None:
            outcome = "SAME" if answer.incarnation_id == meant[0] else "OTHER"
            self._probe_ended(controller, broker, outcome)

    def ended(self, endpoint: FakeEndpoint, reason: CloseReason) -> None:
        """Observe the end of a connection. A probe on it that was not answered, or not even sent, has failed."""
        controller, broker = node_of(endpoint.outgoing.source.name), node_of(endpoint.outgoing.target.name)
        connection = endpoint.connection
        if not isinstance(connection, ClientConnection) or endpoint.listener == CONTROLLER_LISTENER:
            return
        if connection.in_flight and controller is not None and broker is not None:
            is_theirs = reason in (CloseReason.PEER, CloseReason.RESET)
            self._probe_ended(controller, broker, "CLOSED" if is_theirs else SILENT)

    def dial_failed(self, source: int, peer: Peer, outcome: DialOutcome) -> None:
        """Report a failed dial of a controller to a broker, which counts as a probe."""
        broker = node_of(peer.address.host)
        if broker is not None and peer.listener != CONTROLLER_LISTENER:
            self._probe_ended(source, broker, PROBE_FAILURES.get(outcome, SILENT))

    def _probe_ended(self, controller: int, broker: int, outcome: str) -> None:
        meant = self._view.incarnation_of(controller, broker)
        if meant is not None and self._view.is_voter(controller):
            self._tell(ProbeEnded(controller, broker, meant[1], outcome, self._now_ms()))


def _topic_key(name: str | None, topic_id: UUID | None) -> str | UUID:
    """Return the key of a topic in a request: its name, or from version 13 on its id."""
    return name or topic_id or ""
