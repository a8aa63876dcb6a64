"""Metrics of topics, replicas and logs."""

from __future__ import annotations

from kraft.broker.serving.metrics.table.rows import BROKER, COUNTER, GAUGE, HISTOGRAM, rows

TOPICS = rows(
    "kafka.server",
    "BrokerTopicMetrics",
    COUNTER,
    BROKER,
    {
        "MessagesInPerSec": "Records appended.",
        "BytesInPerSec": "Bytes of batches appended.",
        "BytesOutPerSec": "Bytes of batches sent to consumers.",
        "BytesRejectedPerSec": "Bytes of batches refused because they are too large.",
        "ReplicationBytesInPerSec": "Bytes of batches that followers here fetched.",
        "ReplicationBytesOutPerSec": "Bytes of batches sent to followers.",
        "ReassignmentBytesInPerSec": "Those fetched by replicas that a reassignment adds.",
        "ReassignmentBytesOutPerSec": "Those sent to replicas that a reassignment adds.",
        "TotalProduceRequestsPerSec": "Partitions in produce requests.",
        "TotalFetchRequestsPerSec": "Reads of partitions for fetch requests.",
        "FailedProduceRequestsPerSec": "Partitions in produce requests that were answered with an error.",
        "FailedFetchRequestsPerSec": "Partitions in fetch requests that were answered with an error.",
        "TotalShareFetchRequestsPerSec": "Share fetches, one for each of their topics.",
        "TotalShareAcknowledgementRequestsPerSec": "Requests with acknowledgements, one for each of their topics.",
        "FailedShareFetchRequestsPerSec": "Share fetches that were answered with an error for the topic.",
        "FailedShareAcknowledgementRequestsPerSec": "Requests with acknowledgements that failed for the topic.",
        "InvalidMagicNumberRecordsPerSec": "Batches refused for their format's version.",
        "InvalidMessageCrcRecordsPerSec": "Batches refused because they are damaged.",
        "InvalidOffsetOrSequenceRecordsPerSec": "Batches refused for their sequence number or producer epoch.",
    },
    labels=("topic",),
)


REPLICAS = (
    *rows(
        "kafka.server",
        "ReplicaManager",
        GAUGE,
        BROKER,
        {
            "PartitionCount": "Replicas on this broker.",
            "LeaderCount": "Partitions that this broker leads.",
            "UnderReplicatedPartitions": "Led partitions with fewer replicas in sync than assigned.",
            "UnderMinIsrPartitionCount": "Led partitions with fewer replicas in sync than min.insync.replicas.",
            "AtMinIsrPartitionCount": "Led partitions with just min.insync.replicas in sync.",
            "OfflineReplicaCount": "Replicas whose log directory is offline.",
            "ReassigningPartitions": "Led partitions that are being reassigned.",
            "ProducerIdCount": "Producers whose sequence numbers are kept, over all open logs.",
        },
    ),
    *rows(
        "kafka.server",
        "ReplicaManager",
        COUNTER,
        BROKER,
        {
            "IsrShrinksPerSec": "In-sync sets that this broker, as the leader, had made smaller.",
            "IsrExpandsPerSec": "In-sync sets that this broker, as the leader, had made larger.",
            "FailedIsrUpdatesPerSec": "Changes of in-sync sets that the controller refused or did not answer.",
        },
    ),
    *rows(
        "kafka.server",
        "ReplicaFetcherManager",
        GAUGE,
        BROKER,
        {
            "MaxLag": "Most committed records that a follower here has still to fetch.",
            "MinFetchRate": "Fetches per second of the follower's connection that fetches least often.",
            "FailedPartitionsCount": "Partitions that followers here have stopped to fetch.",
        },
        labels=("clientId",),
    ),
    *rows(
        "kafka.server",
        "FetcherStats",
        COUNTER,
        BROKER,
        {
            "BytesPerSec": "Bytes of answers to the fetches of followers here, by leader.",
            "RequestsPerSec": "Fetches of followers here, by leader.",
        },
        labels=("clientId", "brokerHost", "brokerPort"),
    ),
    *rows(
        "kafka.server",
        "FetcherLagMetrics",
        GAUGE,
        BROKER,
        {"ConsumerLag": "Committed records that the follower here has still to fetch."},
        labels=("clientId", "topic", "partition"),
        is_on_demand=True,
    ),
    *rows(
        "kafka.server",
        "FetchSessionCache",
        GAUGE,
        BROKER,
        {
            "NumIncrementalFetchSessions": "Fetch sessions.",
            "NumIncrementalFetchPartitionsCached": "Partitions in fetch sessions.",
        },
    ),
    *rows(
        "kafka.server",
        "FetchSessionCache",
        COUNTER,
        BROKER,
        {"IncrementalFetchSessionEvictionsPerSec": "Fetch sessions that were ended to make room for others."},
    ),
    *rows(
        "kafka.server",
        "DelayedOperationPurgatory",
        GAUGE,
        BROKER,
        {
            "PurgatorySize": "Requests that wait for replicas, data, or a coordinator. `Other`: timers of the broker.",
        },
        labels=("delayedOperation",),
    ),
    *rows(
        "kafka.cluster",
        "Partition",
        GAUGE,
        BROKER,
        {
            "UnderReplicated": "1 if fewer replicas are in sync than assigned; 0 on followers.",
            "UnderMinIsr": "1 if fewer replicas are in sync than min.insync.replicas; 0 on followers.",
            "AtMinIsr": "1 if just min.insync.replicas are in sync; 0 on followers.",
            "InSyncReplicasCount": "Replicas in sync; 0 on followers.",
            "ReplicasCount": "Replicas; 0 on followers.",
            "LastStableOffsetLag": "From the last stable offset to the high watermark.",
        },
        labels=("topic", "partition"),
        is_on_demand=True,
    ),
)


LOGS = (
    *rows(
        "kafka.log",
        "Log",
        GAUGE,
        BROKER,
        {
            "Size": "Bytes.",
            "LogStartOffset": "First offset.",
            "LogEndOffset": "Offset of the next record.",
            "NumLogSegments": "Segments.",
        },
        labels=("topic", "partition"),
        is_on_demand=True,
    ),
    *rows(
        "kafka.log",
        "LogFlushStats",
        HISTOGRAM,
        BROKER,
        {"LogFlushRateAndTimeMs": "How long syncs of logs took."},
    ),
    *rows(
        "kafka.log",
        "LogManager",
        GAUGE,
        BROKER,
        {"OfflineLogDirectoryCount": "Log directories that failed."},
    ),
    *rows(
        "kafka.log",
        "LogManager",
        GAUGE,
        BROKER,
        {"LogDirectoryOffline": "1 if the log directory failed."},
        labels=("logDirectory",),
    ),
    *rows(
        "kafka.log",
        "LogManager",
        GAUGE,
        BROKER,
        {"remainingLogsToRecover": "Logs that wait to be opened."},
        labels=("dir",),
    ),
    *rows(
        "kafka.log",
        "LogCleaner",
        GAUGE,
        BROKER,
        {
            "max-buffer-utilization-percent": "Largest share of the map of keys that a last round used.",
            "max-clean-time-secs": "Longest last round.",
            "cleaner-recopy-percent": "Of the bytes read in the last rounds, those written again.",
            "max-compaction-delay-secs": "Longest time past max.compaction.lag.ms.",
            "DeadThreadCount": "Always 0: a cleaner that fails stops the node.",
        },
    ),
    *rows(
        "kafka.log",
        "LogCleanerManager",
        GAUGE,
        BROKER,
        {
            "max-dirty-percent": "Largest dirty share of a log.",
            "time-since-last-run-ms": "Since the cleaner last looked for work.",
        },
    ),
    *rows(
        "kafka.log",
        "LogCleanerManager",
        GAUGE,
        BROKER,
        {
            "uncleanable-partitions-count": "Logs that cannot be cleaned.",
            "uncleanable-bytes": "Their bytes.",
        },
        labels=("logDirectory",),
    ),
)


THROTTLES = (
    *rows(
        "kafka.server",
        "LeaderReplication",
        GAUGE,
        BROKER,
        {"byte-rate": "Bytes per second sent to replicas that leader.replication.throttled.replicas names."},
    ),
    *rows(
        "kafka.server",
        "FollowerReplication",
        GAUGE,
        BROKER,
        {"byte-rate": "Bytes per second fetched by replicas that follower.replication.throttled.replicas names."},
    ),
)
