"""Apache Kafka to try our clients on: one node, or nodes in racks of which consumers may read the nearest replica."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tests.bench.kafka import QUICK_JVM, KafkaCluster, Shape, free_port, shape_running

SETTINGS = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4")
QUICK_NODE_JVM = (*QUICK_JVM, "-Xmx512M")
CLOSEST_REPLICA = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"


@contextmanager
def kafka_running() -> Iterator[str]:
    """One node of both roles; gives where it listens."""
    with shape_running(Shape.of(free_port(), is_single=True), SETTINGS, QUICK_NODE_JVM) as cluster:
        yield cluster.bootstrap


@contextmanager
def kafka_in_racks(racks: Sequence[str], settings: Iterable[str] = ()) -> Iterator[KafkaCluster]:
    """A node of both roles in each rack, counted from 1; leaders send consumers to the replica in their rack."""
    shape = Shape.of_racks(free_port(), racks)
    with shape_running(shape, (*SETTINGS, CLOSEST_REPLICA, *settings), QUICK_NODE_JVM) as cluster:
        yield cluster
