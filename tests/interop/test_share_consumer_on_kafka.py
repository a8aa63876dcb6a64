"""Our share consumer on Apache Kafka (KIP-932): members that join and leave, acknowledgements of each kind, locks that
expire and are renewed, and the loss of a broker. Also in one group with Kafka's own share consumer, on Kafka's
brokers and on ours.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client import Acknowledgement, KafkaError, Producer, ShareConsumer, ShareRecord
from kraft.sim.chaos.apache.kafka_files import QUICK_NODE_JVM
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from kraft.wire.error_codes import ErrorCode
from tests.bench.kafka import free_port, layout_running
from tests.bench.share_groups.share_consumers import begin_at_start
from tests.interop.own_members import SECONDS, fill, make_topic, until
from tests.interop.test_kafkas_tools import SCRIPT
from tests.stages.started_clusters import running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

ACCEPT, RELEASE, REJECT, RENEW = Acknowledgement
LOCK_MS = 2_000
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
SETTINGS = (
    "offsets.topic.num.partitions=4",
    "share.coordinator.state.topic.num.partitions=4",
    "group.share.heartbeat.interval.ms=300",
    "group.share.min.heartbeat.interval.ms=300",
    "group.share.session.timeout.ms=6000",
    "group.share.min.session.timeout.ms=3000",
    f"group.share.record.lock.duration.ms={LOCK_MS}",
    "group.share.min.record.lock.duration.ms=1000",
)
EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    layout = KafkaLayout.plain(free_port(), is_single=True)
    with layout_running(layout, SETTINGS, QUICK_NODE_JVM) as cluster:
        yield cluster.bootstrap


async def new_topic(bootstrap: str, partitions: int = 1) -> str:
    """Create a topic, and a group of the same name."""
    topic = make_topic(bootstrap, partitions)
    await begin_at_start(bootstrap, topic)
    return topic


def share_consumer(bootstrap: str, group: str, **settings: Any) -> ShareConsumer:
    return ShareConsumer(bootstrap_servers=bootstrap, group_id=group, **settings)


async def read(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Poll until this many records have been returned at once or in parts."""
    found: list[ShareRecord] = []
    with trio.fail_after(SECONDS):
        while len(found) < count:
            found += await consumer.poll()
    return found


async def left(bootstrap: str, topic: str, timeout_ms: int = 2_000) -> list[int]:
    """Return the offsets that a new member gets within this time."""
    async with share_consumer(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        found: list[int] = []
        while records := await consumer.poll(timeout_ms=timeout_ms):
            found += [record.offset for record in records]
        return found


class Worker:
    """A running member that accepts what it reads, one record after another."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self.consumer = share_consumer(bootstrap, topic, **settings)
        self.read: list[ShareRecord] = []
        self._topic = topic

    async def work(self) -> None:
        async with self.consumer as consumer:
            await consumer.subscribe([self._topic])
            while True:
                self.read += await consumer.poll()


def values(*workers: Worker) -> Counter[bytes]:
    return Counter(record.value or b"" for worker in workers for record in worker.read)


async def test_three_members_of_one_partition_get_each_record_once(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    workers = [Worker(bootstrap, topic, max_poll_records=10) for _ in range(3)]
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.work)
            await until(lambda: all(worker.consumer.assignment for worker in workers))
            for _ in range(20):
                await fill(bootstrap, topic, 20)
            await until(lambda: sum(values(*workers).values()) >= 400)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
    assert all(worker.read for worker in workers)
    places = [record.offset for worker in workers for record in worker.read]
    assert sorted(places) == list(range(400))


async def test_records_of_several_partitions_are_read_once(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, 4)
    await fill(bootstrap, topic, 1_000)
    async with share_consumer(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        found = await read(consumer, 1_000)
        assert len({(record.partition, record.offset) for record in found}) == len(found) == 1_000
        results = await consumer.commit()
        assert set(results.values()) <= {None}
        assert consumer.acquisition_lock_ms == LOCK_MS
    assert await left(bootstrap, topic, LOCK_MS + 1_000) == []


async def test_iteration_accepts_a_record_when_the_next_is_asked_for(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    await fill(bootstrap, topic, 50)
    async with share_consumer(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        with trio.fail_after(SECONDS):
            async for record in consumer:
                if record.offset == 29:
                    break
    assert await left(bootstrap, topic) == list(range(29, 50))


async def test_each_explicit_acknowledgement_has_its_effect(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    await fill(bootstrap, topic, 6, linger_ms=50)
    async with share_consumer(bootstrap, topic, **EXPLICIT) as consumer:
        await consumer.subscribe([topic])
        for record in await read(consumer, 6):
            consumer.acknowledge(record, (ACCEPT, RELEASE, REJECT)[record.offset % 3])
        assert await consumer.commit() == {(topic, 0): None}
        again = await read(consumer, 2)
        assert [(record.offset, record.delivery_count) for record in again] == [(1, 2), (4, 2)]
        for record in again:
            consumer.acknowledge(record)
    assert await left(bootstrap, topic) == []


async def test_a_record_that_is_always_released_is_archived_at_its_last_delivery(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    await fill(bootstrap, topic, 1)
    counts: list[int] = []
    async with share_consumer(bootstrap, topic, **EXPLICIT) as consumer:
        await consumer.subscribe([topic])
        with trio.fail_after(SECONDS):
            while records := await consumer.poll(timeout_ms=5_000):
                counts += [record.delivery_count for record in records]
                consumer.acknowledge(records[0], RELEASE)
    assert counts == [1, 2, 3, 4, 5]


async def test_an_acknowledgement_after_the_lock_has_run_out_fails(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    await fill(bootstrap, topic, 2, linger_ms=50)
    async with share_consumer(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        await read(consumer, 2)
        await trio.sleep(LOCK_MS / 1000 + 1)
        error = (await consumer.commit())[(topic, 0)]
        assert error is not None
        assert error.code is ErrorCode.INVALID_RECORD_STATE
        assert {record.delivery_count for record in await read(consumer, 2)} == {2}


async def test_a_renewed_record_is_returned_again_and_stays_locked(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    await fill(bootstrap, topic, 2, linger_ms=50)
    async with share_consumer(bootstrap, topic, **EXPLICIT) as consumer:
        await consumer.subscribe([topic])
        first, second = await read(consumer, 2)
        consumer.acknowledge(second)
        for _ in range(3):
            await trio.sleep(LOCK_MS * 0.7 / 1000)
            consumer.acknowledge(first, RENEW)
            assert await consumer.poll() == [first]
        consumer.acknowledge(first)
        assert await consumer.commit() == {(topic, 0): None}
    assert await left(bootstrap, topic, LOCK_MS + 1_000) == []


async def test_record_limit_acquires_no_more_records_than_asked_for(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    settings = {"share_acquire_mode": "record_limit", "max_poll_records": 3}
    async with share_consumer(bootstrap, topic, **settings) as consumer, share_consumer(bootstrap, topic) as other:
        await consumer.subscribe([topic])
        await other.subscribe([topic])
        await until(lambda: bool(consumer.assignment and other.assignment))
        await fill(bootstrap, topic, 10, linger_ms=50)
        assert [record.offset for record in await read(consumer, 3)] == [0, 1, 2]
        assert [record.offset for record in await read(other, 7)] == list(range(3, 10))


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_records_of_a_member_that_leaves_are_free_at_once(bootstrap: str, is_cancelled: bool) -> None:
    topic = await new_topic(bootstrap)
    await fill(bootstrap, topic, 20)
    with trio.CancelScope() as scope:
        async with share_consumer(bootstrap, topic) as consumer:
            await consumer.subscribe([topic])
            first = await consumer.poll(records_max=5)
            await consumer.poll(records_max=5)
            if is_cancelled:
                scope.cancel()
                await trio.sleep_forever()
    assert len(first) == 5
    with trio.fail_after(LOCK_MS / 1000):
        async with share_consumer(bootstrap, topic) as consumer:
            await consumer.subscribe([topic])
            found = await consumer.poll()
    assert [record.offset for record in found] == list(range(5, 20))


async def test_markers_of_transactions_are_acknowledged_as_gaps(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    async with Producer(bootstrap_servers=bootstrap, transactional_id=f"writer-{topic}") as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send(topic, b"%d" % number)
    async with share_consumer(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        assert [record.offset for record in await read(consumer, 3)] == [0, 2, 4]
        assert await consumer.commit() == {(topic, 0): None}
        await fill(bootstrap, topic, 1)
        assert [record.offset for record in await read(consumer, 1)] == [6]


async def test_the_result_of_every_acknowledgement_is_reported_without_markers(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    async with Producer(bootstrap_servers=bootstrap, transactional_id=f"writer-{topic}") as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send(topic, b"%d" % number)
    accepted: list[int] = []
    failed: list[tuple[int, ErrorCode]] = []

    def on_acknowledged(partition: tuple[str, int], offsets: frozenset[int], error: KafkaError | None) -> None:
        assert partition == (topic, 0)
        if error is None:
            accepted.extend(sorted(offsets))
        else:
            failed.extend((offset, error.code) for offset in sorted(offsets))

    async with share_consumer(bootstrap, topic, on_acknowledged=on_acknowledged) as consumer:
        await consumer.subscribe([topic])
        assert [record.offset for record in await read(consumer, 3)] == [0, 2, 4]
        await trio.sleep(LOCK_MS / 1000 + 1)
        assert {record.delivery_count for record in await read(consumer, 3)} == {2}
        assert failed == [(offset, ErrorCode.INVALID_RECORD_STATE) for offset in (0, 2, 4)]
        assert accepted == []
        with trio.fail_after(SECONDS):
            while not accepted:
                assert await consumer.poll(timeout_ms=500) == []
        await fill(bootstrap, topic, 1)
        assert [record.offset for record in await read(consumer, 1)] == [6]
        await consumer.commit()
    assert accepted == [0, 2, 4, 6]


def start_console(bootstrap: str, topic: str, count: int) -> subprocess.Popen[str]:
    """Start Kafka's share consumer in the group of a topic. It ends after this many records."""
    names = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", topic]
    limits = ["--max-messages", str(count), "--timeout-ms", "20000"]
    command = [SCRIPT, "tool", CONSOLE_CONSUMER, *names, *limits]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def share_with_console(bootstrap: str) -> None:
    """Let our share consumer and Kafka's read one topic as members of one group."""
    topic = await new_topic(bootstrap)
    ours = Worker(bootstrap, topic, max_poll_records=5)
    theirs = start_console(bootstrap, topic, 20)
    written = 0
    try:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ours.work)
                await until(lambda: bool(ours.consumer.assignment))
                while theirs.poll() is None:
                    written += len(await fill(bootstrap, topic, 10))
                    await trio.sleep(0.1)
                out, _ = await trio.to_thread.run_sync(theirs.communicate)
                found = [line for line in out.split() if line.isdecimal()]
                assert len(found) == 20
                await until(lambda: len(ours.read) + len(found) >= written)
                await trio.sleep(1)
                nursery.cancel_scope.cancel()
    finally:
        theirs.kill()
    assert ours.read
    assert values(ours) + Counter(one.encode() for one in found) == Counter(
        {b"%d" % number: written // 10 for number in range(10)}
    )


async def test_our_member_and_kafkas_divide_the_records_on_kafka(bootstrap: str) -> None:
    await share_with_console(bootstrap)


async def test_our_member_and_kafkas_divide_the_records_on_our_brokers() -> None:
    with running() as cluster:
        await share_with_console(cluster.bootstrap)


async def test_no_record_is_lost_when_a_broker_of_kafka_is_killed() -> None:
    layout = KafkaLayout.of_racks(free_port(), ["a", "b", "c"])
    with layout_running(layout, SETTINGS, QUICK_NODE_JVM) as cluster:
        topic = f"killed-{free_port()}"
        cluster_topic(cluster.bootstrap, topic)
        await begin_at_start(cluster.bootstrap, topic)
        workers = [Worker(cluster.bootstrap, topic) for _ in range(2)]
        written: set[bytes] = set()

        async def write(first: int, count: int) -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
                for number in range(first, first + count):
                    await producer.enqueue(topic, b"%d" % number)
            written.update(b"%d" % number for number in range(first, first + count))

        with trio.fail_after(2 * SECONDS):
            async with trio.open_nursery() as nursery:
                for worker in workers:
                    nursery.start_soon(worker.work)
                await write(0, 300)
                await until(lambda: values(*workers).keys() >= written)
                cluster.nodes.kill(2)
                await write(300, 300)
                await until(lambda: values(*workers).keys() >= written)
                nursery.cancel_scope.cancel()


def cluster_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 6, 3)])[topic].result(20)
