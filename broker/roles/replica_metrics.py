"""The metrics of the data plane, under Kafka's names; each is computed when it is read.
Source: Kafka's ReplicaManager, Partition, AbstractFetcherManager, FetchSession.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from kraft.broker.replica.follower import FollowerStatus
from kraft.broker.serving.metrics.metric_registry import PIECES_PER_STEP, Labelled, MetricKind, Metrics, ScanSteps

if TYPE_CHECKING:
    from kraft.broker.api.fetch.sessions import FetchSessionCache
    from kraft.broker.following.fetchers import Fetchers
    from kraft.broker.following.leader_dialer import LeaderDialer
    from kraft.broker.following.leader_fetcher import LeaderFetcher
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.replica_index import ReplicaIndex
    from kraft.broker.partition.replication_quota import ReplicationQuota
    from kraft.broker.roles.alter_partition import AlterPartitionQueue
    from kraft.broker.serving.metrics.rates import Rate, Rates
    from kraft.broker.serving.purgatory import Deadlines

GROUP = "kafka.server"
REPLICAS, FETCHERS, STATS = "ReplicaManager", "ReplicaFetcherManager", "FetcherStats"
COUNTS = (
    "PartitionCount",
    "LeaderCount",
    "UnderReplicatedPartitions",
    "UnderMinIsrPartitionCount",
    "AtMinIsrPartitionCount",
    "OfflineReplicaCount",
    "ReassigningPartitions",
)
PRODUCERS = "ProducerIdCount"
MAX_LAG, FAILED = "MaxLag", "FailedPartitionsCount"
ALWAYS_SHOWN = ("Produce", "Fetch")


def register_replica_metrics(
    metrics: Metrics,
    hosted: ReplicaIndex,
    proposals: AlterPartitionQueue,
    sessions: FetchSessionCache,
    deadlines: Deadlines,
) -> None:
    """Register the metrics of hosted replicas, fetch sessions and waiting requests, once."""
    metrics.together(GROUP, REPLICAS, COUNTS, lambda: count_replicas(hosted))
    metrics.together(GROUP, REPLICAS, (PRODUCERS,), lambda: _count_producers(hosted))
    metrics.counter(GROUP, REPLICAS, "IsrShrinksPerSec", lambda: proposals.shrinks)
    metrics.counter(GROUP, REPLICAS, "IsrExpandsPerSec", lambda: proposals.expands)
    metrics.counter(GROUP, REPLICAS, "FailedIsrUpdatesPerSec", lambda: proposals.failed)
    cache = "FetchSessionCache"
    metrics.gauge(GROUP, cache, "NumIncrementalFetchSessions", lambda: len(sessions))
    metrics.gauge(GROUP, cache, "NumIncrementalFetchPartitionsCached", lambda: sessions.partitions)
    metrics.counter(GROUP, cache, "IncrementalFetchSessionEvictionsPerSec", lambda: sessions.evictions)
    metrics.enumerate(
        GROUP, "DelayedOperationPurgatory", "PurgatorySize", MetricKind.GAUGE, lambda: _waiting(deadlines)
    )
    _register_partitions(metrics, hosted)


def _waiting(deadlines: Deadlines) -> Labelled:
    kinds = deadlines.kinds()
    return [({"delayedOperation": kind}, kinds[kind]) for kind in {*ALWAYS_SHOWN, *kinds}]


def _count_producers(hosted: ReplicaIndex) -> ScanSteps:
    total = 0
    for number, partition in enumerate(hosted.with_open_logs(), 1):
        total += 0 if partition.log is None else len(partition.log.producers.entries)
        if not number % PIECES_PER_STEP:
            yield
    return {PRODUCERS: total}


def register_rates(
    metrics: Metrics,
    rates: Rates,
    fetchers: Fetchers,
    leader_quota: ReplicationQuota,
    follower_quota: ReplicationQuota,
) -> None:
    """Register the request rate of the slowest fetcher, and the rates that the replication throttles measure."""
    measured: dict[LeaderFetcher, Rate] = {}

    def slowest() -> float:
        busy = [fetcher for fetcher in fetchers if len(fetcher)]
        return min((measured[fetcher]() for fetcher in busy if fetcher in measured), default=0)

    def add_missing_rates() -> float:
        """Create a rate for each fetcher that has none. Called once a second."""
        for fetcher in fetchers:
            if fetcher not in measured:
                measured[fetcher] = rates.of(partial(_requests, fetcher))
        return len(measured)

    rates.of(add_missing_rates)
    metrics.gauge(GROUP, FETCHERS, "MinFetchRate", slowest, clientId="Replica")
    metrics.gauge(GROUP, "LeaderReplication", "byte-rate", lambda: leader_quota.measured_rate)
    metrics.gauge(GROUP, "FollowerReplication", "byte-rate", lambda: follower_quota.measured_rate)


def _requests(fetcher: LeaderFetcher) -> float:
    return fetcher.requests


# counts of replicas


def count_replicas(hosted: Iterable[Partition]) -> ScanSteps:
    """Compute all metrics in COUNTS with one iteration over all replicas."""
    total = led = under = under_min = at_min = offline = reassigning = 0
    for partition in hosted:
        if total and not total % PIECES_PER_STEP:
            yield
        total += 1
        offline += partition.is_offline
        state = partition.state
        if state is None or not partition.leads:
            continue
        led += 1
        reassigning += state.is_reassigning
        in_sync, least = in_sync_replicas(partition), effective_min_isr(partition)
        under += in_sync < _assigned(partition)
        under_min += in_sync < least
        at_min += in_sync == least
    return dict(zip(COUNTS, (total, led, under, under_min, at_min, offline, reassigning), strict=True))


def in_sync_replicas(partition: Partition) -> int:
    """Return the number of in-sync replicas; 0 if this broker does not lead. While the log is not open yet, return the
    number in the metadata."""
    if partition.state is None or not partition.leads:
        return 0
    return len(partition.state.isr if partition.leader is None else partition.leader.isr.committed)


def effective_min_isr(partition: Partition) -> int:
    """Return min.insync.replicas, or the number of replicas if that is smaller."""
    replicas = () if partition.state is None else partition.state.replicas
    return min(partition.config.min_insync_replicas, len(replicas))


def _assigned(partition: Partition) -> int:
    """Return the number of assigned replicas, without replicas that a reassignment is still adding."""
    state = partition.state
    if state is None:
        return 0
    return len(set(state.replicas) - set(state.adding)) if state.adding else len(state.replicas)


# per partition


def _register_partitions(metrics: Metrics, hosted: ReplicaIndex) -> None:
    def per_partition(name: str, value: Callable[[Partition], float]) -> None:
        def read() -> Labelled:
            for partition in hosted:
                yield {"topic": partition.topic, "partition": str(partition.index)}, value(partition)

        metrics.enumerate("kafka.cluster", "Partition", name, MetricKind.GAUGE, read, is_on_demand=True)

    per_partition("UnderReplicated", lambda one: one.leads and in_sync_replicas(one) < _assigned(one))
    per_partition("UnderMinIsr", lambda one: one.leads and in_sync_replicas(one) < effective_min_isr(one))
    per_partition("AtMinIsr", lambda one: one.leads and in_sync_replicas(one) == effective_min_isr(one))
    per_partition("InSyncReplicasCount", in_sync_replicas)
    per_partition("ReplicasCount", lambda one: len(one.state.replicas) if one.state is not None and one.leads else 0)
    per_partition("LastStableOffsetLag", _last_stable_lag)


def _last_stable_lag(partition: Partition) -> int:
    log = partition.log
    return 0 if log is None else max(0, partition.high_watermark - log.last_stable_offset)


# fetchers


def register_fetcher_metrics(metrics: Metrics, fetchers: Fetchers, leaders: LeaderDialer) -> None:
    """Register the metrics of fetchers, once."""

    def followed() -> ScanSteps:
        lag = failed = 0
        everyone = chain.from_iterable(list(fetcher.all_followed) for fetcher in fetchers)
        for number, one in enumerate(everyone, 1):
            lag = max(lag, one.lag)
            failed += one.state.status is FollowerStatus.STOPPED
            if not number % PIECES_PER_STEP:
                yield
        return {MAX_LAG: lag, FAILED: failed}

    def by_leader(value: Callable[[LeaderFetcher], float]) -> Callable[[], Labelled]:
        def read() -> Labelled:
            for fetcher in fetchers:
                endpoint = leaders.endpoint(fetcher.leader_id)
                if endpoint is not None:
                    labels = {"brokerHost": endpoint.host, "brokerPort": str(endpoint.port)}
                    yield labels | {"clientId": fetcher.client_id}, value(fetcher)

        return read

    metrics.together(GROUP, FETCHERS, (MAX_LAG, FAILED), followed, clientId="Replica")
    metrics.enumerate(GROUP, STATS, "BytesPerSec", MetricKind.COUNTER, by_leader(lambda fetcher: fetcher.answer_bytes))
    metrics.enumerate(GROUP, STATS, "RequestsPerSec", MetricKind.COUNTER, by_leader(lambda fetcher: fetcher.requests))
    metrics.enumerate(
        GROUP, "FetcherLagMetrics", "ConsumerLag", MetricKind.GAUGE, lambda: _lags(fetchers), is_on_demand=True
    )


def _lags(fetchers: Fetchers) -> Labelled:
    for fetcher in fetchers:
        for one in list(fetcher.all_followed):
            labels = {"topic": one.partition.topic, "partition": str(one.partition.index)}
            yield labels | {"clientId": fetcher.client_id}, one.lag
