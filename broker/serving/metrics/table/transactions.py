"""Metrics of the transaction coordinator."""

from __future__ import annotations

from kraft.broker.serving.metrics.table.rows import BROKER, COUNTER, GAUGE, rows

TRANSACTIONS = (
    *rows(
        "kafka.coordinator.transaction",
        "TransactionMarkerChannelManager",
        GAUGE,
        BROKER,
        {
            "UnknownDestinationQueueSize": "Markers whose partitions have no leader.",
            "LogAppendRetryQueueSize": "Decided transactions whose last record is written again, after a failure.",
        },
    ),
    *rows(
        "kafka.server",
        "transaction-coordinator-metrics",
        GAUGE,
        BROKER,
        {
            "partition-load-time-max": "Longest load of a partition of transactions; ms, of the newest.",
            "partition-load-time-avg": "Mean of the loads; ms.",
        },
    ),
    *rows(
        "kraft.coordinator",
        "Transactions",
        GAUGE,
        BROKER,
        {
            "TransactionalIds": "Transactional ids that this broker coordinates.",
            "Open": "Those whose transaction has begun and is not decided.",
            "WaitingMarkers": "Markers that wait for a request or for their next try.",
        },
    ),
    *rows(
        "kraft.coordinator",
        "Transactions",
        COUNTER,
        BROKER,
        {
            "Committed": "Transactions committed, with all markers.",
            "Aborted": "Transactions aborted, with all markers.",
            "TimedOut": "Transactions aborted because their time was over.",
        },
    ),
)
