"""Tests of TopicsObserver, which reads all topics of an application: it finds nothing on a healthy cluster, and it
finds disagreeing replicas and vanished records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest
import trio

from kraft.client import Producer
from kraft.client.admin import Admin, NewTopic
from kraft.client.core.records import ConsumerRecord
from kraft.sim.chaos.application.topics_observer import OUTSIDE_READER, TopicsFindings, TopicsObserver, text_of
from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEventType, HistoryRecorder
from kraft.sim.chaos.judge.anomalies import find_log_anomalies
from kraft.sim.chaos.judge.operations import paired
from kraft.sim.check.histories.client_histories import INCONSISTENT_OFFSETS, VANISHED

TOPIC = "orders"
CRC_AT, CRC_FROM = 17, 21
"""Offset of a batch's CRC, and offset of the first byte that it covers."""


@pytest.fixture(scope="module")
def started() -> Iterator[KafkaCluster]:
    with KafkaCluster(combined=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: KafkaCluster) -> Iterator[KafkaCluster]:
    yield started
    started.reset()


def now_ms() -> float:
    return trio.current_time() * 1000


def new_history() -> HistoryRecorder:
    return HistoryRecorder(lambda: int(trio.current_time() * 1e9))


class Shop:
    """The part of an application that creates topics and sends records."""

    def __init__(self, cluster: KafkaCluster, admin: Admin, producer: Producer, observer: TopicsObserver) -> None:
        self.cluster = cluster
        self.admin = admin
        self._producer = producer
        self._observer = observer

    async def create(self, topic: str = TOPIC, replicas: int = 3, **configs: str) -> None:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        await self.admin.topics.create(NewTopic(topic, 1, replicas, settings))

    async def send(self, *values: str, topic: str = TOPIC, key: bytes | None = None) -> None:
        for value in values:
            await self._producer.send(topic, value.encode(), key=key)

    async def until_read_along(self, count: int) -> None:
        while self._observer.read_along < count:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def observe(cluster: KafkaCluster, history: HistoryRecorder, work: object, *ignored: str) -> TopicsFindings:
    """Run the observer while `work`, which gets a Shop, runs; return the observer's findings."""
    assert callable(work)
    bootstrap = cluster.bootstrap_servers
    observer = TopicsObserver(bootstrap, history, now_ms, ignored=ignored)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(observer.follow)
        async with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
            await work(Shop(cluster, admin, producer, observer))
        nursery.cancel_scope.cancel()
    return await observer.finish()


def anomalies(history: HistoryRecorder) -> set[str]:
    return {each.name for each in find_log_anomalies(paired(history.events), (), True).anomalies}


def read_by(history: HistoryRecorder, process: str) -> list[str]:
    """Return the values, without hashes, that a process received."""
    return [
        value.rpartition(" #")[0]
        for event in history.events
        if event.process == process and event.f is Function.POLL and event.type is HistoryEventType.OK
        for _, _, records in event.values["records"]
        for _, value in records
    ]


async def test_topics_observer_reads_everything_and_finds_no_anomaly(cluster: KafkaCluster) -> None:
    history = new_history()
    values = [f"order-{number}" for number in range(20)]

    async def work(shop: Shop) -> None:
        await shop.create()
        await shop.send(*values[:10])
        await shop.until_read_along(10)
        await shop.send(*values[10:])
        await shop.until_read_along(20)

    found = await observe(cluster, history, work)
    assert (found.topics, found.records, found.read_along, found.replicas) == ((TOPIC,), 20, 20, 3)
    assert found.trouble == ()
    for process in (OUTSIDE_READER, FINAL_READER, *(f"replica-{node}" for node in cluster.broker_ids)):
        assert read_by(history, process) == values
    assert anomalies(history) == set()


async def test_topics_observer_continues_to_read_when_the_leader_is_killed(cluster: KafkaCluster) -> None:
    history = new_history()

    async def work(shop: Shop) -> None:
        await shop.create()
        await shop.send("before")
        await shop.until_read_along(1)
        leader = await trio.to_thread.run_sync(cluster.leader, TOPIC)
        assert leader is not None
        await trio.to_thread.run_sync(cluster.kill, leader)
        await shop.send("meanwhile")
        await shop.until_read_along(2)
        await trio.to_thread.run_sync(cluster.mend)
        await shop.send("afterwards")
        await shop.until_read_along(3)

    found = await observe(cluster, history, work)
    assert found.trouble == ()
    assert read_by(history, OUTSIDE_READER) == read_by(history, FINAL_READER) == ["before", "meanwhile", "afterwards"]
    assert anomalies(history) == set()


async def test_topics_observer_ignores_given_and_internal_topics(cluster: KafkaCluster) -> None:
    history = new_history()

    async def work(shop: Shop) -> None:
        await shop.create("chaos")
        await shop.send("a", topic="chaos")

    found = await observe(cluster, history, work, "chaos")
    assert found.topics == ()
    assert any("No topic" in note for note in found.notes)
    assert history.events == []


async def test_topics_observer_accepts_a_deleted_topic(cluster: KafkaCluster) -> None:
    history = new_history()

    async def work(shop: Shop) -> None:
        await shop.create()
        await shop.send("a")
        await shop.until_read_along(1)
        await shop.admin.topics.delete(TOPIC)

    found = await observe(cluster, history, work)
    assert f"Topic {TOPIC} was deleted, so records read during the run are not compared." in found.notes
    assert anomalies(history) == set()


async def test_topics_observer_accepts_a_recreated_topic(cluster: KafkaCluster) -> None:
    history = new_history()

    async def work(shop: Shop) -> None:
        await shop.create()
        await shop.send("a")
        await shop.until_read_along(1)
        await shop.admin.topics.delete(TOPIC)
        await shop.create()

    async def work_and_send(shop: Shop) -> None:
        await work(shop)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send(TOPIC, b"b")

    found = await observe(cluster, history, work_and_send)
    assert any("recreated" in note for note in found.notes)
    assert read_by(history, FINAL_READER) == ["b"]
    assert anomalies(history) == set()


async def test_topics_observer_accepts_deleted_records(cluster: KafkaCluster) -> None:
    history = new_history()

    async def work(shop: Shop) -> None:
        await shop.create()
        await shop.send("a", "b", "c")
        await shop.until_read_along(3)
        await shop.admin.partitions.delete_records({(TOPIC, 0): 2})

    found = await observe(cluster, history, work)
    assert any(note.startswith("2 records") for note in found.notes)
    assert read_by(history, FINAL_READER) == ["c"]
    assert anomalies(history) == set()


async def test_topics_observer_does_not_compare_a_compacted_topic(cluster: KafkaCluster) -> None:
    history = new_history()

    async def work(shop: Shop) -> None:
        await shop.create(cleanup_policy="compact")
        await shop.send("a", "b", key=b"k")
        await shop.until_read_along(2)

    found = await observe(cluster, history, work)
    assert any("compacted" in note for note in found.notes)
    assert (found.replicas, found.records) == (0, 2)
    assert read_by(history, OUTSIDE_READER) == []


async def test_topics_observer_notes_that_the_applications_acknowledgements_are_unknown(cluster: KafkaCluster) -> None:
    async def work(shop: Shop) -> None:
        await shop.create()

    found = await observe(cluster, new_history(), work)
    assert any("acknowledged" in note for note in found.notes)


async def test_checks_catch_replicas_that_disagree(cluster: KafkaCluster) -> None:
    history = new_history()

    async def work(shop: Shop) -> None:
        await shop.create()
        await shop.send("apples", "pears!")
        await shop.until_read_along(2)

    def falsify() -> None:
        follower = next(node for node in cluster.broker_ids if node != cluster.leader(TOPIC))
        cluster.stop(follower)
        rewrite(log_of(cluster, follower), b"pears!", b"plums!")
        cluster.mend()

    async def work_and_falsify(shop: Shop) -> None:
        await work(shop)
        await trio.to_thread.run_sync(falsify)
        await trio.to_thread.run_sync(cluster.wait_until, cluster.is_whole)

    found = await observe(cluster, history, work_and_falsify)
    assert found.trouble == ()
    assert anomalies(history) == {INCONSISTENT_OFFSETS}


async def test_checks_catch_a_record_that_was_read_and_vanished(cluster: KafkaCluster) -> None:
    history = new_history()

    async def work(shop: Shop) -> None:
        await shop.create(replicas=1, min_insync_replicas="1")
        await shop.send("apples", "pears")
        await shop.until_read_along(2)

    def cut_off() -> None:
        leader = cluster.leader(TOPIC)
        assert leader is not None
        cluster.stop(leader)
        log = log_of(cluster, leader)
        log.write_bytes(batches(log)[0])
        cluster.mend()

    async def work_and_cut_off(shop: Shop) -> None:
        await work(shop)
        await trio.to_thread.run_sync(cut_off)
        await trio.to_thread.run_sync(cluster.wait_until, cluster.is_whole)

    found = await observe(cluster, history, work_and_cut_off)
    assert found.trouble == ()
    assert read_by(history, FINAL_READER) == ["apples"]
    assert anomalies(history) == {VANISHED}


async def test_topics_observer_records_trouble_if_the_cluster_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kraft.sim.chaos.application.topics_observer.LOOK_TIMEOUT_MS", 200)
    found = await TopicsObserver("127.0.0.1:1", new_history(), now_ms).finish()
    assert any("could not be read" in sentence for sentence in found.trouble)


def test_topics_observer_distinguishes_records_of_equal_value_by_key_headers_and_timestamp() -> None:
    record = ConsumerRecord("t", 0, 0, 1, b"k", b"v", (), 0)
    others = [
        record._replace(key=None),
        record._replace(timestamp_ms=2),
        record._replace(headers=(("h", b"x"),)),
        record._replace(value=None),
    ]
    assert len({text_of(each) for each in (record, *others)}) == 5
    assert text_of(record) == text_of(record._replace(offset=9, leader_epoch=3))
    assert text_of(record).startswith("v #")


def log_of(cluster: KafkaCluster, node: int) -> Path:
    return cluster.folder / str(node) / "data" / f"{TOPIC}-0" / f"{0:020}.log"


def batches(log: Path) -> list[bytes]:
    data, found = log.read_bytes(), []
    while data:
        (length,) = struct.unpack_from(">i", data, 8)
        found.append(data[: 12 + length])
        data = data[12 + length :]
    return found


def rewrite(log: Path, old: bytes, new: bytes) -> None:
    """Replace a value in a log file by a value of the same length, and correct the batch's CRC."""
    changed = []
    for batch in batches(log):
        body = batch[CRC_FROM:].replace(old, new)
        changed.append(batch[:CRC_AT] + struct.pack(">I", crc32c.crc32c(body)) + body)
    log.write_bytes(b"".join(changed))
