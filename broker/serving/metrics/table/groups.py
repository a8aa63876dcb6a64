"""Metrics of the group coordinator."""

from __future__ import annotations

from kraft.broker.serving.metrics.table.rows import BROKER, COUNTER, GAUGE, rows

GROUPS = (
    *rows(
        "kafka.coordinator.group",
        "GroupMetadataManager",
        GAUGE,
        BROKER,
        {
            "NumGroups": "Classic groups that this broker coordinates.",
            "NumGroupsPreparingRebalance": "Those that wait for members to join.",
            "NumGroupsCompletingRebalance": "Those that wait for the assignment.",
            "NumGroupsStable": "Those whose members have their assignment.",
            "NumGroupsEmpty": "Those without members.",
            "NumOffsets": "Committed offsets.",
        },
    ),
    *rows(
        "kafka.coordinator.group",
        "group-coordinator-metrics",
        COUNTER,
        BROKER,
        {
            "offset-commit-count": "Offsets committed.",
            "offset-expiration-count": "Offsets forgotten because their time was over.",
            "offset-deletion-count": "Offsets forgotten on request, or because their topic was deleted.",
            "group-completed-rebalance-count": "Rebalances of classic groups whose join phase ended.",
            "consumer-group-rebalance-count": "Times that the epoch of a consumer group (KIP-848) rose.",
            "share-group-rebalance-count": "Times that the epoch of a share group (KIP-932) rose.",
        },
    ),
    *rows(
        "kafka.coordinator.group",
        "group-coordinator-metrics",
        GAUGE,
        BROKER,
        {
            "offset-commit-rate": "Offsets committed per second.",
            "offset-expiration-rate": "Offsets expired per second.",
            "offset-deletion-rate": "Offsets deleted per second.",
            "group-completed-rebalance-rate": "Rebalances of classic groups per second.",
            "consumer-group-rebalance-rate": "Rebalances of consumer groups per second.",
            "share-group-rebalance-rate": "Rebalances of share groups per second.",
            "partition-load-time-max": "Longest load of a partition of groups; ms, of the newest.",
            "partition-load-time-avg": "Mean of the loads; ms.",
            "event-queue-size": "Requests that wait for a partition of groups to be loaded, or for its log.",
        },
    ),
    *rows(
        "kafka.coordinator.group",
        "group-coordinator-metrics",
        GAUGE,
        BROKER,
        {"num-partitions": "Partitions of groups that this broker coordinates, loading and active."},
        labels=("state",),
    ),
    *rows(
        "kafka.coordinator.group",
        "group-coordinator-metrics",
        GAUGE,
        BROKER,
        {"group-count": "Groups that this broker coordinates: classic, consumer and share groups."},
        labels=("protocol",),
    ),
    *rows(
        "kafka.coordinator.group",
        "group-coordinator-metrics",
        GAUGE,
        BROKER,
        {
            "consumer-group-count": "Consumer groups (KIP-848) in each state: empty, assigning, reconciling, stable.",
            "share-group-count": "Share groups (KIP-932) in each state: empty, stable.",
        },
        labels=("state",),
    ),
)
