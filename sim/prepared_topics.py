"""Async: create the topics and records that a test needs, and read the records afterwards.

`kraft.testing` has methods of the same names that block, for a cluster of processes. Injected faults of requests do not
affect these methods (ONLOOKER_CLIENT_ID), but a network partition or a node that is down does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import trio

from kraft.client import Consumer, Producer
from kraft.client.admin import Admin, NewTopic
from kraft.client.core.records import ConsumerRecord, DeliveryReport
from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.shapes import ClusterError, Setting, texts_of
from kraft.wire.reply_policy import ONLOOKER_CLIENT_ID

PREPARE_SECONDS_MAX = 30.0


class AwaitedTopics(BreakableCluster):
    """The awaitable methods, for use within `run` of a simulated cluster."""

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """Create a topic; -1 replicas means the cluster's default. KafkaError if it cannot be created."""
        await create_topic(self.bootstrap_servers, name, partitions, replication_factor, settings or {})

    async def produce(
        self, topic: str, values: Iterable[bytes | str], *, key: bytes | None = None, partition: int | None = None
    ) -> list[DeliveryReport]:
        """Write records one by one with acks=all; return the partition and offset of each."""
        return await produce(self.bootstrap_servers, topic, values, key, partition)

    async def records(self, topic: str, *, partition: int | None = None) -> list[ConsumerRecord]:
        """Return all committed records, by partition and offset. ClusterError if they cannot be read."""
        return await read_records(self.bootstrap_servers, topic, partition)


async def create_topic(
    servers: str, name: str, partitions: int, replication_factor: int, settings: Mapping[str, Setting]
) -> None:
    async with Admin(bootstrap_servers=servers, client_id=ONLOOKER_CLIENT_ID) as admin:
        await admin.topics.create(NewTopic(name, partitions, replication_factor, texts_of(settings)))


async def produce(
    servers: str, topic: str, values: Iterable[bytes | str], key: bytes | None, partition: int | None
) -> list[DeliveryReport]:
    if isinstance(values, bytes | str):
        raise ClusterError(f"values are a list of bytes or texts: [{values!r}], and not {values!r}")
    async with Producer(bootstrap_servers=servers, client_id=ONLOOKER_CLIENT_ID) as producer:
        return [
            await producer.send(topic, value.encode() if isinstance(value, str) else value, key, partition=partition)
            for value in values
        ]


async def read_records(servers: str, topic: str, partition: int | None) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    with trio.move_on_after(PREPARE_SECONDS_MAX) as waiting:
        async with Admin(bootstrap_servers=servers, client_id=ONLOOKER_CLIENT_ID) as admin:
            (described,) = await admin.topics.describe([topic])
        places = [(topic, one.index) for one in described.partitions if partition in (None, one.index)]
        if not places:
            raise ClusterError(f"{topic} has {len(described.partitions)} partitions, and no partition {partition}")
        async with Consumer(bootstrap_servers=servers, client_id=ONLOOKER_CLIENT_ID) as consumer:
            ends = await consumer.offsets(places)
            await consumer.assign(places, at="earliest")
            while any(consumer.position(place) < end for place, end in ends.items()):
                found += await consumer.poll()
    if waiting.cancelled_caught:
        raise ClusterError(f"the records of {topic} could not be read within {PREPARE_SECONDS_MAX:g} s; leaders?")
    return sorted(found, key=lambda record: (record.partition, record.offset))
