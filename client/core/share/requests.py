"""ShareFetch and ShareAcknowledge requests, and their responses as values.

Both responses have the results of acknowledgements; only a ShareFetch response has records.
Source: ShareFetchRequest, ShareAcknowledgeRequest, KIP-932, KIP-1206, KIP-1222.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kraft.client.core.share.acknowledging import PendingAcknowledgements, typed_offsets
from kraft.client.core.share.acquired import AcquiredRange
from kraft.client.core.share.records import TopicIdPartition
from kraft.client.core.share.session import SessionRequest
from kraft.client.core.topology import BrokerEndpoint, LeaderAndEpoch
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

BATCH_OPTIMIZED_MODE, RECORD_LIMIT_MODE = 0, 1


class ShareMemberId(NamedTuple):
    """A member of a share group, as in its requests."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchSize:
    """The limits of a ShareFetch: how long it waits, and how much it acquires. With `is_record_limit`, no record more
    than `records_max` is acquired. Otherwise the rest of a log batch is acquired as well."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    records_max: int
    is_record_limit: bool = False


class PartitionShareResult(NamedTuple):
    """One partition of a response: the errors of its fetch and of its acknowledgements, the leader that the broker has
    named, and the acquired records."""

    code: ErrorCode
    message: str
    acknowledge_code: ErrorCode
    acknowledge_message: str
    leader: LeaderAndEpoch | None
    leader_broker: BrokerEndpoint | None
    records: bytes = b""
    acquired: tuple[AcquiredRange, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareAnswer:
    """A response. `lock_ms` is the duration of locks; 0 if the response does not have it."""

    code: ErrorCode
    message: str
    lock_ms: int
    partitions: Mapping[TopicIdPartition, PartitionShareResult]


def share_fetch_message(member: ShareMemberId, request: SessionRequest, size: ShareFetchSize) -> Any:
    """Return a ShareFetch."""
    key = ApiKey.SHARE_FETCH
    forgotten = tuple(
        {"topic_id": topic_id, "partitions": tuple(index for index, _ in rows)}
        for topic_id, rows in _by_topic(dict.fromkeys(request.forgotten)).items()
    )
    return messages.build(
        messages.request_class(key),
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=request.epoch,
        max_wait=messages.duration(size.wait_ms),
        min_bytes=size.bytes_min,
        max_bytes=size.bytes_max,
        max_records=size.records_max,
        batch_size=size.records_max,
        share_acquire_mode=RECORD_LIMIT_MODE if size.is_record_limit else BATCH_OPTIMIZED_MODE,
        topics=_topics(request.added, request.acknowledged),
        forgotten_topics_data=forgotten,
    )


def share_acknowledge_message(member: ShareMemberId, request: SessionRequest) -> Any:
    """Return a ShareAcknowledge."""
    return messages.build(
        messages.request_class(ApiKey.SHARE_ACKNOWLEDGE),
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=request.epoch,
        is_renew_ack=request.has_renewals,
        topics=_topics((), request.acknowledged),
    )


def _topics(
    added: Iterable[TopicIdPartition], acknowledged: Mapping[TopicIdPartition, PendingAcknowledgements]
) -> Sequence[dict[str, object]]:
    rows: dict[TopicIdPartition, PendingAcknowledgements | None] = {**dict.fromkeys(added), **acknowledged}
    return tuple(
        {
            "topic_id": topic_id,
            "partitions": tuple(
                {"partition_index": index, "acknowledgement_batches": _batches(pending)} for index, pending in entries
            ),
        }
        for topic_id, entries in _by_topic(rows).items()
    )


def _batches(pending: PendingAcknowledgements | None) -> tuple[dict[str, object], ...]:
    batches = () if pending is None else typed_offsets(pending.types)
    return tuple(
        {"first_offset": one.first, "last_offset": one.last, "acknowledge_types": one.types} for one in batches
    )


def _by_topic(partitions: Mapping[TopicIdPartition, Any]) -> dict[Any, list[tuple[int, Any]]]:
    topics: dict[Any, list[tuple[int, Any]]] = defaultdict(list)
    for (topic_id, index), value in sorted(partitions.items(), key=lambda entry: entry[0]):
        topics[topic_id].append((index, value))
    return topics


def read_share_fetch(answer: Any) -> ShareAnswer:
    """Return a ShareFetch response as a value."""
    brokers = _brokers(answer)
    partitions: dict[TopicIdPartition, PartitionShareResult] = {}
    for topic in answer.responses:
        for row in topic.partitions:
            leader = _leader(row.current_leader)
            partitions[(topic.topic_id, int(row.partition_index))] = PartitionShareResult(
                ErrorCode.of(int(row.error_code)),
                row.error_message or "",
                ErrorCode.of(int(row.acknowledge_error_code)),
                row.acknowledge_error_message or "",
                leader,
                None if leader is None else brokers.get(leader.node_id),
                bytes(row.records or b""),
                tuple(
                    AcquiredRange(int(one.first_offset), int(one.last_offset), int(one.delivery_count))
                    for one in row.acquired_records
                ),
            )
    return _answer(answer, partitions)


def read_share_acknowledge(answer: Any) -> ShareAnswer:
    """Return a ShareAcknowledge response as a value."""
    brokers = _brokers(answer)
    partitions: dict[TopicIdPartition, PartitionShareResult] = {}
    for topic in answer.responses:
        for row in topic.partitions:
            code, leader = ErrorCode.of(int(row.error_code)), _leader(row.current_leader)
            broker = None if leader is None else brokers.get(leader.node_id)
            result = PartitionShareResult(ErrorCode.NONE, "", code, row.error_message or "", leader, broker)
            partitions[(topic.topic_id, int(row.partition_index))] = result
    return _answer(answer, partitions)


def _answer(answer: Any, partitions: Mapping[TopicIdPartition, PartitionShareResult]) -> ShareAnswer:
    lock_ms = messages.milliseconds(answer.acquisition_lock_timeout)
    return ShareAnswer(ErrorCode.of(int(answer.error_code)), answer.error_message or "", lock_ms, partitions)


def _leader(named: Any) -> LeaderAndEpoch | None:
    known = int(named.leader_id) >= 0 and int(named.leader_epoch) >= 0
    return LeaderAndEpoch(int(named.leader_id), int(named.leader_epoch)) if known else None


def _brokers(answer: Any) -> dict[int, BrokerEndpoint]:
    return {
        int(one.node_id): BrokerEndpoint(int(one.node_id), Address(one.host, int(one.port)), one.rack)
        for one in answer.node_endpoints
    }
