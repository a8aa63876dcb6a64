"""The gauges that every node has: its state, what it has replayed, what its loop does, what its budget holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.node.metrics import Metrics
from kraft.broker.serving.metrics.controller import register_image_counts
from kraft.broker.serving.metrics.requests import register_request_metrics

if TYPE_CHECKING:
    from kraft.broker.node.serve import Node
    from kraft.seam import Seam


def register_node_metrics(node: Node, seam: Seam) -> None:
    """Register them once, before the node serves."""
    metrics = node.metrics
    publisher, quorum = node.publisher, node.quorum
    replayed = "broker-metadata-metrics"
    metrics.gauge("kafka.server", replayed, "last-applied-record-offset", lambda: publisher.image.offset - 1)
    metrics.gauge("kafka.server", "raft-metrics", "current-epoch", lambda: quorum.leader_and_epoch[1])
    metrics.gauge("kafka.server", "raft-metrics", "high-watermark", lambda: quorum.high_watermark)
    metrics.gauge("kafka.server", "raft-metrics", "log-end-offset", lambda: quorum.log_end_offset)
    metrics.gauge("kafka.server", "raft-metrics", "current-leader", lambda: _id(quorum.leader_and_epoch[0]))
    memory = node.gates.memory
    metrics.gauge("kafka.network", "SocketServer", "MemoryPoolUsed", lambda: memory.used_bytes)
    metrics.gauge(
        "kafka.network", "SocketServer", "MemoryPoolAvailable", lambda: memory.total_bytes - memory.used_bytes
    )
    register_request_metrics(node.requests, metrics)
    _register_loop(metrics, seam)
    if node.broker is not None:
        lifecycle = node.broker.broker.lifecycle
        metrics.gauge("kafka.server", "KafkaServer", "BrokerState", lambda: lifecycle.state)
    if node.config.is_controller:
        register_image_counts(publisher, metrics)


def _register_loop(metrics: Metrics, seam: Seam) -> None:
    """Steps of the loop over 20 ms are counted: nothing on the loop may block for long."""
    stats = seam.network.stats
    metrics.gauge("kraft.runtime", "Loop", "Passes", lambda: stats.passes)
    metrics.gauge("kraft.runtime", "Loop", "LongSteps", lambda: stats.long_steps)
    metrics.gauge("kraft.runtime", "Loop", "LongestStepMs", lambda: stats.longest_step_ns / 1e6)
    metrics.gauge("kafka.server", "socket-server-metrics", "incoming-byte-total", lambda: stats.bytes_received)
    metrics.gauge("kafka.server", "socket-server-metrics", "outgoing-byte-total", lambda: stats.bytes_sent)
    metrics.gauge("kafka.server", "socket-server-metrics", "connection-creation-total", lambda: stats.accepted)


def _id(node_id: int | None) -> int:
    return -1 if node_id is None else node_id
