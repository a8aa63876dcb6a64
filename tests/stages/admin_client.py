"""A running simulated cluster with an admin client, and helper methods for tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from kraft.client import Producer
from kraft.client.admin import Admin
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.world import World

UP_MS_MAX = 10_000
SETTINGS = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster with its admin client."""

    cluster: SimCluster
    admin: Admin

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.shape.bootstrap_servers

    async def produce(self, topic: str, values: Mapping[int, int], *, partition: int = 0) -> None:
        """Send one record for each entry of `values`, which is a pair of timestamp and number."""
        seam = self.cluster.world.node("producer")
        async with Producer(bootstrap_servers=self.bootstrap_servers, seam=seam) as producer:
            for time_ms, number in values.items():
                await producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=time_ms)


def play(
    work: Callable[[Stage], Awaitable[None]], *, controllers: int = 1, brokers: int = 2, timeout_ms: float = 30_000
) -> None:
    """Start a cluster, and run `work` on it."""
    world = World(7)
    report = Report(lambda: world.now_ns // 1_000_000)
    cluster = SimCluster(world, ClusterShape(controllers, brokers, SETTINGS), report)

    async def main(world: World) -> None:
        cluster.start_all()
        assert await cluster.wait_until(lambda: not cluster.trouble(), UP_MS_MAX), cluster.trouble()
        servers = cluster.shape.bootstrap_servers
        async with Admin(bootstrap_servers=servers, timeout_ms=timeout_ms, seam=world.node("admin")) as admin:
            await work(Stage(cluster, admin))

    with report.listening():
        world.run(main)
