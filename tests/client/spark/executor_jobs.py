"""Queries of the tests of executors, run as `python -m` in a process of their own, which prints their result as JSON.

count MASTER BOOTSTRAP TOPIC                 how many records each executor process reads
ship MASTER BOOTSTRAP TOPIC ZIP              first the error of the same query, then its result with the zip shipped
gated MASTER BOOTSTRAP TOPIC FOLDER          the same as count; each task reports its start in FOLDER, and waits there
                                             after its first rows until the file `go` exists
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from kraft.client import spark as kraft_spark
from tests.client.spark.sessions import QUICK_JVM, session_running

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executorEnv.ON_EXECUTOR": "yes",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
}
GATE_SECONDS_MAX = 100

Summarize = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def summarize(folder: str | None) -> Summarize:
    """A row for each batch of a task: which process of an executor's JVM runs it, and the partition and offsets in it.
    With `folder` the task reports its start there, and waits there after its first batch."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psutil
        import pyarrow

        schema = pyarrow.schema(
            {"executor": pyarrow.int32(), "partition": pyarrow.int32(), "offsets": pyarrow.list_(pyarrow.int64())}
        )
        executor = psutil.Process(os.getppid()).ppid()  # a worker is a child of the daemon that the JVM has started
        for batch in batches:
            partition, offsets = batch.column("partition")[0].as_py(), batch.column("offset").to_pylist()
            row = {"executor": executor, "partition": partition, "offsets": offsets}
            yield pyarrow.RecordBatch.from_pylist([row], schema)
            if folder is not None:
                _wait_at_gate(Path(folder), f"started-{partition}-{executor}")

    def _wait_at_gate(gate: Path, name: str) -> None:
        (gate / name).touch()
        deadline = time.monotonic() + GATE_SECONDS_MAX
        while not (gate / "go").exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the file {gate / 'go'} was not written")
            time.sleep(0.05)

    return work


def read(spark: SparkSession, bootstrap: str, topic: str, folder: str | None = None) -> list[dict[str, Any]]:
    """The rows of `summarize` for all records of the topic."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "arrowRows": "200"}
    frame = spark.read.format("kraft").options(**options).load()
    schema = "executor INT, partition INT, offsets ARRAY<BIGINT>"
    return [
        row.asDict()
        for row in frame.select("partition", "offset", "value").mapInArrow(summarize(folder), schema).collect()
    ]


def main(job: str, master: str, bootstrap: str, topic: str, *rest: str) -> None:
    retries = {"spark.task.maxFailures": "1"} if job == "ship" else {}
    with session_running(master, SETTINGS | retries) as spark:
        result: dict[str, Any] = {}
        if job == "ship":
            try:
                read(spark, bootstrap, topic)
            except PySparkException as failure:
                result["error"] = str(failure)
            spark.sparkContext.addPyFile(rest[0])
            kraft_spark.register(spark)  # a format has the files that were shipped before it was registered
        result["rows"] = read(spark, bootstrap, topic, rest[0] if job == "gated" else None)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
