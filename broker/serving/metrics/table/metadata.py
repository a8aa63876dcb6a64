"""Metrics of the controller, the metadata quorum, and the metadata that every node applies."""

from __future__ import annotations

from kraft.broker.serving.metrics.table.rows import BOTH, CONTROLLER, COUNTER, GAUGE, HISTOGRAM, INFO, rows

CONTROLLERS = (
    *rows(
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
    *rows(
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
    *rows(
        "kafka.controller",
        "ControllerStats",
        COUNTER,
        CONTROLLER,
        {
            "UncleanLeaderElectionsPerSec": "Leaders elected that were neither in sync nor eligible.",
            "ElectionFromEligibleLeaderReplicasPerSec": "Leaders elected that were not in sync, but eligible.",
        },
    ),
    *rows(
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


QUORUM = (
    *rows(
        "kafka.server",
        "raft-metrics",
        INFO,
        BOTH,
        {
            "current-state": "leader, follower, observer, candidate, prospective, unattached or resigned.",
        },
        labels=("current_state",),
    ),
    *rows(
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
    *rows(
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
    *rows(
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
    *rows(
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
    *rows(
        "kafka.server",
        "MetadataLoader",
        GAUGE,
        BOTH,
        {"FinalizedLevel": "Finalized level of each feature."},
        labels=("featureName",),
    ),
    *rows(
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
