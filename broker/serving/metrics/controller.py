"""The metrics of a controller. Source: Kafka's ControllerMetadataMetrics, QuorumControllerMetrics (KIP-801)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.metric_registry import Labelled, MetricKind, Metrics
from kraft.controller.partition_tally import PartitionTally
from kraft.image.registrations import BrokerRegistration

if TYPE_CHECKING:
    from kraft.controller.controller import Controller
    from kraft.quorum.publisher import MetadataPublisher

GROUP = "kafka.controller"
CONTROLLER = "KafkaController"
FENCED, SHUTTING_DOWN, ACTIVE = 10, 20, 30
"""Values of Kafka's BrokerRegistrationState metric."""


def register_image_counts(publisher: MetadataPublisher, metrics: Metrics) -> None:
    """Register a controller's counts of the committed metadata, which exist whether or not the controller is active.
    Called before the quorum runs."""
    tally = PartitionTally()
    publisher.subscribe(tally.published)

    def gauge(name: str, value: Callable[[], float]) -> None:
        metrics.gauge(GROUP, CONTROLLER, name, value)

    def brokers(name: str, holds: Callable[[BrokerRegistration], bool]) -> None:
        gauge(name, lambda: sum(holds(broker) for broker in publisher.image.brokers.values()))

    gauge("GlobalTopicCount", lambda: len(publisher.image.topics))
    gauge("GlobalPartitionCount", lambda: tally.partitions)
    gauge("OfflinePartitionsCount", lambda: tally.offline)
    gauge("PreferredReplicaImbalanceCount", lambda: tally.not_preferred)
    brokers("ActiveBrokerCount", lambda broker: not broker.fenced)
    brokers("FencedBrokerCount", lambda broker: broker.fenced)
    brokers("ControlledShutdownBrokerCount", lambda broker: broker.in_controlled_shutdown)
    metrics.enumerate(GROUP, CONTROLLER, "BrokerRegistrationState", MetricKind.GAUGE, lambda: _registrations(publisher))
    unclean, eligible = "UncleanLeaderElectionsPerSec", "ElectionFromEligibleLeaderReplicasPerSec"
    metrics.counter(GROUP, "ControllerStats", unclean, lambda: tally.unclean_elections)
    metrics.counter(GROUP, "ControllerStats", eligible, lambda: tally.eligible_elections)


def register_controller_metrics(controller: Controller, metrics: Metrics) -> None:
    """Register the metrics of the controller's own work."""
    queue, quorum, publisher, clock = controller.queue, controller.quorum, controller.publisher, controller.clock

    def gauge(name: str, value: Callable[[], float]) -> None:
        metrics.gauge(GROUP, CONTROLLER, name, value)

    def lag_ms() -> float:
        applied_ms = publisher.applied_time_ms
        return 0 if queue.is_active or applied_ms < 0 else max(0, clock.wall_ms() - applied_ms)

    gauge("ActiveControllerCount", lambda: float(quorum.is_leader))
    gauge("MetadataErrorCount", lambda: 0)  # always 0: an event that cannot be read stops the node
    gauge("LastAppliedRecordOffset", lambda: publisher.image.offset - 1)
    gauge("LastCommittedRecordOffset", lambda: quorum.high_watermark - 1)
    gauge("LastAppliedRecordTimestamp", lambda: publisher.applied_time_ms)
    gauge("LastAppliedRecordLagMs", lag_ms)
    gauge("TimedOutBrokerHeartbeatCount", lambda: controller.periodic.sessions_expired)
    gauge("NewActiveControllersCount", lambda: publisher.leaders_seen)
    gauge("EventQueueOperationsStartedCount", lambda: queue.started)
    gauge("EventQueueOperationsTimedOutCount", lambda: queue.timed_out)
    metrics.enumerate(
        GROUP, CONTROLLER, "TimeSinceLastHeartbeatReceivedMs", MetricKind.GAUGE, lambda: _since_heartbeats(controller)
    )
    metrics.expose(GROUP, "ControllerEventManager", "EventQueueTimeMs", queue.queue_ms)
    metrics.expose(GROUP, "ControllerEventManager", "EventQueueProcessingTimeMs", queue.processing_ms)


def _registrations(publisher: MetadataPublisher) -> Labelled:
    for broker in publisher.image.sorted_brokers():
        state = FENCED if broker.fenced else SHUTTING_DOWN if broker.in_controlled_shutdown else ACTIVE
        yield {"broker": str(broker.broker_id)}, state


def _since_heartbeats(controller: Controller) -> Labelled:
    now_ms = controller.clock.monotonic_ms()
    for broker_id, session in controller.sessions.view.items():
        yield {"broker": str(broker_id)}, now_ms - session.last_heard_ms
