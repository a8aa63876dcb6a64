"""Our consumer reads from Apache Kafka's followers (KIP-392). There is a node in each rack, and leaders refer the
consumer to the node in its rack.

How this is shown: every node except the one in the consumer's rack is frozen, and all records can still be read.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client import Consumer, Producer
from kraft.client.admin import Admin, ElectionType
from kraft.client.core.records import ConsumerRecord, TopicPartition
from tests.bench.kafka import KafkaCluster
from tests.interop.kafka_nodes import kafka_in_racks

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # foreign libraries emit warnings

RACKS = {1: "rack-1", 2: "rack-2", 3: "rack-3"}
LEADER, NEAR = 1, 3
COUNT = 100
SECONDS = 60
LONG_FAILURE_DETECTION = "broker.session.timeout.ms=20000"
"""Kafka setting for the time in which a dead node is still listed as alive. It is long, so consumers must detect the
failure themselves."""
SHORT_REPLICA_LAG = "replica.lag.time.max.ms=2000"
"""Kafka setting for the time in which a dead follower stays in the ISR, so that leaders keep referring consumers to
it."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka_in_racks(list(RACKS.values()), [LONG_FAILURE_DETECTION, SHORT_REPLICA_LAG]) as started:
        yield started


@pytest.fixture
def place(cluster: KafkaCluster) -> TopicPartition:
    """A new partition that is led by LEADER and whose replicas are all in sync."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[LEADER, 2, 3]])])[topic].result(20)
    cluster.wait_in_sync(topic, len(RACKS))
    return topic, 0


async def fill(cluster: KafkaCluster, place: TopicPartition, first: int = 0) -> None:
    """Write COUNT records, each in its own batch; the value of a record is its offset."""
    async with Producer(bootstrap_servers=cluster.bootstrap, batch_size=1) as producer:
        for number in range(first, first + COUNT):
            await producer.enqueue(place[0], b"%d" % number, partition=place[1])


def consumer_near(cluster: KafkaCluster, node: int, **settings: str) -> Consumer:
    return Consumer(bootstrap_servers=cluster.bootstrap, client_rack=RACKS[node], **settings)


async def read(consumer: Consumer, place: TopicPartition, end: int) -> list[ConsumerRecord]:
    """Read the records from the consumer's position up to `end`."""
    found: list[ConsumerRecord] = []
    with trio.fail_after(SECONDS):
        while not found or consumer.position(place) < end:
            found += await consumer.poll(timeout_ms=500)
    return found


@contextmanager
def frozen(cluster: KafkaCluster, nodes: Iterable[int]) -> Iterator[None]:
    pids = [int((cluster.folder / str(node) / "pid").read_text()) for node in nodes]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def read_from(
    cluster: KafkaCluster, near: int, consumer: Consumer, place: TopicPartition, end: int
) -> list[ConsumerRecord]:
    """Read all records from this node, a follower. The other nodes do not respond, and no new leader can be elected.
    The records were read once before, so the follower has learned that they are committed."""
    assert cluster.leader(*place) not in (-1, near)
    with frozen(cluster, RACKS.keys() - {near}):
        consumer.seek(place, 0)
        return await read(consumer, place, end)


def require_all(records: list[ConsumerRecord], first: int, end: int) -> None:
    """Check that each record occurs once, in order, at the offset that is its value."""
    assert [record.offset for record in records] == list(range(first, end))
    assert [record.value for record in records] == [b"%d" % number for number in range(first, end)]


@pytest.mark.parametrize("near", [2, 3])
async def test_records_are_read_from_the_replica_in_the_consumers_rack(
    cluster: KafkaCluster, place: TopicPartition, near: int
) -> None:
    await fill(cluster, place)
    async with consumer_near(cluster, near) as consumer:
        await consumer.assign([place], at="earliest")
        require_all(await read(consumer, place, COUNT), 0, COUNT)
        require_all(await read_from(cluster, near, consumer, place, COUNT), 0, COUNT)
        assert consumer.lag(place) == 0
        await fill(cluster, place, first=COUNT)
        require_all(await read(consumer, place, 2 * COUNT), COUNT, 2 * COUNT)
        assert await consumer.offsets([place], at="latest") == {place: consumer.position(place)}


async def test_a_kafka_follower_reports_aborted_transactions(cluster: KafkaCluster, place: TopicPartition) -> None:
    writer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": place[0]})
    await trio.to_thread.run_sync(writer.init_transactions, 30)
    for number in range(6):
        writer.begin_transaction()
        writer.produce(place[0], f"{number}")
        writer.flush(20)
        if number % 2:
            writer.abort_transaction(20)
        else:
            writer.commit_transaction(20)
    end = 12  # each transaction has a record and a marker
    async with consumer_near(cluster, NEAR, isolation_level="read_committed") as consumer:
        await consumer.assign([place], at="earliest")
        first = await read(consumer, place, end)
        again = await read_from(cluster, NEAR, consumer, place, end)
    for found in (first, again):
        assert [(record.offset, record.value) for record in found] == [(0, b"0"), (4, b"2"), (8, b"4")]


async def test_offsets_that_a_kafka_follower_has_deleted_are_skipped(
    cluster: KafkaCluster, place: TopicPartition
) -> None:
    await fill(cluster, place)
    async with (
        consumer_near(cluster, NEAR, auto_offset_reset="earliest") as consumer,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        await consumer.assign([place], at="earliest")
        await read(consumer, place, COUNT)
        await read_from(cluster, NEAR, consumer, place, COUNT)
        await admin.partitions.delete_records({place: 40})
        consumer.seek(place, 0)
        require_all(await read(consumer, place, COUNT), 40, COUNT)


async def test_reading_from_a_follower_continues_after_a_leader_change(
    cluster: KafkaCluster, place: TopicPartition
) -> None:
    await fill(cluster, place)
    async with consumer_near(cluster, NEAR) as consumer, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await consumer.assign([place], at="earliest")
        require_all(await read(consumer, place, COUNT), 0, COUNT)
        assert await admin.partitions.reassign({place: [2, 1, 3]}) == {place: None}
        assert await admin.partitions.elect_leaders(ElectionType.PREFERRED, [place]) == {place: None}
        await fill(cluster, place, first=COUNT)
        require_all(await read(consumer, place, 2 * COUNT), COUNT, 2 * COUNT)
        require_all(await read_from(cluster, NEAR, consumer, place, 2 * COUNT), 0, 2 * COUNT)


async def test_the_consumer_reads_from_the_leader_when_the_follower_is_killed(
    cluster: KafkaCluster, place: TopicPartition
) -> None:
    await fill(cluster, place)
    async with consumer_near(cluster, NEAR) as consumer:
        await consumer.assign([place], at="earliest")
        require_all(await read(consumer, place, COUNT), 0, COUNT)
        await read_from(cluster, NEAR, consumer, place, COUNT)
        with cluster.killed(NEAR):
            await fill(cluster, place, first=COUNT)
            require_all(await read(consumer, place, 2 * COUNT), COUNT, 2 * COUNT)
            told = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=5)
            assert NEAR in told.brokers, "the consumer may have waited until the cluster dropped the node"
