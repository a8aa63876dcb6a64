"""The counters of share fetches, acknowledgements and share sessions, and their metrics under Kafka's names.

Kafka counts a request once for each of its topics. A topic without a replica on this broker has no counters. There are
no metrics of the time that a share partition is locked for a fetch, because it is not locked.
Source: KIP-1103, Kafka's BrokerTopicMetrics, ShareGroupMetrics, SharePartitionMetrics and ShareSessionCache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.broker.serving.metrics.metric_registry import Labelled, MetricKind, Metrics
from kraft.broker.share_partition.states import AcknowledgementBatch, AcknowledgeType
from kraft.seam.measures import Histogram

if TYPE_CHECKING:
    from kraft.broker.api.share_fetch.led_share_partition import LedSharePartition
    from kraft.broker.api.share_fetch.led_share_partitions import LedSharePartitions
    from kraft.broker.api.share_fetch.share_sessions import TopicIdPartition
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.metrics.topics import TopicMeters

    FindReplica = Callable[[UUID, int], Partition | None]

SERVER = "kafka.server"
GROUPS, PARTITIONS, SESSIONS = "ShareGroupMetrics", "SharePartitionMetrics", "ShareSessionCache"
COUNTED_TYPES = tuple(one for one in AcknowledgeType if one is not AcknowledgeType.GAP)


class ShareCounts:
    """Counters of one broker, for metrics."""

    def __init__(self) -> None:
        self.acknowledged: Counter[int] = Counter()
        """Number of records that members have acknowledged, by AcknowledgeType, whether or not it was accepted."""
        self.expired_fetches = 0
        """Number of share fetches that have waited for their maximum wait time."""
        self.evicted_sessions = 0
        """Number of share sessions that ended with their connection."""
        self.load_ms = Histogram()
        """Time that loading each share partition took, in ms."""

    def count_acknowledged(self, batches: Iterable[AcknowledgementBatch]) -> None:
        """Count the records in a member's acknowledgements."""
        for first, last, types in batches:
            each = (last - first + 1) // max(len(types), 1)
            for one in types:
                self.acknowledged[one] += each


class GroupFetchMeters:
    """Histograms of the share fetches of one group. They end with the group's last share partition on this broker."""

    __slots__ = ("acquire_ms", "fetch_ratio")

    def __init__(self) -> None:
        self.fetch_ratio = Histogram()
        """Share of each request's partitions that could be acquired when it was answered, in percent (0 to 100)."""
        self.acquire_ms = Histogram()
        """Time that each request waited until one of its partitions could be acquired, or until it was answered, in
        ms."""


def topic_meters(find: FindReplica, partitions: Iterable[TopicIdPartition]) -> list[TopicMeters]:
    """Return the meters of the topics of these partitions, each topic once. `find` is `ReplicaIndex.find`."""
    replicas = (find(*partition) for partition in partitions)
    return list({one.topic_id: one.meters for one in replicas if one is not None}.values())


def register_share_metrics(shares: LedSharePartitions, metrics: Metrics) -> None:
    """Register the metrics of share fetches and share sessions."""
    sessions, counts = shares.sessions, shares.counts
    metrics.gauge(SERVER, SESSIONS, "ShareSessionsCount", lambda: len(sessions))
    metrics.gauge(SERVER, SESSIONS, "SharePartitionsCount", lambda: sessions.partition_count)
    metrics.counter(SERVER, SESSIONS, "ShareSessionEvictionsPerSec", lambda: counts.evicted_sessions)
    metrics.enumerate(
        SERVER, GROUPS, "RecordAcknowledgementsPerSec", MetricKind.COUNTER, lambda: _acknowledged(counts.acknowledged)
    )
    metrics.expose(SERVER, GROUPS, "PartitionLoadTimeMs", counts.load_ms)
    _register_groups(shares, metrics)
    metrics.counter(SERVER, "DelayedShareFetchMetrics", "ExpiresPerSec", lambda: counts.expired_fetches)
    _register_partitions(shares, metrics)


def _acknowledged(counts: Counter[int]) -> Sequence[tuple[dict[str, str], float]]:
    return [({"ackType": one.name.capitalize()}, counts[one]) for one in COUNTED_TYPES]


def _register_groups(shares: LedSharePartitions, metrics: Metrics) -> None:
    def per_group(name: str, value: Callable[[GroupFetchMeters], Histogram]) -> None:
        def read() -> Labelled:
            return [({"group": group}, value(meters)) for group, meters in shares.group_meters.items()]

        metrics.enumerate(SERVER, GROUPS, name, MetricKind.HISTOGRAM, read)

    per_group("RequestTopicPartitionsFetchRatio", lambda one: one.fetch_ratio)
    per_group("TopicPartitionsAcquireTimeMs", lambda one: one.acquire_ms)


def _register_partitions(shares: LedSharePartitions, metrics: Metrics) -> None:
    def per_partition(name: str, kind: MetricKind, value: Callable[[LedSharePartition], float | Histogram]) -> None:
        def read() -> Labelled:
            for share in shares:
                partition = share.partition
                labels = {"group": share.key.group, "topic": partition.topic, "partition": str(partition.index)}
                yield labels, value(share)

        metrics.enumerate(SERVER, PARTITIONS, name, kind, read, is_on_demand=True)

    per_partition("InFlightMessageCount", MetricKind.GAUGE, lambda one: one.records_in_flight)
    per_partition("InFlightBatchCount", MetricKind.GAUGE, lambda one: one.batches_in_flight)
    per_partition("InFlightBatchMessageCount", MetricKind.HISTOGRAM, lambda one: one.batch_sizes)
    per_partition("AcquisitionLockTimeoutPerSec", MetricKind.COUNTER, lambda one: one.expired_records)
