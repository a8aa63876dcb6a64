"""Runs the same trio code against a simulated cluster and against a cluster of real processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import trio

from kraft.client import Consumer, Producer
from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.nemesis.plan import Fault
from kraft.sim.simulated_cluster import SimulatedCluster
from kraft.testing import KafkaCluster

SHAPE: dict[str, Any] = {
    "controllers": 1,
    "brokers": 3,
    "settings": {
        "replica.lag.time.max.ms": "500",
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
        "num.partitions": "2",
    },
}
"""Shape of the test clusters, with short timeouts, so that a silent broker is noticed soon."""
LOOK_AGAIN_SECONDS = 0.02

Story = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A simulated or a real cluster, and clients for it."""

    def __init__(self, cluster: BreakableCluster) -> None:
        self.cluster = cluster

    def play(self, story: Story) -> None:
        if isinstance(self.cluster, SimulatedCluster):
            self.cluster.run(story, self)
        else:
            trio.run(story, self)

    def producer(self, **settings: Any) -> Producer:
        return Producer(bootstrap_servers=self.cluster.bootstrap_servers, **settings)

    async def write(self, count: int, topic: str = "orders") -> int:
        """Produce this many records to partition 0; return its leader."""
        async with self.producer() as producer:
            for number in range(count):
                await producer.send(topic, b"%d" % number, partition=0)
        leader = self.cluster.leader(topic)
        assert leader is not None
        return leader

    async def values(self, topic: str = "orders") -> list[bytes | None]:
        """Return all values in partition 0."""
        place = (topic, 0)
        async with Consumer(bootstrap_servers=self.cluster.bootstrap_servers) as consumer:
            end = (await consumer.offsets([place]))[place]
            await consumer.assign([place], at="earliest")
            found: list[bytes | None] = []
            while consumer.position(place) < end:
                found += [record.value for record in await consumer.poll()]
        return found

    async def carry_out(self, faults: Iterable[Fault]) -> list[str]:
        if isinstance(self.cluster, SimulatedCluster):
            return await self.cluster.carry_out(faults)
        assert isinstance(self.cluster, KafkaCluster)
        return await trio.to_thread.run_sync(self.cluster.carry_out, faults)

    async def wait_until(self, condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 - processes tell nobody
            await trio.sleep(LOOK_AGAIN_SECONDS)

    def follower(self, topic: str = "orders") -> int:
        """Return a broker that does not lead partition 0."""
        leader = self.cluster.leader(topic)
        return next(broker for broker in self.cluster.broker_ids if broker != leader)
