"""Our consumers as group members in a simulated world, and the records that they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraft.client import KafkaError, RebalanceListener
from kraft.client.core.records import ConsumerRecord, TopicPartition
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from tests.stages.clients_in_world import Stage

FAST = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300, "auto_offset_reset": "earliest"}
NEXT_GENERATION = {"group_protocol": "consumer", "auto_offset_reset": "earliest"}
"""Settings of a member that uses the protocol of KIP-848."""
EVERY = {("orders", number) for number in range(6)}


class GroupConsumer(RebalanceListener):
    """A running group member that records what it has read, its partitions, and its rebalance callbacks."""

    def __init__(self, stage: Stage, name: str, topics: Any = ("orders",), **settings: Any) -> None:
        usual = NEXT_GENERATION if settings.get("group_protocol") == "consumer" else FAST
        self.consumer = stage.consumer(name, group_id="billing", client_id=name, **(usual | settings))
        self.read: list[ConsumerRecord] = []
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.held: frozenset[TopicPartition] = frozenset()
        self.failure: KafkaError | None = None
        self.pause_ms = 0.0
        self._clock = stage.world
        self._topics = topics
        self._scope = trio.CancelScope()
        self._over = trio.Event()

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("assigned", partitions))
        self.held |= partitions

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("revoked", partitions))
        self.held -= partitions

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("lost", partitions))
        self.held -= partitions

    async def work(self) -> None:
        try:
            with self._scope:
                async with self.consumer as consumer:
                    await consumer.subscribe(self._topics, listener=self)
                    while True:
                        self.read += await consumer.poll()
                        await self._clock.sleep_ms(self.pause_ms)
        except KafkaError as failure:
            self.failure = failure
        finally:
            self._over.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._over.wait()


async def fill(stage: Stage, count: int, topic: str = "orders") -> None:
    async with stage.producer() as producer:
        for number in range(count):
            await producer.enqueue(topic, b"%d" % number, b"%d" % number)


async def grow(stage: Stage, topic: str, count: int) -> None:
    row_class = messages.nested_class(messages.request_class(ApiKey.CREATE_PARTITIONS), "topics")
    row = messages.build(row_class, name=topic, count=count, assignments=None)
    client = await stage.client()
    answer = await client.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[row], timeout=5_000)
    assert answer.results[0].error_code == 0


async def at_work(stage: Stage, body: Callable[[trio.Nursery], Any]) -> None:
    async with trio.open_nursery() as nursery:
        await body(nursery)
        nursery.cancel_scope.cancel()
