"""Streaming queries for the tests of the sink, run in a separate process: one session repeats tasks, one is killed.

fail BOOTSTRAP FOLDER RUN   each task fails once after it has written; prints the values of the topic `marked-RUN`
                            without duplicates, as JSON
hold BOOTSTRAP FOLDER RUN   each query waits between the sink's write and its commit until this process is killed; the
                            file held-TOPIC in FOLDER shows that the query is waiting
FOLDER has the folder `lines` with the rows, one per line, and gets a folder with the checkpoint of each query.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kraft.client.spark.options import parse_write
from kraft.client.spark.sink.marks import without_duplicates
from kraft.client.spark.sink.writer import TopicStreamWriter
from kraft.client.spark.source import KraftDataSource
from tests.client.spark.sessions import session_running

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SINKS = {
    "plain": {},
    "marked": {"markRecords": "true"},
    "exact": {"transactionalIdPrefix": "sink"},
}
"""Topic → the options of the query that writes to it."""
HELD_SECONDS_MAX = 100
FOLDER_VARIABLE = "SINK_JOB_FOLDER"


class FailingWriter(TopicStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0:
            raise RuntimeError("this attempt fails after it has written")
        return message


class HeldWriter(TopicStreamWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        (Path(os.environ[FOLDER_VARIABLE]) / f"held-{self._settings.topic}").touch()
        time.sleep(HELD_SECONDS_MAX)
        raise TimeoutError("nobody has killed this query")


class FailingSource(KraftDataSource):
    @classmethod
    def name(cls) -> str:
        return "kraft-failing"

    def streamWriter(self, schema: Any, overwrite: bool) -> TopicStreamWriter:
        return FailingWriter(parse_write(self.options), schema)


class HeldSource(KraftDataSource):
    @classmethod
    def name(cls) -> str:
        return "kraft-held"

    def streamWriter(self, schema: Any, overwrite: bool) -> TopicStreamWriter:
        return HeldWriter(parse_write(self.options), schema)


def start(spark: SparkSession, kind: str, bootstrap: str, folder: Path, topic: str, sink: str) -> StreamingQuery:
    """Start the query that writes the lines to this topic. It runs once, over the available lines."""
    return (
        spark.readStream.text(str(folder / "lines"))
        .writeStream.format(kind)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .options(**SINKS[sink])
        .option("checkpointLocation", str(folder / sink))
        .trigger(availableNow=True)
        .start()
    )


def fail(spark: SparkSession, bootstrap: str, folder: Path, run: str) -> list[str]:
    spark.dataSource.register(FailingSource)
    for query in [start(spark, "kraft-failing", bootstrap, folder, f"{sink}-{run}", sink) for sink in SINKS]:
        query.awaitTermination()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": f"marked-{run}", "includeHeaders": "true"}
    frame = without_duplicates(spark.read.format("kraft").options(**options).load())
    return sorted(row[0] for row in frame.selectExpr("CAST(value AS STRING)").collect())


def hold(spark: SparkSession, bootstrap: str, folder: Path, run: str) -> None:
    spark.dataSource.register(HeldSource)
    for query in [start(spark, "kraft-held", bootstrap, folder, f"{sink}-{run}", sink) for sink in SINKS]:
        query.awaitTermination()


def main(job: str, bootstrap: str, folder: str, run: str) -> None:
    os.environ[FOLDER_VARIABLE] = folder
    with session_running("local[2,2]") as spark:
        if job == "hold":
            hold(spark, bootstrap, Path(folder), run)
        else:
            print(json.dumps(fail(spark, bootstrap, Path(folder), run)))


if __name__ == "__main__":
    main(*sys.argv[1:])
