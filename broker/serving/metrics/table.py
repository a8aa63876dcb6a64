"""Every metric that a node shows: name, kind, labels, meaning, and where it exists. docs/metrics.md is made from it,
and a test compares it with what running nodes show. A name here never changes. What belongs to a feature that is not
there (transactions, delegation tokens, SASL) is not here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from kraft.broker.node.metrics import Kind


class Where(Flag):
    """Which nodes have a metric."""

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. `is_on_demand`: it has a member per partition, and is shown only to who asks for partitions."""

    group: str
    type: str
    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    where: Where = Where.BROKER
    is_on_demand: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.type, self.name


BROKER, CONTROLLER, BOTH = Where.BROKER, Where.CONTROLLER, Where.BOTH
GAUGE, COUNTER, HISTOGRAM, INFO = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM, Kind.INFO


def _rows(
    group: str,
    type: str,
    kind: Kind,
    where: Where,
    meanings: dict[str, str],
    *,
    labels: tuple[str, ...] = (),
    is_on_demand: bool = False,
) -> tuple[Row, ...]:
    return tuple(
        Row(group, type, name, kind, meaning, labels, where, is_on_demand) for name, meaning in meanings.items()
    )


_REQUESTS = (
    *_rows(
        "kafka.network",
        "RequestMetrics",
        COUNTER,
        BOTH,
        {
            "RequestsPerSec": "Requests received. `FetchConsumer` and `FetchFollower` divide `Fetch`.",
        },
        labels=("request", "version"),
    ),
    *_rows(
        "kafka.network",
        "RequestMetrics",
        COUNTER,
        BOTH,
        {
            "ErrorsPerSec": "Error codes in answers, `NONE` included: one for each topic, partition or other element "
            "that has a code. Partitions in answers to Metadata and DescribeTopicPartitions are not counted.",
        },
        labels=("request", "error"),
    ),
    *_rows(
        "kafka.network",
        "RequestMetrics",
        HISTOGRAM,
        BOTH,
        {
            "TotalTimeMs": "From the read of the request to the send of its answer.",
            "RequestQueueTimeMs": "From the read to the handler.",
            "LocalTimeMs": "In the handler.",
            "RemoteTimeMs": "From the handler's return to the answer: waiting for replicas, the disk, the controller, "
            "or for enough bytes.",
            "ResponseQueueTimeMs": "Behind answers to earlier requests of the connection.",
            "ResponseSendTimeMs": "Until the connection has sent all of its output.",
            "ThrottleTimeMs": "How long the client is held back for its quota.",
            "RequestBytes": "Size of the request.",
        },
        labels=("request",),
    ),
)

_TOPICS = _rows(
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
        "InvalidMagicNumberRecordsPerSec": "Batches refused for their format's version.",
        "InvalidMessageCrcRecordsPerSec": "Batches refused because they are damaged.",
        "InvalidOffsetOrSequenceRecordsPerSec": "Batches refused for their sequence number or producer epoch.",
    },
    labels=("topic",),
)

_REPLICAS = (
    *_rows(
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
    *_rows(
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
    *_rows(
        "kafka.server",
        "ReplicaFetcherManager",
        GAUGE,
        BROKER,
        {
            "MaxLag": "Most committed records that a follower here has still to fetch.",
            "FailedPartitionsCount": "Partitions that followers here have stopped to fetch.",
        },
        labels=("clientId",),
    ),
    *_rows(
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
    *_rows(
        "kafka.server",
        "FetcherLagMetrics",
        GAUGE,
        BROKER,
        {"ConsumerLag": "Committed records that the follower here has still to fetch."},
        labels=("clientId", "topic", "partition"),
        is_on_demand=True,
    ),
    *_rows(
        "kafka.server",
        "FetchSessionCache",
        GAUGE,
        BROKER,
        {
            "NumIncrementalFetchSessions": "Fetch sessions.",
            "NumIncrementalFetchPartitionsCached": "Partitions in fetch sessions.",
        },
    ),
    *_rows(
        "kafka.server",
        "FetchSessionCache",
        COUNTER,
        BROKER,
        {"IncrementalFetchSessionEvictionsPerSec": "Fetch sessions that were ended to make room for others."},
    ),
    *_rows(
        "kafka.server",
        "DelayedOperationPurgatory",
        GAUGE,
        BROKER,
        {
            "PurgatorySize": "Requests that wait for replicas, data, or a coordinator. `Other`: timers of the broker.",
        },
        labels=("delayedOperation",),
    ),
    *_rows(
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

_LOGS = (
    *_rows(
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
    *_rows(
        "kafka.log",
        "LogFlushStats",
        HISTOGRAM,
        BROKER,
        {"LogFlushRateAndTimeMs": "How long syncs of logs took."},
    ),
    *_rows(
        "kafka.log",
        "LogManager",
        GAUGE,
        BROKER,
        {"OfflineLogDirectoryCount": "Log directories that failed."},
    ),
    *_rows(
        "kafka.log",
        "LogManager",
        GAUGE,
        BROKER,
        {"LogDirectoryOffline": "1 if the log directory failed."},
        labels=("logDirectory",),
    ),
    *_rows(
        "kafka.log",
        "LogManager",
        GAUGE,
        BROKER,
        {"remainingLogsToRecover": "Logs that wait to be opened."},
        labels=("dir",),
    ),
    *_rows(
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
    *_rows(
        "kafka.log",
        "LogCleanerManager",
        GAUGE,
        BROKER,
        {
            "max-dirty-percent": "Largest dirty share of a log.",
            "time-since-last-run-ms": "Since the cleaner last looked for work.",
        },
    ),
    *_rows(
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

_GROUPS = (
    *_rows(
        "kafka.coordinator.group",
        "GroupMetadataManager",
        GAUGE,
        BROKER,
        {
            "NumGroups": "Groups that this broker coordinates.",
            "NumGroupsPreparingRebalance": "Those that wait for members to join.",
            "NumGroupsCompletingRebalance": "Those that wait for the assignment.",
            "NumGroupsStable": "Those whose members have their assignment.",
            "NumGroupsEmpty": "Those without members.",
            "NumOffsets": "Committed offsets.",
        },
    ),
    *_rows(
        "kafka.coordinator.group",
        "group-coordinator-metrics",
        COUNTER,
        BROKER,
        {"offset-commit-count": "Offsets committed."},
    ),
)

_CONTROLLER = (
    *_rows(
        "kafka.controller",
        "KafkaController",
        GAUGE,
        CONTROLLER,
        {
            "ActiveControllerCount": "1 on the active controller, 0 on the others. The sum over controllers must be 1.",
            "OfflinePartitionsCount": "Partitions without a leader.",
            "PreferredReplicaImbalanceCount": "Partitions whose leader is not their preferred replica.",
            "GlobalTopicCount": "Topics.",
            "GlobalPartitionCount": "Partitions.",
            "ActiveBrokerCount": "Brokers that are registered and not fenced.",
            "FencedBrokerCount": "Brokers that are registered and fenced.",
            "ControlledShutdownBrokerCount": "Brokers that are shutting down.",
            "MetadataErrorCount": "Always 0: a metadata record that cannot be read stops the node.",
            "LastAppliedRecordOffset": "Last metadata record that this controller has replayed.",
            "LastCommittedRecordOffset": "Last metadata record that this controller knows to be committed.",
            "LastAppliedRecordTimestamp": "When the last replayed record was appended; ms since 1970.",
            "LastAppliedRecordLagMs": "Age of the last replayed record; 0 on the active controller.",
            "TimedOutBrokerHeartbeatCount": "Brokers that were fenced because their session timed out.",
            "NewActiveControllersCount": "How often this node saw another active controller.",
            "EventQueueOperationsStartedCount": "Commands whose decision began.",
            "EventQueueOperationsTimedOutCount": "Commands that were refused because too many waited.",
        },
    ),
    *_rows(
        "kafka.controller",
        "KafkaController",
        GAUGE,
        CONTROLLER,
        {
            "BrokerRegistrationState": "10 fenced, 20 in controlled shutdown, 30 active.",
            "TimeSinceLastHeartbeatReceivedMs": "Since the last heartbeat; only on the active controller.",
        },
        labels=("broker",),
    ),
    *_rows(
        "kafka.controller",
        "ControllerStats",
        COUNTER,
        CONTROLLER,
        {
            "UncleanLeaderElectionsPerSec": "Leaders elected that were neither in sync nor eligible.",
            "ElectionFromEligibleLeaderReplicasPerSec": "Leaders elected that were not in sync, but eligible.",
        },
    ),
    *_rows(
        "kafka.controller",
        "ControllerEventManager",
        HISTOGRAM,
        CONTROLLER,
        {
            "EventQueueTimeMs": "How long commands waited for the controller.",
            "EventQueueProcessingTimeMs": "How long decisions took.",
        },
    ),
)

_QUORUM = (
    *_rows(
        "kafka.server",
        "raft-metrics",
        INFO,
        BOTH,
        {
            "current-state": "leader, follower, observer, candidate, prospective, unattached or resigned.",
        },
        labels=("current_state",),
    ),
    *_rows(
        "kafka.server",
        "raft-metrics",
        GAUGE,
        BOTH,
        {
            "current-leader": "Node id of the metadata quorum's leader; -1 if none is known.",
            "current-epoch": "Epoch of the metadata quorum.",
            "current-vote": "Node id that this node voted for in this epoch; -1 for none.",
            "high-watermark": "End of what is committed of the metadata log, exclusive.",
            "log-end-offset": "End of this node's metadata log, exclusive.",
            "log-end-epoch": "Epoch of the last record of this node's metadata log.",
            "number-of-voters": "Voters in the set that is in force.",
            "number-of-observers": "Nodes that fetch and do not vote; 0 on nodes that do not lead.",
            "number-unknown-voter-connections": "Always 0: the set of voters has the address of each.",
            "uncommitted-voter-change": "1 while a change of the voters is not committed.",
            "append-records-rate": "Records that this node appended as the leader, per second.",
            "fetch-records-rate": "Records that this node fetched from the leader, per second.",
            "commit-latency-avg": "From append to commit of batches, on the leader; ms, mean of the newest.",
            "commit-latency-max": "The largest of those.",
            "election-latency-avg": "From when no leader was known to when one was; ms, mean of the newest.",
            "election-latency-max": "The largest of those.",
            "poll-idle-ratio-avg": "Share of the last half minute that the event loop waited.",
        },
    ),
    *_rows(
        "kafka.server",
        "raft-channel-metrics",
        GAUGE,
        BOTH,
        {
            "request-total": "Requests that this node sent to other members of the quorum.",
            "response-total": "Answers that it got.",
            "outgoing-byte-total": "Bytes of the bodies of those requests.",
            "incoming-byte-total": "Bytes of the bodies of those answers.",
        },
    ),
    *_rows(
        "kafka.server",
        "broker-metadata-metrics",
        GAUGE,
        BOTH,
        {
            "last-applied-record-offset": "Last metadata record that this node has replayed.",
            "last-applied-record-timestamp": "When it was appended; ms since 1970.",
            "last-applied-record-lag-ms": "Its age.",
            "metadata-load-error-count": "Always 0: a metadata record that cannot be read stops the node.",
            "metadata-apply-error-count": "Always 0, for the same reason.",
        },
    ),
    *_rows(
        "kafka.server",
        "MetadataLoader",
        GAUGE,
        BOTH,
        {
            "CurrentMetadataVersion": "Level of the finalized metadata.version.",
            "CurrentControllerId": "Node id of the active controller; -1 if none is known.",
            "HandleLoadSnapshotCount": "Snapshots of the metadata that this node has loaded.",
        },
    ),
    *_rows(
        "kafka.server",
        "MetadataLoader",
        GAUGE,
        BOTH,
        {"FinalizedLevel": "Finalized level of each feature."},
        labels=("featureName",),
    ),
    *_rows(
        "kafka.server",
        "SnapshotEmitter",
        GAUGE,
        BOTH,
        {
            "LatestSnapshotGeneratedBytes": "Size of the last snapshot of the metadata that this node wrote; 0 before.",
            "LatestSnapshotGeneratedAgeMs": "Its age; 0 before.",
        },
    ),
)

_NODE = (
    *_rows(
        "kafka.server",
        "KafkaServer",
        GAUGE,
        BROKER,
        {
            "BrokerState": "0 not running, 1 starting, 2 recovering, 3 running, 6 controlled shutdown, "
            "7 shutting down.",
        },
    ),
    *_rows("kafka.server", "KafkaServer", INFO, BOTH, {"ClusterId": "Id of the cluster."}, labels=("cluster_id",)),
    *_rows(
        "kafka.network",
        "SocketServer",
        GAUGE,
        BOTH,
        {
            "NetworkProcessorAvgIdlePercent": "Share (0 to 1) of the last half minute that the event loop waited.",
            "MemoryPoolUsed": "Bytes of the memory budget that are taken.",
            "MemoryPoolAvailable": "Bytes of the memory budget that are free.",
        },
    ),
    *_rows(
        "kafka.server",
        "KafkaRequestHandlerPool",
        COUNTER,
        BOTH,
        {
            "RequestHandlerAvgIdlePercent": "Nanoseconds that the event loop waited: `rate(…) / 1e9` is the share. One "
            "loop does what Kafka's network and request threads do.",
        },
    ),
    *_rows(
        "kafka.network",
        "RequestChannel",
        GAUGE,
        BOTH,
        {
            "RequestQueueSize": "Connections with requests that are received and not handled yet.",
            "ResponseQueueSize": "Requests that are handled and not answered yet.",
        },
    ),
    *_rows(
        "kafka.server",
        "socket-server-metrics",
        GAUGE,
        BOTH,
        {
            "connection-count": "Open connections.",
            "connection-creation-total": "Connections accepted.",
            "connection-close-total": "Connections that ended.",
        },
        labels=("listener",),
    ),
    *_rows(
        "kafka.server",
        "socket-server-metrics",
        GAUGE,
        BOTH,
        {"connections": "Open connections, by what their ApiVersions requests say of the client."},
        labels=("listener", "clientSoftwareName", "clientSoftwareVersion"),
    ),
    *_rows(
        "kafka.server",
        "socket-server-metrics",
        GAUGE,
        BOTH,
        {
            "incoming-byte-total": "Bytes received, on connections accepted and dialled.",
            "outgoing-byte-total": "Bytes sent, on connections accepted and dialled.",
            "incoming-byte-rate": "Bytes received per second.",
            "outgoing-byte-rate": "Bytes sent per second.",
            "connection-creation-rate": "Connections accepted per second.",
            "connection-close-rate": "Connections that ended, per second.",
        },
    ),
    *_rows(
        "kraft.runtime",
        "Loop",
        GAUGE,
        BOTH,
        {
            "Passes": "Passes of the event loop.",
            "LongSteps": "Passes that took more than 20 ms.",
            "LongestStepMs": "The longest pass.",
        },
    ),
)

TABLE: tuple[Row, ...] = (*_REQUESTS, *_TOPICS, *_REPLICAS, *_LOGS, *_GROUPS, *_CONTROLLER, *_QUORUM, *_NODE)
