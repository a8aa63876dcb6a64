"""Our producer and consumer with Apache Kafka, together with librdkafka and kafka-python: records, groups,
transactions.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client import CommittedOffset, Consumer, Producer, RebalanceListener
from kraft.client.core.records import TopicPartition
from tests.interop.kafka_nodes import kafka_running
from tests.interop.own_members import FAST, SECONDS, Member, at_work, fill, make_topic, until

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # foreign libraries emit warnings

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with kafka_running() as address:
        yield address


# records


@pytest.mark.parametrize("codec", CODECS)
async def test_records_of_each_codec_are_read_back_by_us_and_by_librdkafka(bootstrap: str, codec: str) -> None:
    topic = make_topic(bootstrap)
    expected = await fill(bootstrap, topic, 500, compression_type=codec)
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        await consumer.assign([(topic, 0)], at="earliest")
        ours: list[bytes | None] = []
        with trio.fail_after(SECONDS):
            while len(ours) < 500:
                ours += [record.value for record in await consumer.poll()]
    theirs = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    theirs.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < 500:
        found += [message.value() for message in theirs.consume(500, 5)]
    theirs.close()
    assert ours == found == expected


async def test_our_producer_sends_keys_to_the_same_partitions_as_kafka_python(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 7)
    keys = [f"key-{number}".encode() for number in range(40)]
    async with Producer(bootstrap_servers=bootstrap) as producer:
        ours = [(await producer.send(topic, b"v", key)).partition for key in keys]
    theirs = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    assert ours == [theirs.send(topic, b"v", key).get(20).partition for key in keys]
    theirs.close()


async def test_our_client_finds_offsets_by_time_on_kafka(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    first_ms = int(time.time()) * 1000 - 3_600_000  # recent enough to be kept by retention
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"v", timestamp_ms=first_ms + number * 1_000)
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        place = (topic, 0)
        assert await consumer.offsets([place], at=first_ms + 3_500) == {place: 4}
        assert await consumer.offsets([place], at="earliest") == {place: 0}
        assert await consumer.offsets([place], at="latest") == {place: 10}


async def test_read_committed_returns_only_committed_records(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    writer.init_transactions(20)
    for number in range(6):
        writer.begin_transaction()
        writer.produce(topic, f"{number}")
        writer.flush(20)
        if number % 2:
            writer.abort_transaction(20)
        else:
            writer.commit_transaction(20)
    async with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        await consumer.assign([(topic, 0)], at="earliest")
        found: list[bytes | None] = []
        with trio.fail_after(SECONDS):
            while consumer.position((topic, 0)) < 12:
                found += [record.value for record in await consumer.poll(timeout_ms=500)]
    assert found == [b"0", b"2", b"4"]


# groups


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_every_partition_has_one_owner_while_members_join_and_leave(bootstrap: str, strategy: str) -> None:
    topic = make_topic(bootstrap, 6)
    group = f"group-{topic}"
    every = {(topic, number) for number in range(6)}
    first, second = (
        Member(bootstrap, group, [topic], partition_assignment_strategy=strategy, client_id=name) for name in "ab"
    )
    values = await fill(bootstrap, topic, 300)
    async with at_work(first) as nursery:
        await until(lambda: len(first.read) == 300)
        assert first.held == every
        nursery.start_soon(second.work)
        await until(lambda: len(first.held) == 3 and len(second.held) == 3)
        assert first.held | second.held == every
        await fill(bootstrap, topic, 300)
        await until(lambda: len(first.read) + len(second.read) >= 600)
        await second.stop()
        await until(lambda: first.held == every)
        await fill(bootstrap, topic, 300)
        await until(lambda: len(first.read) + len(second.read) >= 900)
    read = [(record.partition, record.offset) for member in (first, second) for record in member.read]
    assert (len(read), len(set(read))) == (900, 900), first.events + second.events
    assert sorted(record.value or b"" for record in first.read[:300]) == sorted(values)
    if strategy == "cooperative-sticky":
        assert [len(partitions) for kind, partitions in first.events if kind == "revoked"][:1] == [3]


async def test_a_group_on_kafka_continues_at_its_committed_offsets(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    await fill(bootstrap, topic, 100)
    place = (topic, 0)
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": f"group-{topic}", **FAST}
    with trio.fail_after(SECONDS):
        async with Consumer(**settings, enable_auto_commit=False) as consumer:
            await consumer.subscribe([topic])
            await consumer.poll(records_max=10)
            await consumer.commit()
            await consumer.poll(records_max=10)
            consumer.commit_nowait({place: CommittedOffset(15, 0, "note")})
            await consumer.commit({place: 17})
        async with Consumer(**settings) as consumer:
            await consumer.subscribe([topic])
            assert (await consumer.poll(records_max=5))[0].offset == 17
        async with Consumer(**settings) as consumer:
            await consumer.assign([place])
            assert (await consumer.poll(records_max=5))[0].offset == 22
            assert await consumer.committed([place]) == {place: CommittedOffset(22, 0, "")}


async def test_exception_while_a_record_is_processed_leaves_it_and_later_records_uncommitted(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    await fill(bootstrap, topic, 20)
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": f"group-{topic}", **FAST}
    with trio.fail_after(SECONDS):
        with pytest.raises(LookupError):
            async with Consumer(**settings) as consumer:
                await consumer.subscribe([topic])
                async for record in consumer:
                    if record.offset == 12:
                        raise LookupError
        async with Consumer(**settings) as consumer:
            await consumer.subscribe([topic])
            assert (await anext(consumer)).offset == 12


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
async def test_our_group_members_share_a_group_with_librdkafka_members(bootstrap: str, strategy: str) -> None:
    topic = make_topic(bootstrap, 4)
    group = f"group-{topic}"
    ours = Member(bootstrap, group, [topic], partition_assignment_strategy=strategy)
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 300,
        }
    )
    found: list[Any] = []
    held: list[Any] = []
    stopped = threading.Event()

    def read() -> None:
        while not stopped.is_set():
            found.extend(message for message in theirs.consume(100, 0.1) if message.error() is None)
            held[:] = theirs.assignment()
        theirs.close()

    theirs.subscribe([topic])
    async with at_work(ours) as nursery:
        nursery.start_soon(trio.to_thread.run_sync, read)
        await until(lambda: len(ours.held) == 2 and len(held) == 2)
        await fill(bootstrap, topic, 200)
        await until(lambda: len(found) + len(ours.read) >= 200)
        stopped.set()
        await until(lambda: len(ours.held) == 4)
    read_by_all = [(m.partition(), m.offset()) for m in found] + [(r.partition, r.offset) for r in ours.read]
    assert len(read_by_all) == len(set(read_by_all)) == 200
    assert found
    assert ours.read


async def test_a_static_member_that_returns_in_time_gets_its_partitions_without_a_rebalance(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    group = f"group-{topic}"
    stays = Member(bootstrap, group, [topic], group_instance_id="a")
    leaves, returns = (Member(bootstrap, group, [topic], group_instance_id="b") for _ in range(2))
    async with at_work(stays) as nursery:
        nursery.start_soon(leaves.work)
        await until(lambda: len(stays.held) == 2 and len(leaves.held) == 2)
        seen, had = len(stays.events), leaves.held
        await leaves.stop()
        nursery.start_soon(returns.work)
        await until(lambda: len(returns.held) == 2)
        await trio.sleep(1)
        assert (returns.held, len(stays.events)) == (had, seen)


async def test_a_pattern_subscription_on_kafka_includes_topics_created_later(bootstrap: str) -> None:
    prefix = f"pattern-{uuid.uuid4().hex[:6]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{prefix}-a", 2, 1)])[f"{prefix}-a"].result(20)
    member = Member(bootstrap, prefix, f"^{prefix}-.*", metadata_max_age_ms=200)
    async with at_work(member):
        await until(lambda: len(member.held) == 2)
        admin.create_topics([NewTopic(f"{prefix}-b", 3, 1)])[f"{prefix}-b"].result(20)
        await until(lambda: len(member.held) == 5)


async def test_an_application_that_exceeds_max_poll_interval_loses_its_partitions(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 2)
    group = f"group-{topic}"
    other = Member(bootstrap, group, [topic], max_poll_interval_ms=1_500)
    lost: list[frozenset[TopicPartition]] = []

    class Listener(RebalanceListener):
        async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
            lost.append(partitions)

    with trio.fail_after(SECONDS):
        async with Consumer(
            bootstrap_servers=bootstrap, group_id=group, max_poll_interval_ms=1_500, **FAST
        ) as consumer:
            await consumer.subscribe([topic], listener=Listener())
            while not consumer.assignment:
                await consumer.poll(timeout_ms=100)
            async with at_work(other):
                await until(lambda: len(other.held) == 2)
                while not lost:
                    await consumer.poll(timeout_ms=100)
                assert len(lost[0]) == 2
