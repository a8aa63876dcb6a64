"""Fetch: find the session, then read, answer or park. Source: FetchRequest 4 to 18, KIP-227, KIP-392, KIP-516."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.broker.api.fetch.partition_reading import FetchParams
from kraft.broker.api.fetch.pending_fetch import NO_TOPIC_ID, FetchOperation
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
    from kraft.broker.node.broker import Broker
    from kraft.broker.serving.session import Session
    from kraft.wire.server import Request

CONSUMER = -1


TURN_BYTES = 512
"""Of a request, what names so many partitions that they cost about what a request of one does."""
LONG_BYTES = 16 * 1024
"""A longer request names so many partitions, some hundreds, that it is handled in turns."""
STEP_PARTITIONS = 256
"""Partitions, or topics with none, that a new session gets in one step."""


def handle_fetch(broker: Broker, request: Request, session: Session) -> Steps | None:
    """Answer one fetch, now or when there is enough; a long one in turns."""
    body = request.body
    if len(body) > LONG_BYTES:
        return _fetch_in_turns(broker, request, session, bytes(body))
    if len(body) > TURN_BYTES:
        request.connection.spend(len(body) // TURN_BYTES)
    fetch = decode_fetch_request(request.api_version, body)
    kept = _find_session(broker, request, fetch)
    if kept is not None:
        _take_wishes(kept, fetch)
        _operation(broker, request, session, fetch, kept).start()
    return None


def _fetch_in_turns(broker: Broker, request: Request, session: Session, body: bytes) -> Steps:
    """Begin one fetch in steps. Only this request knows a new session, so it may take several; a session that goes on
    changes in one."""
    memory = broker.gates.memory
    memory.take(len(body))
    try:
        yield
        fetch = yield from decode_fetch_request_in_steps(request.api_version, body)
        kept = _find_session(broker, request, fetch)
        if kept is None:
            return
        is_new = fetch.session_epoch <= INITIAL_EPOCH
        if is_new:
            yield from _begin_session(kept, fetch)
        else:
            _take_wishes(kept, fetch)
    finally:
        memory.give(len(body))
    operation = _operation(broker, request, session, fetch, kept)
    if is_new:
        operation.start_long()
    else:
        operation.start()


def _find_session(broker: Broker, request: Request, fetch: FetchRequest) -> FetchSession | None:
    """The session that the request goes on with or begins. None if there is no such session, and that was told."""
    version = request.api_version
    replicas = broker.replicas
    kept = replicas.fetch_sessions.find(
        fetch.session_id,
        fetch.session_epoch,
        _replica_id(fetch),
        uses_topic_ids=version >= FIRST_VERSION_WITH_TOPIC_ID,
        now_ms=replicas.clock.monotonic_ms(),
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


def _replica_id(fetch: FetchRequest) -> int:
    return fetch.replica_id if fetch.replica_id >= 0 else CONSUMER


def _operation(
    broker: Broker, request: Request, session: Session, fetch: FetchRequest, kept: FetchSession
) -> FetchOperation:
    """What the session now asks for, as an operation that has not begun."""
    version, replica_id = request.api_version, _replica_id(fetch)
    replicas = broker.replicas
    if kept.session_id and not kept.partitions:
        replicas.fetch_sessions.remove(kept.session_id)
        kept.session_id = 0
    bytes_max = fetch.max_bytes
    if replica_id == CONSUMER:
        bytes_max = min(bytes_max, replicas.fetch_bytes_max)
    return FetchOperation(
        broker,
        request,
        session,
        kept,
        FetchParams(
            version,
            replica_id,
            fetch.replica_epoch,
            fetch.isolation_level == 1,
            fetch.rack_id,
            replicas.selects_by_rack and version >= FIRST_VERSION_WITH_RACK and replica_id == CONSUMER,
        ),
        session_epoch=fetch.session_epoch,
        max_wait_ms=fetch.max_wait_ms,
        min_bytes=fetch.min_bytes,
        bytes_max=bytes_max,
    )


def _take_wishes(kept: FetchSession, fetch: FetchRequest) -> None:
    """Add and change the session's partitions as the request says, and drop the forgotten ones."""
    kept.read_committed = fetch.isolation_level == 1
    kept.named = []
    for name, topic_id, indexes in fetch.forgotten:
        key = _topic_key(name, topic_id)
        kept.forget((key, index) for index in indexes)
    for name, topic_id, partitions in fetch.topics:
        _want(kept, _topic_key(name, topic_id), partitions)
    if fetch.session_epoch > INITIAL_EPOCH:
        for entry in kept.named:
            kept.dirty.setdefault(entry)
    kept.name_unheard()


def _begin_session(kept: FetchSession, fetch: FetchRequest) -> Steps:
    """The same for a new session, in steps."""
    kept.read_committed = fetch.isolation_level == 1
    wanted = 0
    for name, topic_id, partitions in fetch.topics:
        key = _topic_key(name, topic_id)
        wanted += 1
        for start in range(0, len(partitions), STEP_PARTITIONS):
            _want(kept, key, partitions[start : start + STEP_PARTITIONS])
            wanted += min(len(partitions), STEP_PARTITIONS)
        if wanted >= STEP_PARTITIONS:
            wanted = 0
            yield


def _topic_key(name: str | None, topic_id: UUID | None) -> TopicKey:
    return name if name is not None else topic_id or NO_TOPIC_ID


def _want(kept: FetchSession, key: TopicKey, wishes: Sequence[FetchPartition]) -> None:
    for wish in wishes:
        entry = kept.partition(key, wish.partition)
        entry.want(
            wish.fetch_offset,
            wish.partition_max_bytes,
            wish.current_leader_epoch,
            wish.last_fetched_epoch,
            wish.log_start_offset,
        )
        kept.named.append(entry)
