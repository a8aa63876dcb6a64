"""Our consumers as group members on real clusters, and the topics that they read."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client import Consumer, Producer, RebalanceListener
from kraft.client.core.records import ConsumerRecord, TopicPartition

SECONDS = 60
FAST = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300, "auto_offset_reset": "earliest"}
NEXT_GENERATION = {"group_protocol": "consumer", "auto_offset_reset": "earliest"}
"""Settings of a member that uses the protocol of KIP-848."""


def make_topic(bootstrap: str, partitions: int = 1) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
    return name


async def fill(bootstrap: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    async with Producer(bootstrap_servers=bootstrap, **settings) as producer:
        for value in values:
            await producer.enqueue(topic, value, value)
    return values


class Member(RebalanceListener):
    """A running consumer, with the records that it has read and the rebalance callbacks that were made."""

    def __init__(self, bootstrap: str, group: str, topics: Any, **settings: Any) -> None:
        usual = NEXT_GENERATION if settings.get("group_protocol") == "consumer" else FAST
        self.consumer = Consumer(bootstrap_servers=bootstrap, group_id=group, **(usual | settings))
        self.read: list[ConsumerRecord] = []
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.held: frozenset[TopicPartition] = frozenset()
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
        finally:
            self._over.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._over.wait()


@asynccontextmanager
async def at_work(*members: Member) -> AsyncIterator[trio.Nursery]:
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(member.work)
            yield nursery
            for member in members:
                await member.stop()
            nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is a foreign process's
        await trio.sleep(0.02)
