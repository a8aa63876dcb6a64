"""Fetch: find the session, then read, answer or park. Source: FetchRequest 4 to 18; broker-spec 4.3, 4.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.node.fetch_sessions import INITIAL_EPOCH, FetchSession
from kraft.broker.node.fetching import NO_TOPIC_ID, FetchOperation
from kraft.broker.node.partition_reading import FetchParams
from kraft.wire.error_codes import ErrorCode
from kraft.wire.fetch import FIRST_VERSION_WITH_RACK, FIRST_VERSION_WITH_TOPIC_ID, FetchRequest, decode_fetch_request
from kraft.wire.fetch_response import encode_fetch_response
from kraft.wire.request_meter import FETCH_CONSUMER, FETCH_FOLLOWER

if TYPE_CHECKING:
    from kraft.broker.node.services import BrokerServices
    from kraft.broker.node.session import Session
    from kraft.wire.server import Request

CONSUMER = -1


TURN_BYTES = 512
"""Of a request, what names so many partitions that they cost about what a request of one does."""


def handle_fetch(broker: BrokerServices, request: Request, session: Session) -> None:
    """Answer one fetch, now or when there is enough."""
    version = request.api_version
    body = request.body
    if len(body) > TURN_BYTES:
        request.connection.spend(len(body) // TURN_BYTES)
    fetch = decode_fetch_request(version, body)
    replicas = broker.replicas
    now_ms = replicas.clock.monotonic_ms()
    replica_id = fetch.replica_id if fetch.replica_id >= 0 else CONSUMER
    kept = replicas.fetch_sessions.find(
        fetch.session_id,
        fetch.session_epoch,
        replica_id,
        uses_topic_ids=version >= FIRST_VERSION_WITH_TOPIC_ID,
        now_ms=now_ms,
    )
    timing = request.timing
    if replica_id != CONSUMER:
        request.connection.meter.follower_fetches[version] += 1
    if timing is not None:
        timing.fetch_name = FETCH_CONSUMER if replica_id == CONSUMER else FETCH_FOLLOWER
    if isinstance(kept, ErrorCode):
        request.connection.meter.fetch_failed(kept)
        request.respond(*encode_fetch_response(version, (), error_code=kept))
        return
    _take_wishes(kept, fetch)
    if kept.session_id and not kept.partitions:
        replicas.fetch_sessions.remove(kept.session_id)
        kept.session_id = 0
    bytes_max = fetch.max_bytes
    if replica_id == CONSUMER:
        bytes_max = min(bytes_max, replicas.fetch_bytes_max)
    operation = FetchOperation(
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
    operation.start()


def _take_wishes(kept: FetchSession, fetch: FetchRequest) -> None:
    """Add and change the session's partitions as the request says, and drop the forgotten ones."""
    kept.read_committed = fetch.isolation_level == 1
    kept.named = []
    is_incremental = fetch.session_epoch > INITIAL_EPOCH
    for name, topic_id, indexes in fetch.forgotten:
        key = name if name is not None else topic_id or NO_TOPIC_ID
        kept.forget((key, index) for index in indexes)
    for name, topic_id, partitions in fetch.topics:
        key = name if name is not None else topic_id or NO_TOPIC_ID
        for wish in partitions:
            entry = kept.partition(key, wish.partition)
            entry.want(
                wish.fetch_offset,
                wish.partition_max_bytes,
                wish.current_leader_epoch,
                wish.last_fetched_epoch,
                wish.log_start_offset,
            )
            kept.named.append(entry)
            if is_incremental:
                kept.dirty.setdefault(entry)
    kept.name_unheard()
