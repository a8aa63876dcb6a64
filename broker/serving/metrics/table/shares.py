"""Metrics of share groups (KIP-932): the share coordinator, share sessions, share partitions."""

from __future__ import annotations

from kraft.broker.serving.metrics.table.rows import BROKER, COUNTER, GAUGE, HISTOGRAM, rows

SHARES = (
    *rows(
        "kafka.server",
        "share-coordinator-metrics",
        COUNTER,
        BROKER,
        {"write-total": "Requests to write the state of a share partition."},
    ),
    *rows(
        "kafka.server",
        "share-coordinator-metrics",
        GAUGE,
        BROKER,
        {
            "write-rate": "Requests per second to write the state of a share partition.",
            "write-latency-avg": "Mean time of these requests, until their records are committed; ms.",
            "write-latency-max": "Longest of these times; ms, of the newest.",
            "partition-load-time-max": "Longest load of a partition of share states; ms, of the newest.",
            "partition-load-time-avg": "Mean of the loads; ms.",
            "event-queue-size": "Requests that wait for a partition of share states to be loaded, or for its log.",
        },
    ),
    *rows(
        "kafka.server",
        "share-coordinator-metrics",
        GAUGE,
        BROKER,
        {"num-partitions": "Partitions of share states that this broker coordinates, loading and active."},
        labels=("state",),
    ),
    *rows(
        "kafka.server",
        "share-coordinator-metrics",
        GAUGE,
        BROKER,
        {"last-pruned-offset": "Offset below which the records of share states were deleted."},
        labels=("topic", "partition"),
    ),
    *rows(
        "kafka.server",
        "ShareSessionCache",
        GAUGE,
        BROKER,
        {
            "ShareSessionsCount": "Share sessions.",
            "SharePartitionsCount": "Partitions in share sessions.",
        },
    ),
    *rows(
        "kafka.server",
        "ShareSessionCache",
        COUNTER,
        BROKER,
        {"ShareSessionEvictionsPerSec": "Share sessions that ended because their connection was lost."},
    ),
    *rows(
        "kafka.server",
        "ShareGroupMetrics",
        COUNTER,
        BROKER,
        {"RecordAcknowledgementsPerSec": "Records that members acknowledged: Accept, Release, Reject, Renew."},
        labels=("ackType",),
    ),
    *rows(
        "kafka.server",
        "ShareGroupMetrics",
        HISTOGRAM,
        BROKER,
        {"PartitionLoadTimeMs": "How long the leader took to load the state of a share partition."},
    ),
    *rows(
        "kafka.server",
        "ShareGroupMetrics",
        HISTOGRAM,
        BROKER,
        {
            "RequestTopicPartitionsFetchRatio": "Percentage of a share fetch's partitions that could be acquired.",
            "TopicPartitionsAcquireTimeMs": "How long a share fetch waited until it could acquire a partition.",
        },
        labels=("group",),
    ),
    *rows(
        "kafka.server",
        "DelayedShareFetchMetrics",
        COUNTER,
        BROKER,
        {"ExpiresPerSec": "Share fetches that waited for their maximum wait time."},
    ),
    *rows(
        "kafka.server",
        "SharePartitionMetrics",
        GAUGE,
        BROKER,
        {
            "InFlightMessageCount": "Records from the first that is not complete to the last that was acquired.",
            "InFlightBatchCount": "Runs of such records with the same delivery state.",
        },
        labels=("group", "topic", "partition"),
        is_on_demand=True,
    ),
    *rows(
        "kafka.server",
        "SharePartitionMetrics",
        HISTOGRAM,
        BROKER,
        {"InFlightBatchMessageCount": "Records of each batch that was new in flight, acquired or loaded."},
        labels=("group", "topic", "partition"),
        is_on_demand=True,
    ),
    *rows(
        "kafka.server",
        "SharePartitionMetrics",
        COUNTER,
        BROKER,
        {"AcquisitionLockTimeoutPerSec": "Records whose lock expired before their member acknowledged them."},
        labels=("group", "topic", "partition"),
        is_on_demand=True,
    ),
)
