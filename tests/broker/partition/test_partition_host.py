"""PartitionHost without a broker: the facts about brokers that it takes from an image."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.broker.partition.partition_host import PartitionHost
from kraft.image.partitions import PartitionState
from tests.stages.images import DIRECTORY, OTHER_DIRECTORY, image_of, orders, three_brokers


def test_the_partition_host_lists_active_brokers_and_out_of_sync_replicas_in_offline_directories() -> None:
    clock: Any = SimpleNamespace()
    host = PartitionHost(clock, 1, 30_000)
    image = image_of(*three_brokers(), *orders())
    host.take_brokers(image)
    assert host.eligible == {1: 11, 2: 12}
    assert host.racks == {1: "a", 2: None, 3: None}
    topic = image.topics.get("orders")
    assert topic is not None
    state: PartitionState = topic.partition(0)
    assert host.offline_replicas(state) == frozenset()
    moved: Any = SimpleNamespace(
        isr=(1, 2), replicas=state.replicas, directories=(DIRECTORY, OTHER_DIRECTORY, OTHER_DIRECTORY)
    )
    assert host.offline_replicas(moved) == {3}, "2 is in sync"
