"""Queries for the tests of executors, run as `python -m` in a separate process, which prints the result as JSON.

count MASTER BOOTSTRAP TOPIC                 return how many records each executor process has read
ship MASTER BOOTSTRAP TOPIC ZIP              return the error of `count` without pykraft on executors, then its result
                                             with the zip shipped to them
gated MASTER BOOTSTRAP TOPIC FOLDER          like `count`, but each task reports its start in FOLDER, and waits after
                                             its first rows until the file `go` exists there
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
    """Yield a row for each Arrow batch of a task: the process id of its executor's JVM, and the batch's partition and
    offsets. With `folder`, the task reports its start in that folder, and waits after its first batch."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psutil
        import pyarrow

        schema = pyarrow.schema(
            {"executor": pyarrow.int32(), "partition": pyarrow.int32(), "offsets": pyarrow.list_(pyarrow.int64())}
        )
        # a Python worker is a child of the daemon that the executor's JVM has started
        executor = psutil.Process(os.getppid()).ppid()
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
    """Return the rows of `summarize` for all records of the topic."""
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
            # a data source has only the files that were shipped before the data source was registered
            kraft_spark.register(spark)
        result["rows"] = read(spark, bootstrap, topic, rest[0] if job == "gated" else None)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
