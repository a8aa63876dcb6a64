"""Helpers of tests that move replicas between the log directories of their broker, in a simulated cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass

from kraft.broker.partition.log_directories import HostedDirectory
from kraft.broker.partition.partition import Partition
from kraft.broker.roles.replica_manager import ReplicaManager
from kraft.client import Consumer, Producer
from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kraft.image import PartitionState
from kraft.seam import current_seam
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.world import World
from tests.stages.admin_client import SETTINGS, UP_MS_MAX, Stage

PART = ("t", 0)
SOON_MS = 20_000


@dataclass(frozen=True, slots=True)
class Moving(Stage):
    """A cluster whose brokers have two log directories each, and a topic whose partition 0 moves between them."""

    topic: str = "t"

    @property
    def dirs(self) -> list[str]:
        return self.cluster.shape.log_dirs_of(1)

    def state(self) -> PartitionState:
        topic = self.cluster.image.topics.get(self.topic)
        assert topic is not None
        return topic.partition(0)

    def replicas(self, broker: int = 1) -> ReplicaManager:
        node = self.cluster.watch.nodes[broker].node.broker
        assert node is not None
        return node.broker.replicas

    def replica(self, broker: int = 1) -> Partition:
        found = self.replicas(broker).find(self.topic, 0)
        assert found is not None
        return found

    def directory(self, path: str, broker: int = 1) -> HostedDirectory:
        (found,) = [one for one in self.replicas(broker).directories.all if one.path == path]
        return found

    def offline(self, broker: int = 1) -> list[str]:
        return [one.path for one in self.replicas(broker).directories.all if not one.is_online]

    def path(self, broker: int = 1) -> str:
        directory = self.replica(broker).directory
        assert directory is not None
        return directory.path

    def other(self, broker: int = 1) -> str:
        """Return the log directory of a broker in which the replica is not."""
        (found,) = [path for path in self.cluster.shape.log_dirs_of(broker) if path != self.path(broker)]
        return found

    def assigned(self, broker: int = 1) -> bool:
        """Return whether the metadata name the directory in which the replica is."""
        directory = self.replica(broker).directory
        assert directory is not None
        return self.state().directory_of(broker) == directory.directory_id

    async def until(self, condition: Callable[[], bool], limit_ms: int = SOON_MS) -> None:
        assert await self.cluster.wait_until(condition, limit_ms, poll_ms=1), self.cluster.trouble()

    async def move(self, path: str, broker: int = 1) -> None:
        assert await self.admin.nodes.move_replicas(broker, {(self.topic, 0): path}) == {(self.topic, 0): None}

    async def moved(self, path: str, broker: int = 1) -> None:
        await self.until(lambda: self.path(broker) == path and self.assigned(broker))

    async def move_to_spare(self, broker: int = 1) -> tuple[str, str]:
        """Move the replica to the directory without the metadata log, so that the test can let this directory fail.
        Return this directory, and then the other directory."""
        metadata, spare = self.cluster.shape.log_dirs_of(broker)
        await self.move(spare, broker)
        await self.moved(spare, broker)
        return spare, metadata

    def as_node(self, function: Callable[..., object], *arguments: object) -> None:
        """Call the function in the context of a task of broker 1."""
        incarnation = self.cluster.world.host("node-1").incarnation
        assert incarnation is not None
        context = copy_context()
        context.run(current_seam.set, incarnation.seam)
        context.run(function, *arguments)

    def restart(self, *, lose_power: bool) -> None:
        self.cluster.crash(1, lose_power=lose_power, is_noticed=True)
        self.cluster.start(1)

    async def throttle(self, bytes_per_second: int, broker: int = 1) -> None:
        """Limit the rate of moves on this broker."""
        name = "replica.alter.log.dirs.io.max.bytes.per.second"
        change = ConfigChange(ConfigOperation.SET, name, str(bytes_per_second))
        await self.admin.configs.alter(ConfigResource(ResourceType.BROKER, str(broker)), [change])

    async def values(self) -> list[int]:
        """Return every record of the partition."""
        seam = self.cluster.world.node("consumer")
        settings = {"bootstrap_servers": self.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with Consumer(**settings, seam=seam) as consumer:
            await consumer.assign([(self.topic, 0)])
            found: list[int] = []
            while True:
                records = await consumer.poll(timeout_ms=1_000)
                if not records:
                    return found
                found += [int((record.value or b"")[:10]) for record in records]


def play(
    work: Callable[[Moving], Awaitable[None]],
    *,
    brokers: int = 1,
    seed: int = 3,
    topic: str = "t",
    **overrides: str,
) -> None:
    world = World(seed)
    report = Report(lambda: world.now_ns // 1_000_000)
    own = {key.replace("_", "."): value for key, value in overrides.items()}
    settings = {**SETTINGS, "default.replication.factor": "1", "offsets.topic.replication.factor": "1", **own}
    cluster = SimCluster(world, ClusterShape(1, brokers, settings, log_dirs=2), report)

    async def main(world: World) -> None:
        cluster.start_all()
        assert await cluster.wait_until(lambda: not cluster.trouble(), UP_MS_MAX), cluster.trouble()
        servers = cluster.shape.bootstrap_servers
        async with Admin(bootstrap_servers=servers, timeout_ms=30_000, seam=world.node("admin")) as admin:
            await work(Moving(cluster, admin, topic))

    with report.listening():
        world.run(main)
    assert not report.findings, report.findings[0]


async def write(stage: Moving, first: int, count: int, *, size: int = 10, pause_ms: float = 0) -> None:
    seam = stage.cluster.world.node(f"producer-{first}")
    async with Producer(bootstrap_servers=stage.bootstrap_servers, seam=seam) as producer:
        for number in range(first, first + count):
            await producer.send(stage.topic, b"%010d" % number + bytes(size - 10), partition=0)
            if pause_ms:
                await stage.cluster.world.sleep_ms(pause_ms)
