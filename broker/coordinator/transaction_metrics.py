"""The metrics of the transaction coordinator; gauges are computed when they are read.

Kafka has the metrics of the groups kafka.coordinator.transaction and kafka.server; kraft.coordinator is an addition.
Source: Kafka's TransactionMarkerChannelManager, TransactionStateManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.metric_registry import PIECES_PER_STEP, Metrics, ScanSteps
from kraft.broker.txn.states import TransactionState

if TYPE_CHECKING:
    from kraft.broker.coordinator.transaction_coordinators import TransactionCoordinators

COORDINATOR, MARKERS = "kafka.coordinator.transaction", "TransactionMarkerChannelManager"
SERVER, LOADING = "kafka.server", "transaction-coordinator-metrics"
OWN, TRANSACTIONS = "kraft.coordinator", "Transactions"
RETRIES, IDS, OPEN = "LogAppendRetryQueueSize", "TransactionalIds", "Open"


def register_transaction_metrics(coordinators: TransactionCoordinators, metrics: Metrics) -> None:
    """Register the metrics of the transaction coordinator."""
    counts, load_ms, markers = coordinators.counts, coordinators.load_ms, coordinators.markers
    metrics.gauge(COORDINATOR, MARKERS, "UnknownDestinationQueueSize", lambda: markers.without_leader)
    metrics.together(COORDINATOR, MARKERS, (RETRIES,), lambda: _count_retries(coordinators))
    metrics.gauge(SERVER, LOADING, "partition-load-time-max", lambda: max(load_ms.samples, default=0))
    metrics.gauge(SERVER, LOADING, "partition-load-time-avg", lambda: load_ms.mean)
    metrics.together(OWN, TRANSACTIONS, (IDS, OPEN), lambda: _count_ids(coordinators))
    metrics.gauge(OWN, TRANSACTIONS, "WaitingMarkers", lambda: markers.waiting)
    metrics.counter(OWN, TRANSACTIONS, "Committed", lambda: counts.committed)
    metrics.counter(OWN, TRANSACTIONS, "Aborted", lambda: counts.aborted)
    metrics.counter(OWN, TRANSACTIONS, "TimedOut", lambda: counts.timed_out)


def _count_retries(coordinators: TransactionCoordinators) -> ScanSteps:
    """Count the transactional ids whose markers are all written, but whose Complete record is not being written."""
    total = 0
    for shard in list(coordinators.shards.values()):
        known = () if shard.machine is None else tuple(shard.machine.transactions.values())
        for number, one in enumerate(known, 1):
            total += one.completion is not None and not one.completion.left and one.pending is None
            if not number % PIECES_PER_STEP:
                yield
    return {RETRIES: total}


def _count_ids(coordinators: TransactionCoordinators) -> ScanSteps:
    counts = {IDS: 0.0, OPEN: 0.0}
    for shard in list(coordinators.shards.values()):
        known = () if shard.machine is None else tuple(shard.machine.transactions.values())
        counts[IDS] += len(known)
        for number, one in enumerate(known, 1):
            counts[OPEN] += one.value is not None and one.value.state is TransactionState.ONGOING
            if not number % PIECES_PER_STEP:
                yield
    return counts
