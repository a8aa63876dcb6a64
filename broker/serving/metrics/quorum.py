"""The metrics of the metadata quorum and of the metadata applied from its log. Source: Kafka's KafkaRaftMetrics,
MetadataLoaderMetrics and SnapshotEmitterMetrics (KIP-595, KIP-938).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.metric_registry import Labelled, MetricKind, Metrics
from kraft.image.image import METADATA_VERSION_FEATURE
from kraft.raft.identity import ReplicaKey
from kraft.raft.state import Candidate, Follower, Leader, Prospective, Resigned, Unattached

if TYPE_CHECKING:
    from kraft.broker.serving.metrics.rates import Rate, Rates
    from kraft.quorum.counters import QuorumMeasures
    from kraft.quorum.publisher import MetadataPublisher
    from kraft.quorum.quorum import Quorum
    from kraft.seam import Clock
    from kraft.seam.measures import Histogram

GROUP = "kafka.server"
RAFT, CHANNEL, APPLIED = "raft-metrics", "raft-channel-metrics", "broker-metadata-metrics"
STATES = MappingProxyType(
    {
        Leader: "leader",
        Resigned: "resigned",
        Candidate: "candidate",
        Prospective: "prospective",
        Follower: "follower",
        Unattached: "unattached",
    }
)
NO_NODE = -1


def register_quorum_metrics(quorum: Quorum, rates: Rates, idle: Rate, metrics: Metrics) -> None:
    """Register the metrics of this node's quorum state, and of its connections to the other quorum nodes."""

    def gauge(name: str, value: Callable[[], float]) -> None:
        metrics.gauge(GROUP, RAFT, name, value)

    measures, peers = quorum.measures, quorum.peers
    metrics.enumerate(
        GROUP, RAFT, "current-state", MetricKind.INFO, lambda: [({"current_state": quorum_state(quorum)}, 1)]
    )
    gauge("current-leader", lambda: _id(quorum.leader_and_epoch[0]))
    gauge("current-epoch", lambda: quorum.leader_and_epoch[1])
    gauge("current-vote", lambda: _vote(quorum))
    gauge("high-watermark", lambda: quorum.high_watermark)
    gauge("log-end-offset", lambda: quorum.log_end_offset)
    gauge("log-end-epoch", lambda: 0 if quorum.replica is None else quorum.replica.log.last_epoch)
    gauge("number-of-voters", lambda: len(quorum.voters))
    gauge("number-of-observers", lambda: len(quorum.describe().observers))
    gauge("number-unknown-voter-connections", lambda: 0)  # the voter set contains the address of each voter
    gauge("uncommitted-voter-change", lambda: _has_uncommitted_voters(quorum))
    gauge("append-records-rate", rates.of(lambda: measures.appended))
    gauge("fetch-records-rate", rates.of(lambda: measures.fetched))
    gauge("poll-idle-ratio-avg", lambda: idle() / 1e9)
    for name, histogram in (("commit-latency", measures.commit_ms), ("election-latency", measures.election_ms)):
        gauge(f"{name}-avg", _mean_of(histogram))
        gauge(f"{name}-max", _largest_of(histogram))
    metrics.gauge(GROUP, CHANNEL, "request-total", lambda: peers.requests)
    metrics.gauge(GROUP, CHANNEL, "response-total", lambda: peers.answers)
    metrics.gauge(GROUP, CHANNEL, "outgoing-byte-total", lambda: peers.request_bytes)
    metrics.gauge(GROUP, CHANNEL, "incoming-byte-total", lambda: peers.answer_bytes)


def register_metadata_metrics(publisher: MetadataPublisher, quorum: Quorum, clock: Clock, metrics: Metrics) -> None:
    """Register the metrics of the applied metadata log and its snapshots."""

    def applied(name: str, value: Callable[[], float]) -> None:
        metrics.gauge(GROUP, APPLIED, name, value)

    def loader(name: str, value: Callable[[], float]) -> None:
        metrics.gauge(GROUP, "MetadataLoader", name, value)

    applied("last-applied-record-offset", lambda: publisher.image.offset - 1)
    applied("last-applied-record-timestamp", lambda: publisher.applied_time_ms)
    applied("last-applied-record-lag-ms", lambda: _lag_ms(publisher, clock))
    applied("metadata-load-error-count", lambda: 0)  # always 0: a record that cannot be read or applied stops the node
    applied("metadata-apply-error-count", lambda: 0)
    loader("CurrentMetadataVersion", lambda: publisher.image.features.get(METADATA_VERSION_FEATURE, 0))
    loader("CurrentControllerId", lambda: _id(publisher.leader_id))
    loader("HandleLoadSnapshotCount", lambda: publisher.snapshots_loaded)
    metrics.enumerate(GROUP, "MetadataLoader", "FinalizedLevel", MetricKind.GAUGE, lambda: _levels(publisher))
    measures, emitter = quorum.measures, "SnapshotEmitter"
    metrics.gauge(GROUP, emitter, "LatestSnapshotGeneratedBytes", lambda: measures.snapshot_bytes)
    metrics.gauge(GROUP, emitter, "LatestSnapshotGeneratedAgeMs", lambda: _snapshot_age_ms(measures, clock))


def quorum_state(quorum: Quorum) -> str:
    replica = quorum.replica
    if replica is None:
        return "unattached"
    state = STATES[type(replica.role)]
    return "observer" if state == "follower" and not replica.is_voter else state


def _vote(quorum: Quorum) -> int:
    voted = None if quorum.replica is None else quorum.replica.voted
    return voted.node_id if isinstance(voted, ReplicaKey) else NO_NODE


def _has_uncommitted_voters(quorum: Quorum) -> bool:
    replica = quorum.replica
    return replica is not None and replica.log.voters.latest_offset >= quorum.high_watermark


def _mean_of(histogram: Histogram) -> Callable[[], float]:
    return lambda: _mean(histogram.samples)


def _mean(samples: Iterable[float]) -> float:
    values = list(samples)
    return sum(values) / len(values) if values else 0.0


def _largest_of(histogram: Histogram) -> Callable[[], float]:
    return lambda: max(histogram.samples, default=0.0)


def _lag_ms(publisher: MetadataPublisher, clock: Clock) -> float:
    return 0 if publisher.applied_time_ms < 0 else max(0, clock.wall_ms() - publisher.applied_time_ms)


def _snapshot_age_ms(measures: QuorumMeasures, clock: Clock) -> float:
    return 0 if measures.snapshot_ms is None else clock.monotonic_ms() - measures.snapshot_ms


def _levels(publisher: MetadataPublisher) -> Labelled:
    return [({"featureName": name}, level) for name, level in publisher.image.features.items()]


def _id(node_id: int | None) -> int:
    return NO_NODE if node_id is None else node_id
