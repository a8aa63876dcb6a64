"""Convert brokers' responses about topics and offsets to Python values, and build the requests. Does no I/O itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from kraft.client.core.records import CommittedOffset, KafkaError, TopicPartition
from kraft.client.core.retriable import RETRIABLE
from kraft.client.core.topology import LeaderAndEpoch
from kraft.client.spark.blocking.link import build_request
from kraft.client.spark.blocking.retries import RetriableError, classify
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic as described by the newest Metadata response. `leaders` has an entry for every partition; node id -1
    means that the partition has no leader now."""

    name: str
    topic_id: UUID | None
    leaders: Mapping[int, LeaderAndEpoch]
    is_internal: bool = False


class OffsetAt(NamedTuple):
    """A partition's result of ListOffsets. Its fields are -1 if no such record exists, or if the broker does not report
    them."""

    offset: int
    leader_epoch: int
    timestamp_ms: int


def take_offsets(answer: Any, found: dict[TopicPartition, OffsetAt]) -> RetriableError | None:
    """Add the offsets in a leader's response to `found`. Return the last transient error in the response, if any; raise
    KafkaError for a permanent one."""
    problem: RetriableError | None = None
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
    """Build the OffsetCommit request of a client that is not a member of the group."""
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
