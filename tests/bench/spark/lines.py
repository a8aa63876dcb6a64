"""Lines of the Spark benchmark: the work of each side, its number of rows, and the target ratio of rows per CPU second.

Both sides run the same query in the same session, in turn. The sink of reads is `noop`, which takes every column of
every row and stores nothing.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tests.stages.started_clusters import LocalCluster

OURS, CONNECTOR = "ours", "connector"
PARTITIONS = 4
ROWS_PER_TRIGGER = 1_000_000
ARROW_ROWS = 32_768


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison. `sides` maps each side's name to its work. `target` is the minimum of our rate divided by the
    other side's rate."""

    name: str
    rows: int
    sides: dict[str, Callable[[], None]]
    target: float


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that librdkafka fills before anything is measured."""

    name: str
    rows: int
    value_bytes: int
    settings: dict[str, Any]


def topics(share: float) -> dict[str, Topic]:
    """Return the topics to read. `share` is the share of the full number of rows in each."""

    def of(name: str, rows: int, value_bytes: int, **settings: Any) -> Topic:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        return Topic(f"bench-{name}", max(4_000, int(rows * share)), value_bytes, named)

    large = {"batch_size": 1_000_000, "batch_num_messages": 100_000}
    return {
        "100": of("100", 5_000_000, 100, linger_ms=100, batch_size=150_000, batch_num_messages=100_000),
        "1k": of("1k", 1_000_000, 1_000, linger_ms=200, **large),
        "16k": of("16k", 1_000_000, 100, linger_ms=20, batch_size=16_384),
        "lz4": of("lz4", 1_000_000, 100, linger_ms=100, compression_type="lz4", **large),
    }


def fill(cluster: LocalCluster, topic: Topic) -> None:
    """Write the records of a topic, spread over its partitions, with keys of 8 bytes."""
    cluster.create_topic(topic.name, partitions=PARTITIONS, replication_factor=1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 1_000_000, **topic.settings}
    )
    value = bytes(range(97, 123)) * (topic.value_bytes // 26 + 1)
    for number in range(topic.rows):
        while True:
            try:
                producer.produce(
                    topic.name, value[: topic.value_bytes], b"%08d" % number, partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(120)
    assert left == 0, f"{left} records of {topic.name} were not acknowledged"


class Queries:
    """The queries of our tables and of Spark's connector on one cluster."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster) -> None:
        self._spark = spark
        self._bootstrap = cluster.bootstrap

    def reader(self, side: str, topic: str, *, is_stream: bool = False) -> Any:
        """Return a reader with the options that the two sides share."""
        reader = self._spark.readStream if is_stream else self._spark.read
        name = {OURS: "kraft", CONNECTOR: "kafka"}[side]
        return reader.format(name).option("kafka.bootstrap.servers", self._bootstrap).option("subscribe", topic)

    def batch(self, side: str, topic: Topic, schema: str | None = None) -> Callable[[], None]:
        def work() -> None:
            reader = self.reader(side, topic.name)
            drop((reader.schema(schema) if schema else reader).load())

        return work

    def stream(self, side: str, topic: Topic) -> Callable[[], None]:
        def work() -> None:
            folder = tempfile.mkdtemp(prefix="kraft-bench-")
            try:
                options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_PER_TRIGGER)}
                frame = self.reader(side, topic.name, is_stream=True).options(**options).load()
                writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
                writer.trigger(availableNow=True).start().awaitTermination()
            finally:
                shutil.rmtree(folder)

        return work

    def write(self, side: str, cluster: LocalCluster, rows: int, value_bytes: int) -> Callable[[], None]:
        """Write rows into a new topic. Creating the rows is part of the measurement, and costs both sides the same."""
        name = {OURS: "kraft", CONNECTOR: "kafka"}[side]

        def work() -> None:
            topic = f"written-{side}-{secrets.token_hex(4)}"
            cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
            frame = self._spark.range(0, rows, 1, PARTITIONS).selectExpr(
                "lpad(cast(id as string), 8, '0') as key", f"repeat('x', {value_bytes}) as value"
            )
            writer = frame.write.format(name).option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic)
            writer.mode("append").save()

        return work

    def ceiling(self, topic: Topic) -> Callable[[], None]:
        """Read prepared Arrow batches of the same shape, to measure only the cost of Spark's part of the data source
        API."""
        self._spark.dataSource.register(ReadyMade)

        def work() -> None:
            options = {"rows": str(topic.rows), "bytes": str(topic.value_bytes)}
            drop(self._spark.read.format("ready-made").options(**options).load())

        return work


def drop(frame: DataFrame) -> None:
    """Consume every row of a DataFrame and store none."""
    frame.write.format("noop").mode("overwrite").save()


def lines(spark: SparkSession, cluster: LocalCluster, share: float) -> Iterator[Line]:
    """Return every line of the benchmark. The topics must be filled."""
    queries, full = Queries(spark, cluster), topics(share)

    def both(work: Callable[..., Callable[[], None]], *arguments: Any) -> dict[str, Callable[[], None]]:
        return {side: work(side, *arguments) for side in (OURS, CONNECTOR)}

    yield Line("batch read, 100 B", full["100"].rows, both(queries.batch, full["100"]), 1.1)
    yield Line("batch read, 100 B, batches of 16 KiB", full["16k"].rows, both(queries.batch, full["16k"]), 1.1)
    yield Line("batch read, 100 B, lz4", full["lz4"].rows, both(queries.batch, full["lz4"]), 1.1)
    yield Line("batch read, 1 KB", full["1k"].rows, both(queries.batch, full["1k"]), 1.0)
    yield Line("stream read (AvailableNow), 100 B", full["100"].rows, both(queries.stream, full["100"]), 0.85)
    rows = max(4_000, int(1_000_000 * share))
    yield Line("write, 100 B", rows, both(queries.write, cluster, rows, 100), 0.7)
    yield Line("write, 1 KB", rows // 2, both(queries.write, cluster, rows // 2, 1_000), 0.7)
    yield Line(
        "batch read, 100 B, beside ready-made Arrow",
        full["100"].rows,
        {OURS: queries.batch(OURS, full["100"]), "ready-made Arrow": queries.ceiling(full["100"])},
        0.5,
    )
    yield Line(
        'schema("offset LONG"), beside all columns',
        full["100"].rows,
        {
            "offset alone": queries.batch(OURS, full["100"], "offset LONG"),
            "all columns": queries.batch(OURS, full["100"]),
        },
        1.5,
    )


class ReadyMade(DataSource):
    """Data source whose batches exist before the first one is requested."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> str:
        return (
            "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
            "timestampType INT"
        )

    def reader(self, schema: Any) -> DataSourceReader:
        return _ReadyMadeReader(int(self.options["rows"]), int(self.options["bytes"]))


class _ReadyMadeReader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int) -> None:
        self._rows, self._value_bytes = rows, value_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self._rows // PARTITIONS
        ready = _ready_made(ARROW_ROWS, self._value_bytes, partition.value)
        while left > 0:
            yield ready if left >= ARROW_ROWS else ready.slice(0, left)
            left -= ARROW_ROWS


def _ready_made(rows: int, value_bytes: int, partition: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"%08d" % number for number in range(rows)], pa.binary()),
            pa.array([bytes(value_bytes)] * rows, pa.binary()),
            pa.array(["ready-made"] * rows, pa.string()),
            pa.array([partition] * rows, pa.int32()),
            pa.array(range(rows), pa.int64()),
            pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
            pa.array([0] * rows, pa.int32()),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
    )
