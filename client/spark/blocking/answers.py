"""What brokers say of topics and offsets as values, and the requests for them. Does no I/O itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from kraft.client.core.records import CommittedOffset, KafkaError, TopicPartition
from kraft.client.core.retriable import RETRIABLE
from kraft.client.core.topology import Leader
from kraft.client.spark.blocking.link import build_request
from kraft.client.spark.blocking.retries import Passing, classify
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the newest answer told it. `leaders` has every partition; node id -1: no leader now."""

    name: str
    topic_id: UUID | None
    leaders: Mapping[int, Leader]
    is_internal: bool = False


class OffsetAt(NamedTuple):
    """An answer of ListOffsets: -1 in each field where there is no such record, or the broker does not say."""

    offset: int
    leader_epoch: int
    timestamp_ms: int


def take_offsets(answer: Any, found: dict[TopicPartition, OffsetAt]) -> Passing | None:
    """Take what a leader said of its partitions. KafkaError for a refusal that does not pass."""
    problem: Passing | None = None
    for topic in answer.topics:
        for part in topic.partitions:
            tp = (str(topic.name), int(part.partition_index))
            code = ErrorCode.of(int(part.error_code))
            if code is ErrorCode.NONE:
                found[tp] = OffsetAt(int(part.offset), int(part.leader_epoch), int(part.timestamp))
                continue
            kind = classify(code, RETRIABLE, f"{tp[0]}-{tp[1]}")
            if isinstance(kind, KafkaError):
                raise kind
            problem = kind
    return problem


def commit_request(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> Any:
    """An OffsetCommit request of a client that is not a member of the group."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), position in sorted(offsets.items()):
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "committed_offset": position.offset,
                "committed_leader_epoch": position.leader_epoch,
                "committed_metadata": position.metadata,
            }
        )
    return build_request(
        ApiKey.OFFSET_COMMIT,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=tuple({"name": name, "partitions": tuple(parts)} for name, parts in topics.items()),
    )
