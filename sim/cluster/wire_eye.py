"""The eye on the wire: frames are put together from what leaves each node, decoded, and told as observations.

What a message promises is told when it leaves; what it changes at its receiver is told when its last byte is about to
be handled there, so that what is lost on the way never counts. Only what the checks need is decoded: the quorum's
messages, registrations, heartbeats and probes, and Produce; what else clients are told is the client eye's.
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
    ProbeAnswered,
    QuorumFetchHandled,
    TopicPartition,
    VoteGranted,
)
from kraft.sim.cluster.client_eye import CLIENT_KEYS, ClientEye, Leaders
from kraft.sim.cluster.shape import CONTROLLER_LISTENER, node_of
from kraft.sim.world.endpoint import Endpoint
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
    """A batch of an acks=all request: the log that it is for, its record count, and where the leader's log ended when
    the request left."""

    log: TopicPartition
    count: int
    log_end_then: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request whose answer has not left: what it was, and for Produce the batches by partition."""

    key: int
    version: int
    message: Any


@dataclass(slots=True)
class Direction:
    """One direction of a connection. `asked` are requests that went this way and were not answered; `due` is what to
    tell when the receiver is about to handle the last byte up to a position."""

    rest: bytes = b""
    asked: dict[int, _Asked] = field(default_factory=dict)
    sent: int = 0
    handled: int = 0
    due: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)
    ballots: deque[tuple[int, bool]] = field(default_factory=deque)
    """Where requests to a voter end in the stream, and whether each is a pre-vote."""

    def frames(self, data: bytes) -> Iterator[memoryview]:
        """The whole frames that end in `data`, without their size."""
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
        """Call `tell` when the frame that is being looked at has all arrived and its receiver is about to handle it."""
        self.due.append((self.sent, tell))


class ClusterView(Leaders, Protocol):
    """What the eye asks of, and tells to, the run."""

    def incarnation_of(self, controller: int, broker: int) -> tuple[UUID, int] | None:
        """(incarnation id, broker epoch) that this controller's probes mean by this broker."""
        ...

    def directory_of(self, node: int) -> str: ...

    def is_voter(self, node: int) -> bool: ...

    def quorum_state_of(self, node: int) -> tuple[int, int, int]:
        """(epoch, leader id, voted id) in the node's memory."""
        ...

    def fetched(self, voter: int, leader: int, epoch: int, endpoint: Endpoint) -> None:
        """A voter's fetch is about to be handled by the node that it takes for the leader of `epoch`."""
        ...

    def heartbeat_handled(self, controller: int, request: HeartbeatRequest, connection: int) -> None: ...

    def forward_handled(self, controller: int, request: ForwardRequest) -> None:
        """A client's request, which a broker hands on, is about to be handled."""
        ...

    def registered(self, controller: int, broker: int, broker_epoch: int, connection: int) -> None:
        """A registration's success leaves the controller."""
        ...

    def hosted_log(self, node: int, topic: str | UUID, partition: int) -> TopicPartition | None:
        """The log that a node means by a topic's name or id; None if it hosts none."""
        ...

    def log_end(self, node: int, log: TopicPartition) -> int: ...

    def produce_answered(self, node: int, base_offset: int, batch: ProducedBatch) -> None:
        """A success for acks=all leaves this node."""
        ...

    def produce_acknowledged(self, base_offset: int, batch: ProducedBatch) -> None:
        """It has reached the client."""
        ...

    def prevote_answered(self, node: int, before: tuple[int, int, int]) -> None: ...


class WireEye:
    """Reads every stream of the world that a node of the cluster has an end of."""

    def __init__(self, view: ClusterView, tell: Callable[[Observation], None], now_ms: Callable[[], int]) -> None:
        self._view = view
        self._tell = tell
        self._now_ms = now_ms
        self._clients = ClientEye(view, tell)
        self._streams: dict[Stream, Direction] = {}
        self._before: tuple[int, int, int] | None = None

    def _direction(self, stream: Stream) -> Direction:
        direction = self._streams.get(stream)
        if direction is None:
            direction = self._streams[stream] = Direction()
        return direction

    # what leaves

    def sending(self, endpoint: Endpoint, data: bytes) -> None:
        """Bytes leave; whole frames are looked at."""
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
        self, endpoint: Endpoint, direction: Direction, source: int | None, target: int | None, frame: memoryview
    ) -> None:
        key, version, correlation_id, client_id_size = _HEAD.unpack_from(frame, 0)
        body = frame[_HEAD.size + max(0, client_id_size) :]
        if key in QUORUM_KEYS and source is not None:
            message = decode_rpc_request(key, version, body)
            direction.asked[correlation_id] = _Asked(key, version, message)
            self._quorum_request(endpoint, direction, source, target, message)
        elif key in BROKER_KEYS:
            message = decode_rpc_request(key, version, body)
            direction.asked[correlation_id] = _Asked(key, version, message)
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
            client_asked = self._clients.asked(key, version, body)
            direction.asked[correlation_id] = _Asked(key, version, client_asked)
            direction.when_handled(partial(self._clients.handled, client_asked))

    def _quorum_request(
        self, endpoint: Endpoint, direction: Direction, source: int, target: int | None, message: Any
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
        self, direction: Direction, target: int, correlation_id: int, version: int, body: memoryview
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
        direction.asked[correlation_id] = _Asked(ApiKey.PRODUCE, version, batches)

    def _answer(
        self,
        endpoint: Endpoint,
        direction: Direction,
        source: int,
        target: int | None,
        asked: _Asked,
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

    def _produced(self, direction: Direction, source: int, asked: _Asked, body: memoryview) -> None:
        answer = decode_produce_response(asked.version, body[1:] if asked.version >= FLEXIBLE_PRODUCE else body)
        for name, topic_id, results in answer.topics:
            for result in results:
                batch = asked.message.get((_topic_key(name, topic_id), result.partition))
                if result.error_code == 0 and batch is not None and result.base_offset >= 0:
                    self._view.produce_answered(source, result.base_offset, batch)
                    direction.when_handled(partial(self._view.produce_acknowledged, result.base_offset, batch))

    # what arrives

    def receiving(self, endpoint: Endpoint, count: int) -> None:
        """Bytes are about to be handled. A heartbeat counts before what it leads to; a pre-vote changes nothing."""
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

    def received(self, endpoint: Endpoint, count: int) -> None:
        """They were handled."""
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

    def ended(self, endpoint: Endpoint, reason: CloseReason) -> None:
        """A connection is over: a probe on it that was not answered, or could not even leave, has failed."""
        controller, broker = node_of(endpoint.outgoing.source.name), node_of(endpoint.outgoing.target.name)
        connection = endpoint.connection
        if not isinstance(connection, ClientConnection) or endpoint.listener == CONTROLLER_LISTENER:
            return
        if connection.in_flight and controller is not None and broker is not None:
            is_theirs = reason in (CloseReason.PEER, CloseReason.RESET)
            self._probe_ended(controller, broker, "CLOSED" if is_theirs else SILENT)

    def dial_failed(self, source: int, peer: Peer, outcome: DialOutcome) -> None:
        """A controller's dial to a broker is a probe."""
        broker = node_of(peer.address.host)
        if broker is not None and peer.listener != CONTROLLER_LISTENER:
            self._probe_ended(source, broker, PROBE_FAILURES.get(outcome, SILENT))

    def _probe_ended(self, controller: int, broker: int, outcome: str) -> None:
        meant = self._view.incarnation_of(controller, broker)
        if meant is not None and self._view.is_voter(controller):
            self._tell(ProbeAnswered(controller, broker, meant[1], outcome, self._now_ms()))


def _topic_key(name: str | None, topic_id: UUID | None) -> str | UUID:
    """How a request names a topic: by name, or from version 13 on by id."""
    return name or topic_id or ""
