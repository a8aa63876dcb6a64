"""Synchronous: find the partitions of a source, and resolve its starting and ending positions to offsets.

A position is given by name, by offsets or by time, and resolved by ListOffsets. The planners of batches and of streams
both use this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.spark.blocking.cluster import KnownTopic, OffsetAt, SyncCluster
from kraft.client.spark.options import OptionError
from kraft.client.spark.options.patterns import topic_pattern
from kraft.client.spark.settings import (
    EARLIEST,
    EVERY_PARTITION,
    LATEST,
    FetchSettings,
    PartitionValues,
    Position,
    TopicSelection,
)
from kraft.wire.error_codes import ErrorCode

_WORDS = MappingProxyType({"earliest": EARLIEST, "latest": LATEST})
_LEAVE_OUT = "leave it out, or correct its name"


def find_topics(cluster: SyncCluster, selection: TopicSelection) -> dict[str, KnownTopic]:
    """Return the selected topics by name, as brokers report them now. Raises KafkaError if a named topic does not
    exist. A pattern may match no topic, and selects none of Kafka's internal topics, which must be named."""
    if selection.pattern is None:
        return cluster.wait_topics(selection.assign or selection.subscribe or ())
    pattern = topic_pattern(selection.pattern)
    cluster.refresh(None)
    return {
        name: topic for name, topic in sorted(cluster.topics.items()) if not topic.is_internal and pattern.search(name)
    }


def find_partitions(topics: Mapping[str, KnownTopic], selection: TopicSelection) -> list[TopicPartition]:
    """Return the selected partitions of these topics. Raises KafkaError if an assigned partition does not exist."""
    if selection.assign is None:
        return [(name, index) for name, topic in sorted(topics.items()) for index in topic.leaders]
    wanted = [(name, index) for name, indexes in sorted(selection.assign.items()) for index in sorted(indexes)]
    for name, index in wanted:
        if index not in topics[name].leaders:
            count = len(topics[name].leaders)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"option assign names partition {index} of topic {name}, which has {count} (0 to {count - 1})",
            )
    return wanted


def explicit_offsets(position: Position, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offsets that the position gives as numbers, leaving out EARLIEST and LATEST."""
    if position.kind != "offsets":
        return {}
    values = _value_of_each("offsets", position.offsets, partitions)
    return {tp: value for tp, value in values.items() if value >= 0}


def reject_unread(position: Position, partitions: Iterable[TopicPartition]) -> None:
    """Raise OptionError if the position names a topic or partition that is not read. `partitions`: all partitions that
    are read."""
    read = set(partitions)
    topics = {topic for topic, _ in read}
    for topic, of_topic in (position.offsets or position.timestamps).items():
        if topic not in topics:
            raise OptionError(f"the JSON of {position.kind} names topic {topic}, which is not read: {_LEAVE_OUT}")
        for index in of_topic:
            if index != EVERY_PARTITION and (topic, index) not in read:
                there = ", ".join(str(one) for name, one in sorted(read) if name == topic)
                raise OptionError(
                    f"the JSON of {position.kind} names partition {index} of topic {topic}, of which are read: "
                    f"{there}: {_LEAVE_OUT}"
                )


def resolve_position(
    cluster: SyncCluster,
    position: Position,
    partitions: Iterable[TopicPartition],
    *,
    fail_on_missing_timestamp: bool,
    read_committed: bool,
) -> dict[TopicPartition, OffsetAt]:
    """Return the position's offset in each partition, with the leader epoch of that offset (-1: unknown).

    A time is resolved to the first record at or after it. If there is no such record: OptionError with
    `fail_on_missing_timestamp`, otherwise the end. Raises OptionError if a position by partition does not name one of
    these partitions."""
    wanted = list(partitions)
    explicit = explicit_offsets(position, wanted)
    asked = cluster.list_offsets(
        {tp: target for tp, target in _targets(position, wanted).items() if tp not in explicit},
        read_committed=read_committed,
    )
    missing = [tp for tp, at in asked.items() if at.offset < 0]
    if missing and fail_on_missing_timestamp:
        topic, index = missing[0]
        raise OptionError(
            f"topic {topic}, partition {index} has no record at or after {_targets(position, missing)[missing[0]]} ms "
            "(since 1970): give an earlier time, or startingOffsetsByTimestampStrategy=latest to begin at its end"
        )
    ends = cluster.list_offsets(dict.fromkeys(missing, LATEST), read_committed=read_committed)
    given = {tp: OffsetAt(offset, -1, -1) for tp, offset in explicit.items()}
    found = {**asked, **ends, **given}
    return {tp: found[tp] for tp in wanted}


def end_offsets(
    cluster: SyncCluster,
    partitions: Iterable[TopicPartition],
    fetch: FetchSettings,
    is_low: Callable[[TopicPartition, int], bool],
    *,
    read_committed: bool,
) -> dict[TopicPartition, OffsetAt]:
    """Return the latest offset of each partition.

    A broker that has just become leader may report an old high watermark. So if `is_low(partition, offset)` is true for
    a response, the offset is requested again, up to `fetchOffset.numRetries` times, and the highest response counts
    (SPARK-26267)."""
    found = cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    for _ in range(fetch.retries):
        low = [tp for tp, at in found.items() if is_low(tp, at.offset)]
        if not low:
            break
        time.sleep(fetch.retry_interval_ms / 1000)
        cluster.refresh({topic for topic, _ in low})
        again = cluster.list_offsets(dict.fromkeys(low, LATEST), read_committed=read_committed)
        found |= {tp: max(at, found[tp]) for tp, at in again.items()}
    return found


def _targets(position: Position, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the time or special offset to request from ListOffsets for each partition."""
    match position.kind:
        case "earliest" | "latest":
            return dict.fromkeys(partitions, _WORDS[position.kind])
        case "timestamp":
            return dict.fromkeys(partitions, position.timestamp_ms)
        case "timestamps":
            return _value_of_each("times", position.timestamps, partitions)
        case _:
            return _value_of_each("offsets", position.offsets, partitions)


def _value_of_each(
    kind: str, values: PartitionValues, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the value for each partition, given by partition number or by `*`. Raises OptionError if a partition has
    no value."""
    found: dict[TopicPartition, int] = {}
    for topic, index in partitions:
        of_topic = values.get(topic, {})
        value = of_topic.get(index, of_topic.get(EVERY_PARTITION))
        if value is None:
            named = ", ".join(f"{name} {sorted(of)}" for name, of in sorted(values.items())) or "none"
            raise OptionError(
                f"topic {topic}, partition {index} is read, but the JSON of {kind} names only {named}: name every "
                'partition, or all of them as {"TOPIC":{"*":VALUE}}'
            )
        found[topic, index] = value
    return found
