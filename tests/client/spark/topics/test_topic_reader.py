"""Tests of the batch reader of topics against a real cluster, without Spark: it plans and reads as in
Spark's workers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, InputPartition, LessThan

from kraft.client.core.records import KafkaError
from kraft.client.spark.settings import (
    ConnectionSettings,
    FetchSettings,
    Position,
    TopicSelection,
    TopicSettings,
)
from kraft.client.spark.topics.arrow_records import COLUMNS
from kraft.client.spark.topics.data_loss import DataLost
from kraft.client.spark.topics.range_reader import read_range
from kraft.client.spark.topics.ranges import OffsetRange
from kraft.client.spark.topics.reader import TopicReader
from kraft.seam import Address
from tests.client.spark.topic_records import CODECS, create_topic, numbered, read_records, write_records
from tests.stages.started_clusters import LocalCluster

pytestmark = pytest.mark.interop

SMALL = FetchSettings(bytes_max=2_000, partition_bytes_max=2_000, wait_ms=100, arrow_rows=20)


def settings(cluster: LocalCluster, topic: str, **more: Any) -> TopicSettings:
    addresses = tuple(Address(host, port) for host, port in cluster.addresses)
    connection = ConnectionSettings(bootstrap=addresses, request_timeout_ms=more.pop("request_timeout_ms", 30_000))
    return TopicSettings(connection=connection, **({"topics": TopicSelection(subscribe=(topic,))} | more))


def tasks_of(reader: TopicReader) -> list[InputPartition]:
    """Return the tasks of the plan, after pickling them and the reader as Spark does."""
    return [pickle.loads(pickle.dumps(task)) for task in reader.partitions()]


def read(
    cluster: LocalCluster, topic: str, columns: Sequence[str] = ("offset",), *filters: Filter, **more: Any
) -> list[dict[str, Any]]:
    """Return the rows of a whole batch query, read task by task."""
    reader = TopicReader(settings(cluster, topic, **more), columns)
    if filters:
        reader.pushFilters(list(filters))
    reader = pickle.loads(pickle.dumps(reader))
    rows: list[dict[str, Any]] = []
    for task in tasks_of(reader):
        for found in reader.read(task):
            assert isinstance(found, pa.RecordBatch)
            rows += found.to_pylist()
    return rows


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return sorted(row["value"] for row in rows)


def test_topic_reader_gives_the_same_records_as_librdkafka_in_all_columns(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=4)
    for at, codec in enumerate(CODECS):
        records = numbered(400, start=400 * at, partitions=4, timestamp_ms=1_700_000_000_000 + 400 * at)
        write_records(cluster.bootstrap, topic, records, codec=codec)
    rows = read(cluster, topic, COLUMNS)
    stored = read_records(cluster.bootstrap, topic)
    assert len(rows) == 2_000
    for row, one in zip(rows, stored, strict=True):
        assert (row["topic"], row["partition"], row["offset"]) == (one.topic, one.partition, one.offset)
        assert (row["key"], row["value"], row["timestampType"]) == (one.key, one.value, one.timestamp_type)
        assert row["timestamp"] == datetime.fromtimestamp(one.timestamp_ms / 1000, UTC)
        assert tuple((entry["key"], entry["value"]) for entry in row["headers"]) == one.headers


def test_topic_reader_does_not_read_records_appended_after_planning(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(10))
    reader = TopicReader(settings(cluster, topic), ("offset",))
    (task,) = tasks_of(reader)
    write_records(cluster.bootstrap, topic, numbered(10))
    assert [row["offset"] for found in reader.read(task) for row in found.to_pylist()] == list(range(10))


def test_topic_reader_reads_each_record_once_if_partitions_are_split_into_tasks(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=3)
    write_records(cluster.bootstrap, topic, numbered(300, partitions=3), batch_num_messages=7)
    expected = sorted(b"value-%d" % number for number in range(300))
    assert values(read(cluster, topic, ("value",), partitions_min=10)) == expected
    assert values(read(cluster, topic, ("value",), records_per_partition_max=11, fetch=SMALL)) == expected


def test_topic_reader_begins_and_ends_at_the_given_offsets_and_times(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(100, timestamp_ms=1_000), batch_num_messages=9)

    def at(offset: int) -> Position:
        return Position(kind="offsets", offsets={topic: {0: offset}})

    def offsets(**more: Any) -> list[int]:
        return [row["offset"] for row in read(cluster, topic, **more)]

    assert offsets(starting=at(13), ending=at(77)) == list(range(13, 77))
    assert offsets(starting=Position(kind="timestamp", timestamp_ms=1_040)) == list(range(40, 100))
    assert offsets(ending=Position(kind="timestamp", timestamp_ms=1_040)) == list(range(40))


def test_topic_reader_gives_the_same_rows_with_and_without_pushed_filters(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=3)
    write_records(cluster.bootstrap, topic, numbered(300, partitions=3, timestamp_ms=1_000_000), batch_num_messages=8)
    moment = datetime.fromtimestamp(1_000.1, UTC)
    columns = ("partition", "offset", "timestamp")
    whole = read(cluster, topic, columns)
    assert read(cluster, topic, columns, EqualTo(("partition",), 1), GreaterThan(("offset",), 20)) == [
        row for row in whole if row["partition"] == 1 and row["offset"] > 20
    ]
    assert read(cluster, topic, columns, GreaterThanOrEqual(("timestamp",), moment)) == [
        row for row in whole if row["timestamp"] >= moment
    ]
    older = read(cluster, topic, columns, LessThan(("timestamp",), moment))
    assert [row for row in older if row["timestamp"] < moment] == [row for row in whole if row["timestamp"] < moment]


def test_topic_reader_of_a_pattern_reads_matching_topics_except_internal_ones(
    cluster: LocalCluster, topic: str
) -> None:
    names = [f"{topic}-a", f"{topic}-b", f"x-{topic}-a-x"]
    for name in names:
        create_topic(cluster.bootstrap, name, partitions=1)
        write_records(cluster.bootstrap, name, numbered(2))
    chosen = read(cluster, topic, ("topic",), topics=TopicSelection(pattern=f"{topic}-a"))
    assert {row["topic"] for row in chosen} == {names[0], names[2]}, "as Spark's connector chooses"
    whole = read(cluster, topic, ("topic",), topics=TopicSelection(pattern=f"^{topic}-[ab]$"))
    assert {row["topic"] for row in whole} == set(names[:2])
    every = read(cluster, topic, ("topic",), topics=TopicSelection(pattern=".*"))
    assert set(names) <= {row["topic"] for row in every}
    assert not {row["topic"] for row in every if row["topic"].startswith("__")}


def test_topic_reader_reads_only_assigned_partitions(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=4)
    write_records(cluster.bootstrap, topic, numbered(40, partitions=4))
    rows = read(cluster, topic, ("partition",), topics=TopicSelection(assign={topic: (2, 0)}))
    assert [row["partition"] for row in rows] == [0] * 10 + [2] * 10


# losses


def delete_topic(cluster: LocalCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(timeout=20)


def delete_records(cluster: LocalCluster, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    request = confluent_kafka.TopicPartition(topic, 0, before)
    admin.delete_records([request])[request].result(timeout=20)


def test_topic_reader_fails_on_deleted_offsets_or_skips_them_by_option_fail_on_data_loss(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(50))
    delete_records(cluster, topic, 30)
    starting = Position(kind="offsets", offsets={topic: {0: 10}})
    with pytest.raises(DataLost, match=r"wanted: offsets 10 to 50; available: offsets 30 to 50, 20 offsets"):
        read(cluster, topic, starting=starting)
    rows = read(cluster, topic, starting=starting, fail_on_data_loss=False)
    assert [row["offset"] for row in rows] == list(range(30, 50))
    assert [row["offset"] for row in read(cluster, topic)] == list(range(30, 50))


@pytest.mark.parametrize("fails", [True, False])
def test_topic_reader_reports_records_deleted_after_planning_as_loss(
    cluster: LocalCluster, topic: str, fails: bool
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(50))
    reader = TopicReader(settings(cluster, topic, fail_on_data_loss=fails), ("offset",))
    (task,) = tasks_of(reader)
    delete_records(cluster, topic, 30)
    if fails:
        with pytest.raises(DataLost, match=r"the beginning of the range has expired .* 30 offsets"):
            list(reader.read(task))
    else:
        assert [row["offset"] for found in reader.read(task) for row in found.to_pylist()] == list(range(30, 50))


def test_topic_reader_with_an_offset_beyond_the_end_fails_or_is_empty_by_option_fail_on_data_loss(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(5))
    starting = Position(kind="offsets", offsets={topic: {0: 9}})
    with pytest.raises(DataLost, match="the log ends before the offset that was given"):
        read(cluster, topic, starting=starting)
    assert read(cluster, topic, starting=starting, fail_on_data_loss=False) == []


def test_topic_reader_error_for_a_missing_topic_names_it_at_planning(cluster: LocalCluster, topic: str) -> None:
    with pytest.raises(KafkaError, match=f"topic {topic}: it does not exist"):
        read(cluster, topic)


@pytest.mark.parametrize("fails", [True, False])
def test_topic_reader_reports_a_topic_deleted_after_planning_as_loss(
    cluster: LocalCluster, topic: str, fails: bool
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(5))
    reader = TopicReader(settings(cluster, topic, fail_on_data_loss=fails), ("offset",))
    (task,) = tasks_of(reader)
    delete_topic(cluster, topic)
    if fails:
        with pytest.raises(DataLost, match=rf"topic {topic}, partition 0: .* no longer exists"):
            list(reader.read(task))
    else:
        assert list(reader.read(task)) == []


def test_topic_reader_reads_no_records_of_a_topic_recreated_after_planning(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(5))
    reader = TopicReader(settings(cluster, topic), ("offset",))
    (task,) = tasks_of(reader)
    delete_topic(cluster, topic)
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(5))
    with pytest.raises(DataLost, match="deleted and recreated"):
        list(reader.read(task))


# brokers that die


@contextmanager
def reading_when(cluster: LocalCluster, topic: str, happens: Callable[[int], None], **more: Any) -> Iterator[list[int]]:
    """Read a range, call `happens(leader)` after its first rows, and return the offsets that were read."""
    create_topic(cluster.bootstrap, topic, partitions=1, replication_factor=3, min_insync_replicas=1)
    write_records(cluster.bootstrap, topic, numbered(2_000), batch_num_messages=10)
    cluster.wait_in_sync(topic, 3)
    few = settings(cluster, topic, **({"fetch": SMALL} | more))
    leader = cluster.leader(topic)
    found: list[int] = []
    for one in read_range(few, OffsetRange(topic, 0, 0, 2_000), ("offset",)):
        if not found:
            happens(leader)
        found += one.column(0).to_pylist()
    yield found


def test_topic_reader_loses_and_duplicates_no_record_when_the_leader_is_killed(
    cluster: LocalCluster, topic: str
) -> None:
    killed: list[int] = []

    def happens(leader: int) -> None:
        killed.append(leader)
        cluster.kill(leader)

    try:
        with reading_when(cluster, topic, happens) as found:
            assert found == list(range(2_000))
    finally:
        for node in killed:
            cluster.start(node)


def test_topic_reader_loses_and_duplicates_no_record_when_the_leader_freezes(cluster: LocalCluster, topic: str) -> None:
    frozen: list[int] = []

    def happens(leader: int) -> None:
        # each request to the frozen leader remains unanswered for 5 s
        frozen.append(int((cluster.folder / str(leader) / "pid").read_text()))
        os.kill(frozen[-1], signal.SIGSTOP)

    try:
        with reading_when(cluster, topic, happens, request_timeout_ms=15_000) as found:
            assert found == list(range(2_000))
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


def test_topic_reader_loses_and_duplicates_no_record_when_the_leader_moves(cluster: LocalCluster, topic: str) -> None:
    def happens(leader: int) -> None:
        with cluster.killed(leader):
            pass

    with reading_when(cluster, topic, happens) as found:
        assert found == list(range(2_000))


# workers


def test_topic_reader_worker_loads_neither_trio_nor_pandas(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    write_records(cluster.bootstrap, topic, numbered(10), codec="lz4")
    reader = TopicReader(settings(cluster, topic), ("key", "value", "offset", "timestamp"))
    parcel = tmp_path / "reader.pickle"
    parcel.write_bytes(pickle.dumps((reader, tasks_of(reader))))
    code = (
        "import pickle, sys\n"
        f"reader, tasks = pickle.load(open({str(parcel)!r}, 'rb'))\n"
        "rows = sum(found.num_rows for task in tasks for found in reader.read(task))\n"
        "print(rows, sorted({'trio', 'pandas', 'hypothesis', 'asyncio'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("10 []\n", "")


def test_topic_reader_gives_no_rows_for_sparks_placeholder_partition(cluster: LocalCluster, topic: str) -> None:
    reader = TopicReader(replace(settings(cluster, topic), partitions_min=3), ("offset",))
    assert list(reader.read(InputPartition(None))) == []
