"""Share consumers of ours in a simulated world, and the records that they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import trio

from kraft.client import KafkaError, ShareConsumer, ShareRecord
from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType
from tests.stages.clients_in_world import Stage, Test, run, three

GROUP = "jobs"
LOCK_MS = 2_000
SHARED = {
    "offsets_topic_num_partitions": "2",
    "share_coordinator_state_topic_num_partitions": "2",
    "group_share_heartbeat_interval_ms": "300",
    "group_share_min_heartbeat_interval_ms": "300",
    "group_share_session_timeout_ms": "6000",
    "group_share_min_session_timeout_ms": "6000",
    "group_share_record_lock_duration_ms": str(LOCK_MS),
    "group_share_min_record_lock_duration_ms": "1000",
}
ONE_REPLICA = {
    "offsets_topic_replication_factor": "1",
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
}
Places = list[tuple[int, int]]


def alone(test: Test, *, seed: int = 1, **settings: Any) -> None:
    """Run a test on one node."""
    run(test, seed=seed, **(SHARED | ONE_REPLICA | settings))


def on_three(test: Test, *, seed: int = 1, **settings: Any) -> None:
    """Run a test on three brokers."""
    three(test, seed=seed, offsets_topic_replication_factor="3", **(SHARED | settings))


def share_consumer(stage: Stage, name: str = "reader", **settings: Any) -> ShareConsumer:
    usual = {"group_id": GROUP, "client_id": name}
    return ShareConsumer(bootstrap_servers=stage.bootstrap, seam=stage.world.node(name), **(usual | settings))


async def begin(stage: Stage, topic: str = "orders", partitions: int = 1, **group: str) -> None:
    """Create a topic, and let the group begin at its start. `group` has more settings of the group."""
    await stage.create_topic(topic, partitions)
    changes = {
        "share.auto.offset.reset": "earliest",
        **{name.replace("_", "."): value for name, value in group.items()},
    }
    async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
        resource = ConfigResource(ResourceType.GROUP, GROUP)
        await admin.configs.alter(
            resource, [ConfigChange(ConfigOperation.SET, name, value) for name, value in changes.items()]
        )


async def fill(stage: Stage, values: Iterable[int], topic: str = "orders", **settings: Any) -> None:
    async with stage.producer(**settings) as producer:
        for number in values:
            await producer.enqueue(topic, b"%d" % number, b"%d" % number)


def numbers(records: Iterable[ShareRecord]) -> list[int]:
    """Return the values of records as `fill` has written them."""
    return [int(record.value or b"-1") for record in records]


class Worker:
    """A running share consumer that polls, records what it has read, and accepts it."""

    def __init__(self, stage: Stage, name: str, topics: Any = ("orders",), **settings: Any) -> None:
        self.consumer = share_consumer(stage, name, **settings)
        self.read: list[ShareRecord] = []
        self.failures: list[KafkaError] = []
        self._topics = topics
        self._scope = trio.CancelScope()
        self._over = trio.Event()

    async def work(self) -> None:
        try:
            with self._scope:
                async with self.consumer as consumer:
                    await consumer.subscribe(self._topics)
                    while True:
                        self.read += await consumer.poll(records_max=20)
                        results = await consumer.commit()
                        self.failures += [error for error in results.values() if error is not None]
        finally:
            self._over.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._over.wait()


async def at_work(body: Callable[[trio.Nursery], Any], *workers: Worker) -> None:
    async with trio.open_nursery() as nursery:
        for worker in workers:
            nursery.start_soon(worker.work)
        await body(nursery)
        nursery.cancel_scope.cancel()


def read_numbers(*workers: Worker) -> Counter[int]:
    return Counter(number for worker in workers for number in numbers(worker.read))
