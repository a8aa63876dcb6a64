"""Tests that Spark's own Kafka connector works with pykraft as with Apache Kafka: reading and writing, batches and
streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.client.spark.topic_records import (
    CODECS,
    Record,
    StoredRecord,
    create_topic,
    numbered,
    read_records,
    write_records,
)
from tests.stages.started_clusters import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

FIRST_MS = 1_700_000_000_000
STREAM_SECONDS_MAX = 120


def connector_frame(spark: SparkSession, cluster: LocalCluster, **options: Any) -> DataFrame:
    """Return a batch DataFrame that Spark's connector reads with these options."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.options(**options).load()


def stored(row: Row) -> StoredRecord:
    """Return the stored record that a row, read with headers, represents."""
    return StoredRecord(
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        timestamp_ms=round(row.timestamp.timestamp() * 1000),
        timestamp_type=row.timestampType,
        key=_bytes(row.key),
        value=_bytes(row.value),
        headers=tuple((header.key, _bytes(header.value)) for header in row.headers or ()),
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def in_order(records: Iterable[StoredRecord]) -> list[StoredRecord]:
    return sorted(records, key=lambda one: (one.topic, one.partition, one.offset))


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbered_values(numbers: Iterable[int]) -> list[bytes]:
    return sorted(b"value-%d" % number for number in numbers)


def test_connector_batch_reads_every_codec_with_keys_times_and_headers(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=4, replication_factor=3)
    for codec in CODECS:
        write_records(cluster.bootstrap, topic, numbered(100, timestamp_ms=FIRST_MS), codec=codec)
    odd = [Record(value=None, key=b"gone"), Record(value=b"", key=b""), Record(value=b"no key", headers=(("h", None),))]
    write_records(cluster.bootstrap, topic, odd)
    written = read_records(cluster.bootstrap, topic)
    assert len(written) == 503
    rows = connector_frame(spark, cluster, subscribe=topic, includeHeaders="true").collect()
    assert in_order(map(stored, rows)) == in_order(written)


@pytest.mark.parametrize("codec", CODECS)
def test_connector_batch_writes_records_that_other_clients_read_unchanged(
    spark: SparkSession, cluster: LocalCluster, topic: str, codec: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=4, replication_factor=3)
    rows: list[tuple[Any, ...]] = [
        (bytearray(b"key-%d" % number), bytearray(b"value-%d" % number), [("n", bytearray(b"%d" % number))])
        for number in range(200)
    ]
    rows += [(None, bytearray(b"no key"), None), (bytearray(b"gone"), None, None)]
    schema = "key BINARY, value BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    writer = spark.createDataFrame(rows, schema).write.format("kafka").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap).option("kafka.compression.type", codec)
    writer.option("includeHeaders", "true").save()
    expected = {(b"key-%d" % n, b"value-%d" % n, (("n", b"%d" % n),)) for n in range(200)}
    found = read_records(cluster.bootstrap, topic)
    assert len(found) == 202
    assert {(one.key, one.value, one.headers) for one in found} == {
        *expected,
        (None, b"no key", ()),
        (b"gone", None, ()),
    }


def test_connector_batch_by_pattern_reads_each_topic_whose_name_contains_a_match(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    names = [f"{topic}.a", f"more.{topic}.b.too", f"{topic}.c", topic]
    for index, name in enumerate(names):
        create_topic(cluster.bootstrap, name, partitions=2, replication_factor=3)
        write_records(cluster.bootstrap, name, numbered(10, start=10 * index))
    frame = connector_frame(spark, cluster, subscribePattern=rf"{topic}\.[ab]")
    assert {row.topic for row in frame.select("topic").distinct().collect()} == set(names[:2])
    assert values(frame) == numbered_values(range(20))


def test_connector_batch_with_offsets_reads_exactly_that_range(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=3, replication_factor=3)
    write_records(cluster.bootstrap, topic, numbered(90, partitions=3))
    frame = connector_frame(
        spark,
        cluster,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": -2, "1": 7, "2": 29}}),
        endingOffsets=json.dumps({topic: {"0": 5, "1": -1, "2": 30}}),
    )
    found = {(row.partition, row.offset) for row in frame.select("partition", "offset").collect()}
    assert found == {*((0, n) for n in range(5)), *((1, n) for n in range(7, 30)), (2, 29)}


def test_connector_batch_with_option_assign_reads_only_those_partitions_in_several_splits(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=3, replication_factor=3)
    write_records(cluster.bootstrap, topic, numbered(90, partitions=3))
    frame = connector_frame(spark, cluster, assign=json.dumps({topic: [0, 2]}), minPartitions="6")
    assert frame.rdd.getNumPartitions() >= 6
    assert values(frame) == numbered_values(n for n in range(90) if n % 3 != 1)


def test_connector_batch_by_time_starts_and_ends_at_the_first_records_at_or_after(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=2, replication_factor=3)
    write_records(cluster.bootstrap, topic, numbered(100, partitions=2, timestamp_ms=FIRST_MS), batch_num_messages=7)
    between = {"startingTimestamp": str(FIRST_MS + 20), "endingTimestamp": str(FIRST_MS + 70)}
    assert values(connector_frame(spark, cluster, subscribe=topic, **between)) == numbered_values(range(20, 70))
    starts = json.dumps({topic: {"0": FIRST_MS + 91, "1": FIRST_MS + 50}})
    frame = connector_frame(spark, cluster, subscribe=topic, startingOffsetsByTimestamp=starts)
    even, odd = range(92, 100, 2), range(51, 100, 2)
    assert values(frame) == numbered_values([*even, *odd])


def test_connector_batch_that_starts_after_the_newest_record_fails_or_is_empty_by_strategy_option(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1, replication_factor=3)
    write_records(cluster.bootstrap, topic, numbered(10, timestamp_ms=FIRST_MS))
    after = {"subscribe": topic, "startingTimestamp": str(FIRST_MS + 10)}
    with pytest.raises(Exception, match="No offset matched from request"):
        connector_frame(spark, cluster, **after).collect()
    assert values(connector_frame(spark, cluster, startingOffsetsByTimestampStrategy="latest", **after)) == []


def copy_once(spark: SparkSession, cluster: LocalCluster, source: str, target: str, checkpoint: Path) -> int:
    """Copy the new records of `source` to `target`, 50 per micro-batch, then end. Return the number of nonempty
    micro-batches."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
    frame = reader.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="50").load()
    writer = frame.select("key", "value").writeStream.format("kafka").option("topic", target)
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_SECONDS_MAX)
    return sum(1 for one in query.recentProgress if one.numInputRows)


def test_connector_stream_copies_a_topic_in_batches_and_resumes_from_its_checkpoint(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}.copy"
    for name in (topic, target):
        create_topic(cluster.bootstrap, name, partitions=2, replication_factor=3)
    write_records(cluster.bootstrap, topic, numbered(200, partitions=2))
    assert copy_once(spark, cluster, topic, target, tmp_path / "checkpoint") >= 4
    write_records(cluster.bootstrap, topic, numbered(30, start=200, partitions=2))
    assert copy_once(spark, cluster, topic, target, tmp_path / "checkpoint") == 1
    copied = [(one.key, one.value) for one in read_records(cluster.bootstrap, target)]
    assert sorted(copied) == sorted((one.key, one.value) for one in numbered(230))


def test_connector_stream_continues_to_read_and_write_while_brokers_are_killed(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}.copy"
    for name in (topic, target):
        create_topic(cluster.bootstrap, name, partitions=3, replication_factor=3, min_insync_replicas=1)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
    frame = reader.options(subscribe=topic, startingOffsets="earliest").load()
    writer = frame.select("key", "value").writeStream.format("kafka").option("topic", target)
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        write_records(cluster.bootstrap, topic, numbered(100, partitions=3))
        query.processAllAvailable()
        for turn in range(1, 3):
            with cluster.killed(cluster.leader(topic, turn)):
                write_records(cluster.bootstrap, topic, numbered(100, start=100 * turn, partitions=3))
                query.processAllAvailable()
            cluster.wait_in_sync(topic, 3)
            cluster.wait_in_sync(target, 3)
    finally:
        query.stop()
    copied = [one.value for one in read_records(cluster.bootstrap, target) if one.value is not None]
    assert sorted(copied) == numbered_values(range(300))
