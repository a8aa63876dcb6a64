"""Encode Produce, Fetch and ListOffsets requests of this client, and decode their responses.

Produce and Fetch are encoded by the codecs on raw buffers. ListOffsets is the newest class of `kraft.wire.messages`;
sending it projects it to the version of the connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kraft.client.core.fetch_session import SessionRequest
from kraft.client.core.records import TopicPartition
from kraft.client.core.topology import BrokerEndpoint, LeaderAndEpoch
from kraft.seam import Address, Buffer, FileRange
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchRequest, encode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response
from kraft.wire.messages.produce import FIRST_VERSION_WITH_TOPIC_ID, decode_produce_response, encode_produce_request
from kraft.wire.messages.tagged import CurrentLeader

NEWEST_BEFORE_V2_TRANSACTIONS = 11
"""The newest version of Produce with which a leader does not add partitions to a transaction: it only checks that the
client has added them."""


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """The result of one partition in a Produce response. Offsets and times are -1 if unknown."""

    code: ErrorCode
    base_offset: int
    log_append_time_ms: int
    message: str | None
    leader: LeaderAndEpoch | None
    leader_broker: BrokerEndpoint | None


@dataclass(frozen=True, slots=True)
class PartitionFetchResult:
    """One partition of a Fetch response. `records` has complete batches and possibly an incomplete last one."""

    code: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    diverging: tuple[int, int] | None
    leader: LeaderAndEpoch | None
    leader_broker: BrokerEndpoint | None
    preferred_replica: int
    records: bytes


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """A Fetch response: the error of the request, the session id, and the result of each partition."""

    code: ErrorCode
    session_id: int
    partitions: Mapping[TopicPartition, PartitionFetchResult]


def _group(partitions: Mapping[TopicPartition, Any]) -> dict[str, list[tuple[int, Any]]]:
    topics: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for (topic, partition), value in sorted(partitions.items()):
        topics[topic].append((partition, value))
    return topics


def produce_version(
    newest: int, topic_ids: Mapping[str, UUID | None], *, is_before_v2_transactions: bool = False
) -> int:
    """Return the version of Produce for a request with these topics. If the id of a topic is not known, it is the
    newest version that uses topic names. In a transaction before transaction.version 2, it is at most the newest
    version in which a leader does not add partitions to the transaction."""
    if is_before_v2_transactions:
        newest = min(newest, NEWEST_BEFORE_V2_TRANSACTIONS)
    return newest if all(topic_ids.values()) else min(newest, FIRST_VERSION_WITH_TOPIC_ID - 1)


def produce_request(
    version: int,
    acks: int,
    timeout_ms: int,
    batches: Mapping[TopicPartition, bytes],
    topic_ids: Mapping[str, UUID | None],
    transactional_id: str | None = None,
) -> Sequence[Buffer]:
    """Return a Produce request as a list of buffers, with one encoded batch per partition. `topic_ids` has the ids of
    all its topics."""
    topics = [(topic, topic_ids[topic], entries) for topic, entries in _group(batches).items()]
    return encode_produce_request(
        version, acks=acks, timeout_ms=timeout_ms, topics=topics, transactional_id=transactional_id
    )


def _leader(told: CurrentLeader | None) -> LeaderAndEpoch | None:
    return None if told is None or told.leader_id < 0 else LeaderAndEpoch(told.leader_id, told.leader_epoch)


def read_produce_response(
    version: int, body: Buffer, topic_ids: Mapping[str, UUID | None]
) -> dict[TopicPartition, ProduceAnswer]:
    """Decode the results by partition. `topic_ids` is the same as for the request."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    answer = decode_produce_response(version, body)
    brokers = {e.node_id: BrokerEndpoint(e.node_id, Address(e.host, e.port), e.rack) for e in answer.node_endpoints}
    told: dict[TopicPartition, ProduceAnswer] = {}
    for name, topic_id, results in answer.topics:
        topic = name or names.get(topic_id, "")
        for result in results:
            leader = _leader(result.current_leader)
            told[(topic, result.partition)] = ProduceAnswer(
                ErrorCode.of(result.error_code),
                result.base_offset,
                result.log_append_time_ms,
                result.error_message,
                leader,
                None if leader is None else brokers.get(leader.node_id),
            )
    return told


def fetch_request(
    version: int,
    session: SessionRequest,
    *,
    wait_ms: int,
    bytes_min: int,
    bytes_max: int,
    read_committed: bool,
    rack: str,
) -> bytes:
    """Encode a consumer's Fetch request."""
    return encode_fetch_request(
        version,
        FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=bytes_min,
            topics=session.topics,
            max_bytes=bytes_max,
            isolation_level=int(read_committed),
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            forgotten=session.forgotten,
            rack_id=rack,
        ),
    )


def read_fetch_response(
    version: int, body: Buffer, topic_of: Callable[[str | None, UUID | None], str | None]
) -> FetchAnswer:
    """Decode a Fetch response; the records are copied out of `body`. `topic_of(name, id)` returns the name of a topic
    that was requested."""
    answer = decode_fetch_response(version, body)
    brokers = {e.node_id: BrokerEndpoint(e.node_id, Address(e.host, e.port), e.rack) for e in answer.node_endpoints}
    told: dict[TopicPartition, PartitionFetchResult] = {}
    for name, topic_id, results in answer.topics:
        topic = topic_of(name, topic_id)
        if topic is None:
            continue
        for part in results:
            leader = _leader(part.current_leader)
            told[(topic, part.partition)] = PartitionFetchResult(
                ErrorCode.of(part.error_code),
                part.high_watermark,
                part.last_stable_offset,
                part.log_start_offset,
                tuple(part.aborted_transactions or ()),
                part.diverging_epoch,
                leader,
                None if leader is None else brokers.get(leader.node_id),
                part.preferred_read_replica,
                b"".join(bytes(chunk) for chunk in part.records if not isinstance(chunk, FileRange)),
            )
    return FetchAnswer(ErrorCode.of(answer.error_code), answer.session_id, told)


def list_offsets_request(targets: Mapping[TopicPartition, tuple[int, int]], *, read_committed: bool) -> Any:
    """Return a ListOffsets request. `targets` has, for each partition, the timestamp in ms (-1 latest, -2 earliest) and
    the leader epoch."""
    topics = tuple(
        {
            "name": topic,
            "partitions": tuple(
                {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
                for index, (timestamp, epoch) in entries
            ),
        }
        for topic, entries in _group(targets).items()
    )
    return messages.build(
        messages.request_class(ApiKey.LIST_OFFSETS),
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=topics,
    )


def read_list_offsets_response(answer: Any) -> dict[TopicPartition, tuple[ErrorCode, int, int]]:
    """Return (error, offset, leader epoch) of each partition."""
    return {
        (str(topic.name), int(p.partition_index)): (ErrorCode.of(int(p.error_code)), int(p.offset), int(p.leader_epoch))
        for topic in answer.topics
        for p in topic.partitions
    }
