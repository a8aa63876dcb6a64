"""The eye on the wire: frames are put together from what leaves each node, decoded, and told as observations.

Only what the checks need is decoded: the quorum's messages, heartbeats and probes, and Produce.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kraft.seam import DialOutcome, Peer
from kraft.sim.check.observations import (
    EpochClaimed,
    FetchSent,
    HeartbeatHandled,
    Observation,
    ProbeAnswered,
    TopicPartition,
    VoteGranted,
)
from kraft.sim.cluster.shape import node_of
from kraft.sim.world.endpoint import Endpoint
from kraft.sim.world.streams import Stream
from kraft.wire.api_keys import ApiKey
from kraft.wire.client import ClientConnection
from kraft.wire.produce import decode_produce_request, decode_produce_response
from kraft.wire.records import read_header
from kraft.wire.rpc import InternalKey, decode_rpc_request, decode_rpc_response
from kraft.wire.rpc_cluster import HeartbeatRequest, IdentifyResponse
from kraft.wire.rpc_quorum import MetadataFetchRequest, VoteRequest, VoteResponse

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
FLEXIBLE_PRODUCE = 9


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request whose answer has not left: what it was, and for Produce the batches by partition."""

    key: int
    version: int
    message: Any


@dataclass(slots=True)
class _Direction:
    """One direction of a connection: bytes that are no whole frame yet, and requests by correlation id."""

    buffer: bytearray = field(default_factory=bytearray)
    asked: dict[int, _Asked] = field(default_factory=dict)


class ClusterView(Protocol):
    """What the eye must ask of the run."""

    def incarnation_of(self, broker: int) -> tuple[Any, int] | None:
        """(incarnation id, broker epoch) that the controllers' probes mean by this broker."""
        ...

    def directory_of(self, node: int) -> str: ...

    def produce_answered(self, node: int, topic_partition: TopicPartition, base_offset: int, next_offset: int) -> None:
        """A success for acks=all leaves this node."""
        ...

    def prevote_answered(self, node: int) -> None: ...


class WireEye:
    """Reads every stream of the world."""

    def __init__(self, view: ClusterView, tell: Callable[[Observation], None], now_ms: Callable[[], int]) -> None:
        self._view = view
        self._tell = tell
        self._now_ms = now_ms
        self._streams: dict[Stream, _Direction] = {}

    def sending(self, endpoint: Endpoint, data: bytes) -> None:
        """Bytes leave; whole frames are looked at."""
        source, target = node_of(endpoint.outgoing.source.name), node_of(endpoint.outgoing.target.name)
        if source is None and target is None:
            return
        is_request = isinstance(endpoint.connection, ClientConnection)
        direction = self._streams.setdefault(endpoint.outgoing, _Direction())
        buffer = direction.buffer
        buffer += data
        position = 0
        while len(buffer) - position >= _SIZE.size:
            size: int = _SIZE.unpack_from(buffer, position)[0]
            start = position + _SIZE.size
            if len(buffer) - start < size:
                break
            frame = memoryview(bytes(buffer[start : start + size]))
            position = start + size
            if is_request:
                self._request(direction, source, frame)
            else:
                back = self._streams.setdefault(endpoint.incoming, _Direction())
                self._answer(back, source, target, frame)
        del buffer[:position]

    def _request(self, direction: _Direction, source: int | None, frame: memoryview) -> None:
        key, version, correlation_id, client_id_size = _HEAD.unpack_from(frame, 0)
        body = frame[_HEAD.size + max(0, client_id_size) :]
        if key in QUORUM_KEYS or key in (InternalKey.HEARTBEAT, InternalKey.IDENTIFY):
            message = decode_rpc_request(key, version, body)
            direction.asked[correlation_id] = _Asked(key, version, message)
            if source is not None and key in QUORUM_KEYS:
                self._quorum_request(source, message)
        elif key == ApiKey.PRODUCE:
            produce = decode_produce_request(version, body[1:] if version >= FLEXIBLE_PRODUCE else body)
            if produce.acks == -1:
                counts = {
                    (name or "", index): read_header(records).last_offset_delta + 1
                    for name, _, partitions in produce.topics
                    for index, records in partitions
                    if records is not None
                }
                direction.asked[correlation_id] = _Asked(key, version, counts)

    def _quorum_request(self, source: int, message: Any) -> None:
        if isinstance(message, VoteRequest):
            if not message.pre_vote:
                self._tell(EpochClaimed(source, message.epoch, -1))
            return
        leader = getattr(message, "leader_id", -1)
        self._tell(EpochClaimed(source, message.epoch, leader))
        if isinstance(message, MetadataFetchRequest):
            self._tell(FetchSent(source, message.epoch, message.fetch_offset))

    def _answer(self, direction: _Direction, source: int | None, target: int | None, frame: memoryview) -> None:
        asked = direction.asked.pop(_SIZE.unpack_from(frame, 0)[0], None)
        if asked is None or source is None:
            return
        body = frame[_SIZE.size :]
        if asked.key in QUORUM_KEYS:
            self._quorum_answer(source, asked.message, decode_rpc_response(asked.key, asked.version, body))
        elif asked.key == InternalKey.HEARTBEAT and isinstance(asked.message, HeartbeatRequest):
            request = asked.message
            self._tell(HeartbeatHandled(source, request.broker_id, request.broker_epoch, self._now_ms()))
        elif asked.key == InternalKey.IDENTIFY and target is not None:
            self._identified(target, source, decode_rpc_response(asked.key, asked.version, body))
        elif asked.key == ApiKey.PRODUCE:
            self._produced(source, asked, body)

    def _quorum_answer(self, source: int, request: Any, answer: Any) -> None:
        self._tell(EpochClaimed(source, answer.epoch, answer.leader_id))
        if not isinstance(request, VoteRequest) or not isinstance(answer, VoteResponse):
            return
        if request.pre_vote:
            self._view.prevote_answered(source)
        elif answer.vote_granted:
            claim = (request.last_epoch, request.last_offset)
            directory = self._view.directory_of(source)
            self._tell(VoteGranted(source, directory, request.epoch, request.candidate_id, claim))

    def _identified(self, controller: int, broker: int, answer: Any) -> None:
        meant = self._view.incarnation_of(broker)
        if meant is None or not isinstance(answer, IdentifyResponse):
            return
        outcome = "SAME" if answer.incarnation_id == meant[0] else "OTHER"
        self._tell(ProbeAnswered(controller, broker, meant[1], outcome, self._now_ms()))

    def dial_failed(self, source: int, peer: Peer, outcome: DialOutcome) -> None:
        """A controller's dial to a broker is a probe."""
        broker = node_of(peer.address.host)
        if broker is None or peer.listener == "CONTROLLER":
            return
        meant = self._view.incarnation_of(broker)
        told = {DialOutcome.REFUSED: "REFUSED", DialOutcome.RESET: "CLOSED"}.get(outcome, "SILENT")
        if meant is not None:
            self._tell(ProbeAnswered(source, broker, meant[1], told, self._now_ms()))

    def _produced(self, source: int, asked: _Asked, body: memoryview) -> None:
        answer = decode_produce_response(asked.version, body[1:] if asked.version >= FLEXIBLE_PRODUCE else body)
        for name, _, results in answer.topics:
            for result in results:
                count = asked.message.get((name or "", result.partition))
                if result.error_code == 0 and count is not None and result.base_offset >= 0:
                    place = (name or "", result.partition)
                    self._view.produce_answered(source, place, result.base_offset, result.base_offset + count)
