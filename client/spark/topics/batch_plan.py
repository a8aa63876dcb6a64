"""Synchronous: plan a batch query: convert positions and pushed filters into ranges of offsets, and the ranges into
tasks.

Filters narrow the ranges. Filters on offsets, topics and partitions are applied exactly. A filter on time moves a
range's start to the first record at or after the time. It moves the end only if later records cannot be older.
Source: KIP-79 (offsets by time), KIP-32 (message.timestamp.type).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kraft.client.core.records import TopicPartition
from kraft.client.spark.blocking.cluster import KnownTopic, SyncCluster
from kraft.client.spark.blocking.link import build_request
from kraft.client.spark.options import OptionError
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import EARLIEST, Position, TopicSettings
from kraft.client.spark.topics.data_loss import report_loss
from kraft.client.spark.topics.positions import (
    end_offsets,
    explicit_offsets,
    find_partitions,
    find_topics,
    reject_unread,
    resolve_position,
)
from kraft.client.spark.topics.ranges import OffsetRange, split_ranges
from kraft.wire.api_keys import ApiKey

TOPIC_RESOURCE = 2
"""Type number of topics in DescribeConfigs."""
CLOCK_SKEW_MS = 5 * 60 * 1000
"""Maximum assumed difference between brokers' clocks in ms. Append times by a new leader may be this much older than
earlier ones."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = Position(kind="earliest"), Position(kind="latest")

Spans = dict[TopicPartition, tuple[int, int]]
"""Type: partition → (start, end) offsets of the range to read. The end is exclusive, and may be below the start."""


def plan_batch(cluster: SyncCluster, settings: TopicSettings, bounds: Bounds) -> list[OffsetRange]:
    """Return the ranges of offsets that the tasks of a batch query read.

    Raises OptionError for positions that do not fit the topics; KafkaError for topics that do not exist; DataLost for
    offsets that are not in the log, if failOnDataLoss is set; ClusterUnreachable."""
    topics = find_topics(cluster, settings.topics)
    partitions = find_partitions(topics, settings.topics)
    spans = _narrowed(cluster, settings, bounds, _spans(cluster, settings, bounds, partitions))
    ranges = [_range(cluster, topics, tp, start, end) for tp, (start, end) in spans.items() if start < end]
    return split_ranges(ranges, partitions_min=settings.partitions_min, records_max=settings.records_per_partition_max)


def _range(
    cluster: SyncCluster, topics: Mapping[str, KnownTopic], tp: TopicPartition, start: int, end: int
) -> OffsetRange:
    name, index = tp
    leader = cluster.topics.get(name, topics[name]).leaders[index]
    return OffsetRange(
        topic=name,
        partition=index,
        start=start,
        end=end,
        topic_id=topics[name].topic_id,
        leader=cluster.brokers.get(leader.node_id),
        leader_epoch=leader.epoch,
    )


# from positions


def _spans(
    cluster: SyncCluster, settings: TopicSettings, bounds: Bounds, partitions: Iterable[TopicPartition]
) -> Spans:
    """Return the ranges of offsets that the starting and ending positions select, for those partitions that the filters
    admit."""
    every = list(partitions)
    starting, ending = settings.starting or _EARLIEST, settings.ending or _LATEST
    given_starts, given_ends = explicit_offsets(starting, every), explicit_offsets(ending, every)
    reject_unread(starting, every)
    reject_unread(ending, every)
    wanted = [tp for tp in every if not bounds.is_empty and _admits(bounds, tp)]
    if not wanted:
        return {}
    committed = settings.fetch.read_committed
    strict = settings.fail_on_missing_timestamp
    starts = resolve_position(cluster, starting, wanted, fail_on_missing_timestamp=strict, read_committed=committed)
    ends = resolve_position(cluster, ending, wanted, fail_on_missing_timestamp=False, read_committed=committed)
    spans = {tp: (starts[tp].offset, ends[tp].offset) for tp in wanted}
    for (topic, index), (start, end) in spans.items():
        if (topic, index) in given_starts and (topic, index) in given_ends and start > end:
            raise OptionError(
                f"topic {topic}, partition {index}: the starting offset {start} is after the ending offset {end}"
            )
    given = {tp for tp in wanted if tp in given_starts or tp in given_ends}
    return spans | _within_log(cluster, settings, {tp: spans[tp] for tp in given}, given_ends)


def _admits(bounds: Bounds, tp: TopicPartition) -> bool:
    return bounds.admits("topic", tp[0]) and bounds.admits("partition", tp[1])


def _within_log(
    cluster: SyncCluster, settings: TopicSettings, spans: Spans, given_ends: Mapping[TopicPartition, int]
) -> Spans:
    """Limit offsets that a user gave to the offsets in the log, and report the others as lost."""
    if not spans:
        return {}
    begins = cluster.list_offsets(dict.fromkeys(spans, EARLIEST))

    def is_low(tp: TopicPartition, end: int) -> bool:
        return end < (spans[tp][1] if tp in given_ends else spans[tp][0])

    ends = end_offsets(cluster, spans, settings.fetch, is_low, read_committed=False)
    found: Spans = {}
    for tp, (start, end) in spans.items():
        log_start, log_end = begins[tp].offset, ends[tp].offset
        found[tp] = (max(start, min(log_start, end)), min(end, log_end))
        available = f"offsets {log_start} to {log_end}"
        if start < log_start and start < end:
            _report(settings, tp, (start, end), available, min(log_start, end) - start, "the start has expired")
        if is_low(tp, log_end):
            count = end - max(start, log_end) if tp in given_ends else start - log_end
            _report(settings, tp, (start, end), available, count, "the log ends before the offset that was given")
    return found


def _report(
    settings: TopicSettings, tp: TopicPartition, span: tuple[int, int], available: str, count: int, why: str
) -> None:
    report_loss(
        fail=settings.fail_on_data_loss,
        topic=tp[0],
        partition=tp[1],
        wanted=f"offsets {span[0]} to {span[1]}",
        available=available,
        count=count,
        why=why,
    )


# from filters


def _narrowed(cluster: SyncCluster, settings: TopicSettings, bounds: Bounds, spans: Spans) -> Spans:
    """Return the part of each range that the filters on offset and timestamp admit."""
    low, high = bounds.range("offset")
    spans = {
        tp: (start if low is None else max(start, low), end if high is None else min(end, high + 1))
        for tp, (start, end) in spans.items()
    }
    oldest, newest = bounds.range("timestamp")
    if oldest is not None:
        first = _first_as_new(cluster, spans, _milliseconds(oldest))
        spans = {tp: (max(start, first.get(tp, end)), end) for tp, (start, end) in spans.items()}
    if newest is not None:
        for slack_ms, share in _with_end_by_time(cluster, settings, spans).items():
            first = _first_as_new(cluster, share, _milliseconds(newest) + 1 + slack_ms)
            spans |= {tp: (start, min(end, first.get(tp, end))) for tp, (start, end) in share.items()}
    return spans


def _first_as_new(cluster: SyncCluster, spans: Spans, timestamp_ms: int) -> dict[TopicPartition, int]:
    """Return, for each nonempty range, the offset of the partition's first record at or after the time. Partitions
    without such a record are omitted."""
    if timestamp_ms <= 0:
        return {tp: start for tp, (start, _) in spans.items()}
    asked = {tp: timestamp_ms for tp, (start, end) in spans.items() if start < end}
    return {tp: at.offset for tp, at in cluster.list_offsets(asked).items() if at.offset >= 0}


def _with_end_by_time(cluster: SyncCluster, settings: TopicSettings, spans: Spans) -> dict[int, Spans]:
    """Return the ranges whose end a filter on time may move, keyed by the slack in ms that is added to the filter's
    time."""
    if settings.push_timestamp_end:
        return {0: spans}
    topics = sorted({topic for (topic, _), (start, end) in spans.items() if start < end})
    appended = {topic for topic in topics if _has_append_time(cluster, topic)}
    return {CLOCK_SKEW_MS: {tp: span for tp, span in spans.items() if tp[0] in appended}}


def _has_append_time(cluster: SyncCluster, topic: str) -> bool:
    """Whether brokers set the timestamps of this topic's records (LogAppendTime). False if the brokers do not report
    the setting."""
    names = ("message.timestamp.type",)
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": names}
    answer: Any = cluster.request_any(
        ApiKey.DESCRIBE_CONFIGS, build_request(ApiKey.DESCRIBE_CONFIGS, resources=(resource,))
    )
    return any(config.value == "LogAppendTime" for result in answer.results for config in result.configs)


def _milliseconds(moment: datetime) -> int:
    """Return the time in ms since 1970, rounded down to whole milliseconds, as records have them."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
