"""Tests of the sink's producer against a cluster of processes: it keeps the order, retries, reports errors, and neither
loses nor duplicates records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.settings import ConnectionSettings, SinkSettings
from kraft.client.spark.sink.batches import OpenBatches
from kraft.client.spark.sink.column_encoder import Columns
from kraft.client.spark.sink.producer import SyncProducer, WriteFailed
from kraft.client.spark.sink.rows import MarkOrigin, RowError, SinkColumns
from kraft.client.spark.sink.task import write_at_least_once
from kraft.seam import Address
from kraft.wire.error_codes import ErrorCode
from tests.stages.started_clusters import LocalCluster, running

pytestmark = pytest.mark.interop

ORIGIN = MarkOrigin("query", 4, 2)
NOW_MS = int(time.time() * 1000)
"""Timestamp of the records in ms. It must be recent: otherwise retention, which runs every few minutes, would delete
the records during the test."""
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def settings_of(cluster: LocalCluster, **changes: Any) -> SinkSettings:
    addresses = tuple(Address(host, port) for host, port in cluster.addresses)
    connection = ConnectionSettings(bootstrap=addresses, request_timeout_ms=changes.pop("request_timeout_ms", 5_000))
    return SinkSettings(connection=connection, **changes)


def read_all(bootstrap: str, topic: str, partitions: int, count: int) -> list[list[Any]]:
    """Return the first `count` messages of a topic, and any further ones."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    places = [confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)]
    ends = sum(consumer.get_watermark_offsets(place, 10)[1] for place in places)
    consumer.assign(places)
    found: list[list[Any]] = [[] for _ in places]
    while sum(map(len, found)) < max(count, ends):
        for message in consumer.consume(10_000, 1):
            assert message.error() is None
            found[message.partition()].append(message)
    consumer.close()
    return found


class Numbers:
    """Makes rows with the values 0, 1, 2 and so on, distributed round-robin over the partitions."""

    def __init__(self, size: int) -> None:
        self._rest = b"x" * (size - 10)
        self.count = 0

    def columns(self, rows: int) -> tuple[Columns, Any]:
        numbers = np.arange(self.count, self.count + rows)
        self.count += rows
        values = pa.array([b"%010d" % number + self._rest for number in numbers], pa.binary())
        return Columns(None, values, None, np.full(rows, NOW_MS, np.int64)), numbers % PARTITIONS


def write_numbers(
    settings: SinkSettings, topic: str, chunks: int, between: Callable[[int], None] = lambda chunk: None
) -> int:
    """Write the numbers in chunks of 10,000 rows of 100 bytes, and return the number of rows."""
    numbers = Numbers(100)
    with SyncCluster(settings.connection) as known:
        known.wait_topics([topic])
        producer = SyncProducer(known, settings)
        filling = OpenBatches(producer, batch_bytes=settings.batch_bytes, open_bytes_max=settings.buffer_bytes // 2)
        for chunk in range(chunks):
            between(chunk)
            columns, partitions = numbers.columns(10_000)
            filling.add(columns, [topic], np.zeros(10_000, np.int64), partitions)
        filling.finish()
        producer.finish()
    return numbers.count


def assert_exact(bootstrap: str, topic: str, count: int) -> None:
    found = read_all(bootstrap, topic, PARTITIONS, count)
    for partition, messages in enumerate(found):
        numbers = [int(message.value()[:10]) for message in messages]
        assert numbers == list(range(partition, count, PARTITIONS))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_sync_producer_writes_batches_to_several_leaders_exactly_once_and_in_order(
    cluster: LocalCluster, codec: str
) -> None:
    topic = f"numbers-{codec}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    settings = settings_of(cluster, compression=codec, batch_bytes=16_384, buffer_bytes=200_000)
    assert_exact(cluster.bootstrap, topic, write_numbers(settings, topic, 10))


def test_sync_producer_loses_and_duplicates_nothing_when_leaders_are_killed(cluster: LocalCluster) -> None:
    topic = "killed"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    cluster.wait_in_sync(topic, 3)
    down: list[int] = []

    def kill(chunk: int) -> None:
        if chunk % 8 != 4:
            return
        while down:
            cluster.start(down.pop())
            cluster.wait_in_sync(topic, 3)
        down.append(cluster.leader(topic, (chunk // 8) % PARTITIONS))
        cluster.kill(down[0])

    settings = settings_of(cluster, batch_bytes=32_768, buffer_bytes=1_000_000, delivery_timeout_ms=60_000)
    try:
        count = write_numbers(settings, topic, 32, kill)
    finally:
        while down:
            cluster.start(down.pop())
    assert count == 320_000
    assert_exact(cluster.bootstrap, topic, count)


def test_sync_producer_recovers_when_a_leader_is_killed_with_all_requests_in_flight(cluster: LocalCluster) -> None:
    topic = "killed-under-way"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    cluster.wait_in_sync(topic, 3)
    leader = cluster.leader(topic, 0)
    begun = threading.Event()
    killer = threading.Thread(target=lambda: begun.wait(60) and cluster.kill(leader))
    killer.start()
    try:
        settings = settings_of(cluster, batch_bytes=16_384, buffer_bytes=32_000_000)
        count = write_numbers(settings, topic, 30, lambda chunk: begun.set() if chunk == 20 else None)
    finally:
        begun.set()
        killer.join()
        cluster.start(leader)
    assert_exact(cluster.bootstrap, topic, count)


def test_sync_producer_resends_in_flight_batches_after_another_request_closed_their_connection(
    cluster: LocalCluster,
) -> None:
    topic = "closed"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    cluster.wait_in_sync(topic, 3)
    settings = settings_of(cluster, batch_bytes=16_384)
    numbers = Numbers(100)
    with SyncCluster(settings.connection) as known:
        known.wait_topics([topic])
        producer = SyncProducer(known, settings)
        filling = OpenBatches(producer, batch_bytes=settings.batch_bytes, open_bytes_max=settings.buffer_bytes // 2)
        columns, partitions = numbers.columns(10_000)
        filling.add(columns, [topic], np.zeros(10_000, np.int64), partitions)
        filling.finish()
        assert any(True for _ in producer._accumulator.pending())
        known.close()
        producer.finish()
    assert_exact(cluster.bootstrap, topic, numbers.count)


def test_sync_producer_splits_a_batch_that_is_too_large_for_the_topic(cluster: LocalCluster) -> None:
    topic = "small-messages"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3, config={"max.message.bytes": "20000"})])[topic].result(10)
    cluster.wait_in_sync(topic, 3)
    count = write_numbers(settings_of(cluster, batch_bytes=262_144), topic, 3)
    assert_exact(cluster.bootstrap, topic, count)


def test_sync_producer_error_for_a_too_large_record_names_topic_partition_and_code(cluster: LocalCluster) -> None:
    topic = "one-too-large"
    cluster.create_topic(topic, partitions=1, replication_factor=3)
    rows = pa.RecordBatch.from_arrays([pa.array([b"x" * 2_000_000])], names=["value"])
    with pytest.raises(WriteFailed, match=r"topic one-too-large, partition 0: .* are not in the log") as caught:
        write_at_least_once(settings_of(cluster, topic=topic), SinkColumns(value=0), [rows], ORIGIN)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_sync_producer_fails_after_the_delivery_timeout_if_too_few_replicas_are_in_sync(cluster: LocalCluster) -> None:
    topic = "no-replicas"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3, config={"min.insync.replicas": "3"})])[topic].result(10)
    cluster.wait_in_sync(topic, 3)
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"])], names=["value"])
    settings = settings_of(cluster, topic=topic, delivery_timeout_ms=1_000)
    with cluster.killed(next(node for node in (1, 2, 3) if node != cluster.leader(topic))):
        cluster.wait_in_sync(topic, 2)
        with pytest.raises(WriteFailed, match=r"partition 0.*delivery.timeout.ms=1000.*NOT_ENOUGH_REPLICAS"):
            write_at_least_once(settings, SinkColumns(value=0), [rows], ORIGIN)


def test_sink_error_for_a_missing_topic_names_the_topic_and_row(cluster: LocalCluster) -> None:
    cluster.create_topic("exists", partitions=1, replication_factor=3)
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"v", b"w"]), pa.array(["exists", "missing"])], names=["value", "topic"]
    )
    with pytest.raises(RowError, match=r"row 1: .*missing"):
        write_at_least_once(settings_of(cluster), SinkColumns(value=0, topic=1), [rows], ORIGIN)


def test_sink_error_for_a_missing_partition_names_the_partition_and_row(cluster: LocalCluster) -> None:
    cluster.create_topic("narrow", partitions=2, replication_factor=3)
    partitions = pa.array([0, 1, 2], pa.int32())
    rows = pa.RecordBatch.from_arrays([pa.array([b"u", b"v", b"w"]), partitions], names=["value", "partition"])
    with pytest.raises(RowError, match="row 2 names partition 2 of topic narrow, which has partitions 0 to 1"):
        write_at_least_once(settings_of(cluster, topic="narrow"), SinkColumns(value=0, partition=1), [rows], ORIGIN)


def test_sink_writes_all_columns_and_puts_the_mark_header_before_other_headers(cluster: LocalCluster) -> None:
    topic = "all-columns"
    cluster.create_topic(topic, partitions=2, replication_factor=3)
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["v", None]),
            pa.array([None, b"k"]),
            pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None], kind),
            pa.array([1, 0], pa.int32()),
            pa.array([1_700_000_000_123_456, None], pa.timestamp("us", tz="UTC")),
        ],
        names=["value", "key", "headers", "partition", "timestamp"],
    )
    columns = SinkColumns(value=0, key=1, headers=2, partition=3, timestamp=4)
    written = write_at_least_once(settings_of(cluster, topic=topic, mark_records=True), columns, [rows], ORIGIN)
    assert (written.rows, written.origin) == (2, ORIGIN)
    (second,), (first,) = read_all(cluster.bootstrap, topic, 2, 2)
    assert (first.key(), first.value(), first.timestamp()[1]) == (None, b"v", 1_700_000_000_123)
    assert first.headers() == [("spark", b"query/4/2/0"), ("h", b"1"), ("h", None)]
    assert (second.key(), second.value(), second.headers()) == (b"k", None, [("spark", b"query/4/2/1")])


def test_sink_sends_keys_to_the_partitions_that_librdkafka_chooses_with_murmur2(cluster: LocalCluster) -> None:
    ours, theirs = "keys-ours", "keys-theirs"
    for topic in (ours, theirs):
        cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    keys = [b"key-%d" % number for number in range(200)]
    rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys)], names=["value", "key"])
    write_at_least_once(settings_of(cluster, topic=ours), SinkColumns(value=0, key=1), [rows], ORIGIN)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(theirs, key, key)
    producer.flush(20)
    found = [read_all(cluster.bootstrap, topic, PARTITIONS, 200) for topic in (ours, theirs)]
    assert [[one.key() for one in part] for part in found[0]] == [[one.key() for one in part] for part in found[1]]


def test_sink_error_for_an_unreachable_cluster_names_its_bootstrap_address() -> None:
    connection = ConnectionSettings(bootstrap=(Address("127.0.0.1", 1),), request_timeout_ms=500)
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"])], names=["value"])
    with pytest.raises((OSError, KafkaError), match=r"127\.0\.0\.1:1"):
        write_at_least_once(SinkSettings(connection=connection, topic="t"), SinkColumns(value=0), [rows], ORIGIN)
