"""Fetch handler: decode a request, find its session, then read, answer or park. The package docstring describes the
path of a request.

Source: FetchRequest 4 to 18, KIP-227, KIP-392, KIP-516.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.broker.api.fetch.partition_reading import FetchParams
from kraft.broker.api.fetch.pending_fetch import NO_TOPIC_ID, FetchOperation, FetchPorts
from kraft.broker.api.fetch.sessions import INITIAL_EPOCH, FetchSession, TopicKey
from kraft.broker.serving.turns import Steps
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import (
    FIRST_VERSION_WITH_RACK,
    FIRST_VERSION_WITH_TOPIC_ID,
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
    decode_fetch_request_in_steps,
)
from kraft.wire.messages.fetch_response import encode_fetch_response
from kraft.wire.request_meter import FETCH_CONSUMER, FETCH_FOLLOWER

if TYPE_CHECKING:
    from kraft.broker.serving.session import Session
    from kraft.wire.server import Request

CONSUMER = -1

TURN_BYTES = 512
"""Number of request bytes that count as one unit of a connection's turn. The partitions in this many bytes cost about
as much as a request for one partition."""
LONG_BYTES = 16 * 1024
"""Size in bytes above which a request is long. A long request names some hundreds of partitions and is handled in
turns."""
STEP_PARTITIONS = 256
"""Maximum number of partitions that one step adds to a new session; a topic without partitions counts as one."""


class FetchHandler:
    """The Fetch handler of one broker."""

    def __init__(self, ports: FetchPorts, *, bytes_max: int, selects_by_rack: bool) -> None:
        """`bytes_max` limits a response to a consumer (fetch.max.bytes). With `selects_by_rack`, consumers are sent to
        a replica in their rack (replica.selector.class)."""
        self._selects_by_rack = selects_by_rack
        self._ports = ports
        self._bytes_max = bytes_max
        self._clock = ports.loop.clock
        self._sessions = ports.sessions

    def handle(self, request: Request, session: Session) -> Steps | None:
        """Answer one fetch, now or when there is enough to return (`FetchOperation.start`). For a long fetch, return
        its steps, between which the dispatcher runs other work."""
        body = request.body
        if len(body) > LONG_BYTES:
            return self._begin_in_steps(request, session, bytes(body))
        if len(body) > TURN_BYTES:
            request.connection.spend(len(body) // TURN_BYTES)
        fetch = decode_fetch_request(request.api_version, body)
        kept = self._find_session(request, fetch)
        if kept is not None:
            _apply_request(kept, fetch)
            self._operation(request, session, fetch, kept).start()
        return None

    def _begin_in_steps(self, request: Request, session: Session, body: bytes) -> Steps:
        """Begin a long fetch in steps. A new session, which only this request uses, is filled in several steps. An
        existing session is changed in one step. Continues in `FetchOperation.start_long` or `start`."""
        memory = self._ports.gates.memory
        memory.take(len(body))
        try:
            yield
            fetch = yield from decode_fetch_request_in_steps(request.api_version, body)
            kept = self._find_session(request, fetch)
            if kept is None:
                return
            is_new = fetch.session_epoch <= INITIAL_EPOCH
            if is_new:
                yield from _fill_session_in_steps(kept, fetch)
            else:
                _apply_request(kept, fetch)
        finally:
            memory.give(len(body))
        operation = self._operation(request, session, fetch, kept)
        if is_new:
            operation.start_long()
        else:
            operation.start()

    def _find_session(self, request: Request, fetch: FetchRequest) -> FetchSession | None:
        """Return the session that the request continues or begins. If that fails, answer with the error and return
        None."""
        version = request.api_version
        kept = self._sessions.find(
            fetch.session_id,
            fetch.session_epoch,
            _replica_id(fetch),
            uses_topic_ids=version >= FIRST_VERSION_WITH_TOPIC_ID,
            now_ms=self._clock.monotonic_ms(),
        )
        timing, meter, is_consumer = request.timing, request.connection.meter, fetch.replica_id < 0
        (meter.consumer_fetches if is_consumer else meter.follower_fetches)[version] += 1
        if timing is not None:
            timing.fetch_name = FETCH_CONSUMER if is_consumer else FETCH_FOLLOWER
        if isinstance(kept, ErrorCode):
            meter.count_error(request.api_key, kept)
            request.respond(*encode_fetch_response(version, (), error_code=kept))
            return None
        return kept

    def _operation(self, request: Request, session: Session, fetch: FetchRequest, kept: FetchSession) -> FetchOperation:
        """Return a FetchOperation for the partitions of the session. The caller starts it."""
        version, replica_id = request.api_version, _replica_id(fetch)
        if kept.session_id and not kept.partitions:
            self._sessions.remove(kept.session_id)
            kept.session_id = 0
        bytes_max = fetch.max_bytes
        if replica_id == CONSUMER:
            bytes_max = min(bytes_max, self._bytes_max)
        return FetchOperation(
            self._ports,
            request,
            session,
            kept,
            FetchParams(
                version,
                replica_id,
                fetch.replica_epoch,
                fetch.isolation_level == 1,
                fetch.rack_id,
                self._selects_by_rack and version >= FIRST_VERSION_WITH_RACK and replica_id == CONSUMER,
            ),
            session_epoch=fetch.session_epoch,
            max_wait_ms=fetch.max_wait_ms,
            min_bytes=fetch.min_bytes,
            bytes_max=bytes_max,
        )


def _replica_id(fetch: FetchRequest) -> int:
    return fetch.replica_id if fetch.replica_id >= 0 else CONSUMER


def _apply_request(kept: FetchSession, fetch: FetchRequest) -> None:
    """Add, change and remove the partitions that the request names in the session."""
    kept.read_committed = fetch.isolation_level == 1
    kept.named = []
    for name, topic_id, indexes in fetch.forgotten:
        key = _topic_key(name, topic_id)
        kept.forget((key, index) for index in indexes)
    for name, topic_id, partitions in fetch.topics:
        _request_partitions(kept, _topic_key(name, topic_id), partitions)
    if fetch.session_epoch > INITIAL_EPOCH:
        for entry in kept.named:
            kept.dirty.setdefault(entry)
    kept.name_again()


def _fill_session_in_steps(kept: FetchSession, fetch: FetchRequest) -> Steps:
    """Add the request's partitions to a new session, in steps."""
    kept.read_committed = fetch.isolation_level == 1
    added = 0
    for name, topic_id, partitions in fetch.topics:
        key = _topic_key(name, topic_id)
        added += 1
        for start in range(0, len(partitions), STEP_PARTITIONS):
            _request_partitions(kept, key, partitions[start : start + STEP_PARTITIONS])
            added += min(len(partitions), STEP_PARTITIONS)
        if added >= STEP_PARTITIONS:
            added = 0
            yield


def _topic_key(name: str | None, topic_id: UUID | None) -> TopicKey:
    return name if name is not None else topic_id or NO_TOPIC_ID


def _request_partitions(kept: FetchSession, key: TopicKey, requested: Sequence[FetchPartition]) -> None:
    for partition in requested:
        entry = kept.partition(key, partition.partition)
        entry.set_request(
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        kept.named.append(entry)
