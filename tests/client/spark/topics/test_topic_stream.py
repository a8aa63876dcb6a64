"""Tests of topic streams in a real Spark session: the rows of micro-batches, also after restarts and changes
of topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kraft.client.spark import GroupCommitter
from kraft.wire.api_keys import ApiKey
from tests.client.spark.changing_topics import group_offsets, grow_topic, recreate_topic, truncate_partition
from tests.client.spark.scripted_brokers import EARLIEST, LATEST, Brokers, scripted_brokers
from tests.client.spark.topic_records import create_topic, numbered, write_records
from tests.stages.started_clusters import LocalCluster, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SECONDS_MAX = 120
KILLS = 5
RECORDS = 400
IDLE_SECONDS = 3.0
REQUESTS_PER_SECOND_MAX = 12


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with running(combined=1, settings=["group.initial.rebalance.delay.ms=0"]) as started:
        yield started


Row = tuple[str, int, int, bytes]


@dataclass
class Pipeline:
    """A streaming query from topics to a list, which can be run again from its checkpoint."""

    spark: SparkSession
    checkpoint: Path
    options: dict[str, Any]
    batches: list[tuple[int, list[Row]]] = field(default_factory=list)
    """The micro-batches as the sink received them: (batch id, rows in order)."""

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.spark.readStream.format("kraft").options(**self.options).load()
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self) -> list[Row]:
        """Process all present records in an AvailableNow run, and return their rows."""
        before = len(self.batches)
        query = self.start(availableNow=True)
        assert query.awaitTermination(SECONDS_MAX), "the query does not end"
        return [row for _, rows in self.batches[before:] for row in rows]

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        rows = [(row.topic, row.partition, row.offset, bytes(row.value)) for row in frame.collect()]
        self.batches.append((batch_id, sorted(rows)))

    @property
    def rows(self) -> list[Row]:
        """The rows of all micro-batches so far."""
        return [row for _, rows in self.batches for row in rows]

    def forget_last_commit(self) -> int:
        """Make the checkpoint look as if the query was killed before it recorded its last micro-batch as done. Return
        the id of that micro-batch."""
        commits = self.checkpoint / "commits"
        newest = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdecimal())
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)
        return newest


Pipe = Callable[..., Pipeline]


@pytest.fixture
def pipe(spark: SparkSession, broker: LocalCluster, topic: str, tmp_path: Path) -> Pipe:
    """Factory of pipelines that read `topic` with these options."""
    made = iter(range(100))

    def make(**options: Any) -> Pipeline:
        which = {} if "subscribePattern" in options else {"subscribe": topic}
        every = {"bootstrap": broker.bootstrap, "startingOffsets": "earliest", **which, **options}
        return Pipeline(spark, tmp_path / f"checkpoint-{next(made)}", every)

    return make


@contextmanager
def stopping(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def values(rows: list[Row]) -> list[int]:
    return sorted(int(value.removeprefix(b"value-")) for _, _, _, value in rows)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {SECONDS_MAX} s"
        time.sleep(0.05)


# rows of a batch


def test_repeated_stream_batch_in_spark_has_the_same_rows_and_none_are_missing(
    broker: LocalCluster, topic: str, pipe: Pipe
) -> None:
    create_topic(broker.bootstrap, topic, partitions=3)
    write_records(broker.bootstrap, topic, numbered(30, partitions=3))
    pipeline = pipe(maxOffsetsPerTrigger=12)
    assert values(pipeline.run()) == list(range(30))
    last_id, last_rows = pipeline.batches[-1]
    assert [batch_id for batch_id, _ in pipeline.batches] == [0, 1, 2]
    assert pipeline.forget_last_commit() == last_id
    write_records(broker.bootstrap, topic, numbered(6, start=30, partitions=3))
    before = len(pipeline.batches)
    pipeline.run()
    assert pipeline.batches[before] == (last_id, last_rows)
    assert values([row for _, rows in pipeline.batches[before + 1 :] for row in rows]) == list(range(30, 36))


def test_stream_in_spark_returns_columns_in_the_order_of_the_users_schema(
    spark: SparkSession, broker: LocalCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(3))
    seen: list[Any] = []
    reader = spark.readStream.format("kraft").schema("offset LONG, value BINARY")
    frame = reader.options(bootstrap=broker.bootstrap, subscribe=topic, startingOffsets="earliest").load()
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(SECONDS_MAX)
    assert sorted((row.offset, bytes(row.value)) for row in seen) == [(n, b"value-%d" % n) for n in range(3)]


def test_stream_progress_in_spark_shows_the_latest_offsets_of_the_topic(
    broker: LocalCluster, topic: str, pipe: Pipe
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(5))
    pipeline = pipe(maxOffsetsPerTrigger=2)
    query = pipeline.start(availableNow=True)
    assert query.awaitTermination(SECONDS_MAX)
    first = query.recentProgress[0].sources[0]
    assert f'"{topic}": {{"0": 2}}' in first.endOffset or f'"{topic}":{{"0":2}}' in first.endOffset
    assert '"0":5' in first.latestOffset.replace(" ", "")


@pytest.mark.timeout(600)
def test_stream_in_spark_keeps_all_rows_in_order_when_five_leaders_are_killed(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=4, replication_factor=3, min_insync_replicas=2)
    options = {"bootstrap": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    pipeline = Pipeline(spark, tmp_path / "checkpoint", options)
    with stopping(pipeline.start()) as query:

        def wait_for_rows(count: int) -> None:
            wait_until(lambda: not query.isActive or len(pipeline.rows) >= count, f"{count} rows")
            assert query.exception() is None

        write_records(cluster.bootstrap, topic, numbered(RECORDS, partitions=4))
        wait_for_rows(1)
        for kill in range(1, KILLS + 1):
            cluster.wait_in_sync(topic, 3)
            with cluster.killed(cluster.leader(topic, kill % 4)):
                write_records(cluster.bootstrap, topic, numbered(RECORDS, start=kill * RECORDS, partitions=4))
                wait_for_rows((kill + 1) * RECORDS)
    rows = pipeline.rows
    assert values(rows) == list(range((KILLS + 1) * RECORDS))
    for index in range(4):
        of_partition = [row for row in rows if row[1] == index]
        assert [offset for _, _, offset, _ in of_partition] == list(range(len(of_partition)))
        assert values(of_partition) == [int(row[3].removeprefix(b"value-")) for row in of_partition]


# topics that change


def test_available_now_stream_reads_new_partitions_and_new_topics_of_its_pattern(
    broker: LocalCluster, topic: str, pipe: Pipe
) -> None:
    first, second = f"{topic}-one", f"{topic}-two"
    create_topic(broker.bootstrap, first, partitions=1)
    write_records(broker.bootstrap, first, numbered(4))
    pipeline = pipe(subscribePattern=f"{topic}-.*")
    assert values(pipeline.run()) == [0, 1, 2, 3]
    grow_topic(broker.bootstrap, first, 3)
    write_records(broker.bootstrap, first, numbered(6, start=4, partitions=3))
    create_topic(broker.bootstrap, second, partitions=2)
    write_records(broker.bootstrap, second, numbered(4, start=10, partitions=2))
    rows = pipeline.run()
    assert values(rows) == list(range(4, 14))
    assert {(name, partition) for name, partition, _, _ in rows} == {
        *((first, index) for index in range(3)),
        *((second, index) for index in range(2)),
    }
    assert pipeline.run() == []


def test_running_stream_in_spark_reads_new_partitions_of_a_topic(broker: LocalCluster, topic: str, pipe: Pipe) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    pipeline = pipe(**{"kafka.metadata.max.age.ms": 100})
    with stopping(pipeline.start()) as query:
        write_records(broker.bootstrap, topic, numbered(3))
        wait_until(lambda: len(pipeline.batches) > 0, "the first batch")
        grow_topic(broker.bootstrap, topic, 2)
        write_records(broker.bootstrap, topic, numbered(6, start=3, partitions=2))
        wait_until(lambda: len(pipeline.rows) >= 9, "all rows")
        assert query.exception() is None
    assert values(pipeline.rows) == list(range(9))


def test_stream_in_spark_fails_on_a_recreated_topic_or_reads_it_by_option_fail_on_data_loss(
    broker: LocalCluster, topic: str, pipe: Pipe
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(3))
    strict, lenient = pipe(), pipe(failOnDataLoss=False)
    assert values(strict.run()) == values(lenient.run()) == [0, 1, 2]
    recreate_topic(broker.bootstrap, topic)
    write_records(broker.bootstrap, topic, numbered(5, start=100))
    with pytest.raises(Exception, match=r"DataLost.*was deleted and"):
        strict.run()
    assert values(lenient.run()) == [100, 101, 102, 103, 104]


def test_stream_in_spark_fails_on_deleted_records_or_skips_them_by_option_fail_on_data_loss(
    broker: LocalCluster, topic: str, pipe: Pipe
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(2))
    strict, lenient = pipe(), pipe(failOnDataLoss=False)
    assert values(strict.run()) == values(lenient.run()) == [0, 1]
    write_records(broker.bootstrap, topic, numbered(8, start=2))
    truncate_partition(broker.bootstrap, topic, 0, 6)
    with pytest.raises(Exception, match=r"DataLost.*failOnDataLoss=false"):
        strict.run()
    assert values(lenient.run()) == [6, 7, 8, 9]


def test_stream_in_spark_error_names_a_wrong_option_or_unknown_topic(pipe: Pipe, topic: str) -> None:
    with pytest.raises(Exception, match=r"OptionError.*did you mean startingOffsets"):
        pipe(startingOfsets="earliest").run()
    with pytest.raises(Exception, match=topic):
        pipe().run()


# few requests


def test_idle_stream_in_spark_sends_few_requests(spark: SparkSession, tmp_path: Path) -> None:
    with scripted_brokers(Brokers(offsets={EARLIEST: 0, LATEST: 0})) as brokers:
        address = brokers.addresses[0]
        pipeline = Pipeline(
            spark, tmp_path / "checkpoint", {"bootstrap": f"{address.host}:{address.port}", "subscribe": "t"}
        )
        with stopping(pipeline.start()):
            wait_until(lambda: brokers.asked.count((0, ApiKey.LIST_OFFSETS)) > 3, "the first questions")
            before, begun = len(brokers.asked), time.monotonic()
            wait_until(lambda: time.monotonic() - begun > IDLE_SECONDS, "the time to count")
            asked = brokers.asked[before:]
            assert len(asked) <= REQUESTS_PER_SECOND_MAX * (time.monotonic() - begun) + 1
            assert {key for _, key in asked} == {ApiKey.LIST_OFFSETS}
    assert pipeline.batches == [(0, [])]  # Spark begins each run of a query with a micro-batch


def test_stopped_stream_in_spark_leaves_no_connection(
    spark: SparkSession, broker: LocalCluster, topic: str, pipe: Pipe
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(1))
    pipeline = pipe()
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    ports = {port for _, port in broker.addresses}

    def connected() -> int:
        count = 0
        for child in jvm.children(recursive=True):
            try:
                count += sum(bool(one.raddr) and one.raddr.port in ports for one in child.net_connections(kind="tcp"))
            except psutil.NoSuchProcess:
                continue
        return count

    with stopping(pipeline.start()):
        wait_until(lambda: len(pipeline.batches) > 0, "the first batch")
        assert connected() > 0
    wait_until(lambda: connected() == 0, "the end of all connections")


# consumer groups


def test_stream_commits_to_its_group_are_one_micro_batch_behind_without_a_group_committer(
    spark: SparkSession, broker: LocalCluster, topic: str, pipe: Pipe
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(4))
    pipeline = pipe(commitGroup=f"{topic}-group", maxOffsetsPerTrigger=2)

    def committed() -> tuple[int, str]:
        return group_offsets(broker.bootstrap, f"{topic}-group", topic)[0]

    assert values(pipeline.run()) == [0, 1, 2, 3]
    assert committed() == (2, "spark")
    write_records(broker.bootstrap, topic, numbered(2, start=4))
    with GroupCommitter(spark):
        assert values(pipeline.run()) == [4, 5]
    offset, note = committed()
    assert offset == 6
    assert note.startswith("spark ")
    assert note.endswith(" 2")
