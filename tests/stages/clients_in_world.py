"""A simulated cluster with faults on demand, and clients of this project that use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from kraft.client import Consumer, Producer
from kraft.client.core.records import TopicPartition
from kraft.config import NodeConfig
from kraft.sim.world import World
from kraft.wire.reply_policy import ReplyPolicy, ReplyRule
from tests.stages.plane import Plane
from tests.stages.world_cluster import BROKER_PORT, WorldCluster

PLACE: TopicPartition = ("orders", 0)


class Stage(Plane):
    """A cluster, and short methods for tests. Faults can be injected into every broker."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.cluster.name(broker)}:{BROKER_PORT}" for broker in self.cluster.broker_ids)

    def producer(self, **settings: Any) -> Producer:
        return Producer(bootstrap_servers=self.bootstrap, seam=self.world.node("producer"), **settings)

    def consumer(self, name: str = "consumer", **settings: Any) -> Consumer:
        return Consumer(bootstrap_servers=self.bootstrap, seam=self.world.node(name), **settings)

    def isr(self, topic: str) -> list[int]:
        """Return the ISR of partition 0 in the newest image."""
        images = [self.cluster.node(one).publisher.image for one in self.cluster.broker_ids if self.is_up(one)]
        return sorted(max(images, key=lambda one: one.offset).topics.get(topic).partition(0).isr)

    def fault(self, **rule: Any) -> None:
        """Inject a fault into the responses of all brokers to requests of this kind from now on (see ReplyRule)."""
        for policy in self.cluster.replies.values():
            policy.add(ReplyRule(**rule))

    def fault_at(self, broker: int, **rule: Any) -> None:
        """Inject a fault like `fault`, but into the responses of one broker only."""
        self.cluster.replies[broker].add(ReplyRule(**rule))

    async def values(self, place: TopicPartition = PLACE) -> list[bytes | None]:
        """Return all values in a partition, in order."""
        async with self.consumer("reader") as consumer:
            end = (await consumer.offsets([place], at="latest"))[place]
            await consumer.assign([place], at="earliest")
            found: list[bytes | None] = []
            while consumer.position(place) < end:
                found += [record.value for record in await consumer.poll()]
        return found


Test = Callable[[Stage], Awaitable[Any]]


class _Cluster(WorldCluster):
    """A cluster with individual settings for each node."""

    per_node: Mapping[int, Mapping[str, str]] = {}

    def config(self, node_id: int) -> NodeConfig:
        shared = self.settings
        self.settings = {**shared, **self.per_node.get(node_id, {})}
        try:
            return super().config(node_id)
        finally:
            self.settings = shared


def run(test: Test, *, seed: int = 1, per_node: Mapping[int, Mapping[str, str]] | None = None, **layout: Any) -> None:
    """Start a cluster (default: one node of both roles), and run `test` on it."""

    async def main(world: World) -> None:
        cluster = _Cluster(world, **({"combined": 1} | layout))
        cluster.per_node = per_node or {}
        cluster.replies = {broker: ReplyPolicy() for broker in cluster.broker_ids}
        cluster.start()
        await cluster.wait_ready()
        await test(Stage(world, cluster))
        if cluster.failures:
            raise cluster.failures[0][1]

    World(seed).run(main)


def three(test: Test, *, seed: int = 1, **settings: Any) -> None:
    """Start a cluster of one controller and three brokers, and run `test` on it."""
    run(test, seed=seed, combined=0, controllers=1, brokers=3, **settings)


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when its task is about to take step k, so that the next checkpoint raises Cancelled."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self._left = step
        self._scope = scope
        self._task = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def cancelled_at(step: int, work: Callable[[], Awaitable[object]]) -> bool:
    """Run `work` and cancel it at its checkpoint after step k (0: at its first checkpoint). Return False if `work`
    ended before that."""
    with trio.CancelScope() as scope:
        if not step:
            scope.cancel()
        instrument = CancelAt(step, scope)
        trio.lowlevel.add_instrument(instrument)
        try:
            await work()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught
