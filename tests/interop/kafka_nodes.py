"""Apache Kafka for tests of our clients: one node, or nodes in racks whose consumers may read from the nearest
replica."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kraft.sim.chaos.apache.kafka_files import QUICK_NODE_JVM
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from tests.bench.kafka import KafkaCluster, free_port, layout_running

SETTINGS = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4")
CLOSEST_REPLICA = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"


@contextmanager
def kafka_running() -> Iterator[str]:
    """Run one node with both roles; yield its address."""
    with layout_running(KafkaLayout.plain(free_port(), is_single=True), SETTINGS, QUICK_NODE_JVM) as cluster:
        yield cluster.bootstrap


@contextmanager
def kafka_in_racks(racks: Sequence[str], settings: Iterable[str] = ()) -> Iterator[KafkaCluster]:
    """Run one node with both roles in each rack; racks are counted from 1. Leaders refer consumers to the replica in
    their rack."""
    layout = KafkaLayout.of_racks(free_port(), racks)
    with layout_running(layout, (*SETTINGS, CLOSEST_REPLICA, *settings), QUICK_NODE_JVM) as cluster:
        yield cluster
