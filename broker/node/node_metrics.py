"""The metrics that every node has: its state, its event loop, its listeners, its use of the memory budget, and its
quorum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.metric_registry import Labelled, MetricKind, Metrics
from kraft.broker.serving.metrics.quorum import register_metadata_metrics, register_quorum_metrics
from kraft.broker.serving.metrics.rates import NS_PER_SECOND, Rate
from kraft.broker.serving.metrics.requests import register_request_metrics

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker
    from kraft.broker.node.serve import Node
    from kraft.broker.serving.metrics.rates import Rates
    from kraft.seam import ListenerStats, Seam

SERVER = "kafka.server"
SOCKETS = "SocketServer"


def register_node_metrics(node: Node, seam: Seam) -> None:
    """Register the metrics of every node, once, before the node serves."""
    metrics, stats = node.metrics, seam.network.stats
    idle = node.rates.of(lambda: stats.waited_ns)
    register_request_metrics(node.requests, metrics)
    register_quorum_metrics(node.quorum, node.rates, idle, metrics)
    register_metadata_metrics(node.publisher, node.quorum, seam.clock, metrics)
    _register_loop(node, seam, idle)
    cluster = [({"cluster_id": node.identity.cluster_id}, 1)]
    metrics.enumerate(SERVER, "KafkaServer", "ClusterId", MetricKind.INFO, lambda: cluster)
    if node.broker is not None:
        lifecycle = node.broker.broker.lifecycle
        metrics.gauge(SERVER, "KafkaServer", "BrokerState", lambda: lifecycle.state)
        _register_broker(node.broker.broker, node.rates, metrics)
    if node.config.is_controller:
        from kraft.broker.serving.metrics.controller import register_image_counts

        register_image_counts(node.publisher, metrics)


def _register_broker(broker: Broker, rates: Rates, metrics: Metrics) -> None:
    # A controller alone needs none of the broker, and starts sooner without it.
    from kraft.broker.api.share_fetch.share_meters import register_share_metrics
    from kraft.broker.coordinator.group_metrics import register_group_metrics, register_share_coordinator_metrics
    from kraft.broker.coordinator.transaction_metrics import register_transaction_metrics
    from kraft.broker.roles.replica_metrics import register_rates

    register_group_metrics(broker.groups, rates, metrics)
    register_share_coordinator_metrics(broker.share_coordinators, rates, metrics)
    register_share_metrics(broker.shares, metrics)
    register_transaction_metrics(broker.transactions, metrics)
    replicas = broker.replicas
    register_rates(metrics, rates, replicas.fetchers, replicas.leader_quota, replicas.follower_quota)


def _register_loop(node: Node, seam: Seam, idle: Rate) -> None:
    """Register the metrics of the event loop, which does the work of Kafka's network and request threads. Steps longer
    than 20 ms are counted, because no step may block the loop for long."""
    metrics, stats, memory = node.metrics, seam.network.stats, node.gates.memory
    metrics.gauge("kafka.network", SOCKETS, "NetworkProcessorAvgIdlePercent", lambda: idle() / NS_PER_SECOND)
    handlers = "KafkaRequestHandlerPool"
    metrics.counter(SERVER, handlers, "RequestHandlerAvgIdlePercent", lambda: stats.waited_ns)
    metrics.gauge("kafka.network", SOCKETS, "MemoryPoolUsed", lambda: memory.used_bytes)
    metrics.gauge("kafka.network", SOCKETS, "MemoryPoolAvailable", lambda: memory.total_bytes - memory.used_bytes)
    metrics.gauge("kraft.runtime", "Loop", "Passes", lambda: stats.passes)
    metrics.gauge("kraft.runtime", "Loop", "LongSteps", lambda: stats.long_steps)
    metrics.gauge("kraft.runtime", "Loop", "LongestStepMs", lambda: stats.longest_step_ns / 1e6)
    metrics.counter("kraft.runtime", "Loop", "CpuMs", lambda: stats.schedule()[0] / 1e6)
    metrics.counter("kraft.runtime", "Loop", "WaitedForCpuMs", lambda: stats.schedule()[1] / 1e6)
    _register_connections(node, seam)


def _register_connections(node: Node, seam: Seam) -> None:
    metrics, stats, sockets = node.metrics, seam.network.stats, "socket-server-metrics"
    metrics.gauge(SERVER, sockets, "incoming-byte-total", lambda: stats.bytes_received)
    metrics.gauge(SERVER, sockets, "outgoing-byte-total", lambda: stats.bytes_sent)
    metrics.gauge(SERVER, sockets, "incoming-byte-rate", node.rates.of(lambda: stats.bytes_received))
    metrics.gauge(SERVER, sockets, "outgoing-byte-rate", node.rates.of(lambda: stats.bytes_sent))
    _register_authentication(node, seam)
    accepted, closed = node.requests.accepted, node.requests.closed
    metrics.gauge(SERVER, sockets, "connection-creation-rate", node.rates.of(lambda: sum(accepted.values())))
    metrics.gauge(SERVER, sockets, "connection-close-rate", node.rates.of(lambda: sum(closed.values())))


def _register_authentication(node: Node, seam: Seam) -> None:
    """Register the metrics of TLS authentication: of successful and failed authentications of clients, and of the
    listeners' certificates."""
    metrics, listeners, sockets = node.metrics, seam.network.stats.listeners, "socket-server-metrics"

    def succeeded() -> Labelled:
        return [({"listener": name}, one.authenticated) for name, one in listeners.items()]

    def failed() -> Labelled:
        return [({"listener": name}, one.authentications_failed) for name, one in listeners.items()]

    def expiries() -> Labelled:
        for name, one in listeners.items():
            if one.certificate_expiry_s is not None:
                yield {"listener": name}, one.certificate_expiry_s()

    def rate(count: Callable[[ListenerStats], int]) -> Rate:
        return node.rates.of(lambda: sum(map(count, listeners.values())))

    metrics.enumerate(SERVER, sockets, "successful-authentication-total", MetricKind.GAUGE, succeeded)
    metrics.enumerate(SERVER, sockets, "failed-authentication-total", MetricKind.GAUGE, failed)
    metrics.gauge(SERVER, sockets, "successful-authentication-rate", rate(lambda one: one.authenticated))
    metrics.gauge(SERVER, sockets, "failed-authentication-rate", rate(lambda one: one.authentications_failed))
    metrics.enumerate("kraft.network", "Listener", "certificate-expiry-timestamp-seconds", MetricKind.GAUGE, expiries)
