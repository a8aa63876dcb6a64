"""Produce, Fetch and ListOffsets of this client: requests from values, and what their answers say.

Messages are the newest classes of `kraft.wire.messages`; whoever sends them projects to the version on the wire.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kraft.client.core.records import TopicPartition
from kraft.client.core.topology import Broker, Leader
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """A broker's word on one partition of a Produce request. Offsets and times are -1 where there are none."""

    code: ErrorCode
    base_offset: int
    log_append_time_ms: int
    message: str | None
    leader: Leader | None
    leader_broker: Broker | None


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """Where a consumer stands in a partition: the next offset, and the epoch of the batch before it."""

    offset: int
    last_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of a Fetch answer. `records` holds whole and possibly one last partial batch."""

    code: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    diverging: tuple[int, int] | None
    leader: Leader | None
    preferred_replica: int
    records: bytes


def _group(partitions: Mapping[TopicPartition, Any]) -> dict[str, list[tuple[int, Any]]]:
    topics: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for (topic, partition), value in sorted(partitions.items()):
        topics[topic].append((partition, value))
    return topics


def produce_request(acks: int, timeout_ms: int, batches: Mapping[TopicPartition, bytes]) -> Any:
    """A Produce request with one encoded batch per partition."""
    topics = tuple(
        {"name": topic, "partition_data": tuple({"index": index, "records": data} for index, data in entries)}
        for topic, entries in _group(batches).items()
    )
    return messages.build(
        messages.request_class(ApiKey.PRODUCE),
        transactional_id=None,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=topics,
    )


def _leader(value: Any) -> Leader | None:
    return None if value is None or value.leader_id < 0 else Leader(int(value.leader_id), int(value.leader_epoch))


def _milliseconds(moment: Any) -> int:
    """kio gives a datetime, or None for -1."""
    return -1 if moment is None else round(moment.timestamp() * 1000)


def read_produce_response(answer: Any) -> dict[TopicPartition, ProduceAnswer]:
    """What the broker said of each partition."""
    brokers = {
        int(e.node_id): Broker(int(e.node_id), Address(e.host, int(e.port)), e.rack) for e in answer.node_endpoints
    }
    told: dict[TopicPartition, ProduceAnswer] = {}
    for topic in answer.responses:
        for partition in topic.partition_responses:
            leader = _leader(partition.current_leader)
            told[(str(topic.name), int(partition.index))] = ProduceAnswer(
                ErrorCode(int(partition.error_code)),
                int(partition.base_offset),
                _milliseconds(partition.log_append_time),
                partition.error_message,
                leader,
                None if leader is None else brokers.get(leader.node_id),
            )
    return told


def fetch_request(
    positions: Mapping[TopicPartition, tuple[FetchPosition, int]],
    *,
    wait_ms: int,
    bytes_min: int,
    bytes_max: int,
    partition_bytes_max: int,
    read_committed: bool,
    rack: str,
) -> Any:
    """A sessionless Fetch. `positions` gives, per partition, the position and the leader epoch it was learnt with."""
    topics = tuple(
        {
            "topic": topic,
            "partitions": tuple(
                {
                    "partition": index,
                    "current_leader_epoch": epoch,
                    "fetch_offset": position.offset,
                    "last_fetched_epoch": position.last_epoch,
                    "partition_max_bytes": partition_bytes_max,
                }
                for index, (position, epoch) in entries
            ),
        }
        for topic, entries in _group(positions).items()
    )
    return messages.build(
        messages.request_class(ApiKey.FETCH),
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,
        topics=topics,
        rack_id=rack,
    )


def read_fetch_response(answer: Any) -> dict[TopicPartition, FetchedPartition]:
    """What came of each partition; empty when the whole request was refused."""
    told: dict[TopicPartition, FetchedPartition] = {}
    for topic in answer.responses:
        for part in topic.partitions:
            diverging = part.diverging_epoch
            told[(str(topic.topic), int(part.partition_index))] = FetchedPartition(
                ErrorCode(int(part.error_code)),
                int(part.high_watermark),
                int(part.last_stable_offset),
                int(part.log_start_offset),
                tuple((int(a.producer_id), int(a.first_offset)) for a in part.aborted_transactions or ()),
                None if diverging.epoch < 0 else (int(diverging.epoch), int(diverging.end_offset)),
                _leader(part.current_leader),
                int(part.preferred_read_replica),
                bytes(part.records or b""),
            )
    return told


def list_offsets_request(targets: Mapping[TopicPartition, tuple[int, int]], *, read_committed: bool) -> Any:
    """ListOffsets; `targets` gives, per partition, the timestamp in ms (-1 latest, -2 earliest) and leader epoch."""
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
    """(error, offset, leader epoch) of each partition."""
    return {
        (str(topic.name), int(p.partition_index)): (ErrorCode(int(p.error_code)), int(p.offset), int(p.leader_epoch))
        for topic in answer.topics
        for p in topic.partitions
    }
