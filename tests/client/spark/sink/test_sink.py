"""Tests of the sink in Spark: written batches and streams, rejected writes, and duplicates with and without
transactions.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraft.client.spark.sink.marks import parse_mark
from kraft.sim.chaos.hosts.leash import leashed
from tests.client.spark.executors import ROOT, RUN_MODULE, Job, kill_tree
from tests.client.spark.sink.sink_jobs import SINKS, start
from tests.client.spark.topic_records import create_topic, read_records
from tests.stages.started_clusters import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

HELD_SECONDS_MAX = 150
LINES = [f"line-{number}" for number in range(40)]


def options(bootstrap: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, **more}


# writing


def test_sink_writes_a_dataframe_with_all_sink_columns(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=2)
    when = datetime(2024, 2, 3, 4, 5, 6, 7_000, tzinfo=UTC)
    schema = (
        "key STRING, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, partition INT, "
        "timestamp TIMESTAMP, ignored INT"
    )
    rows = [
        ("k", b"v", [("h", b"1"), ("h", None)], topic, 1, when, 1),
        (None, None, None, topic, 0, None, 2),
    ]
    frame = spark.createDataFrame(rows, schema)
    frame.write.format("kraft").options(**options(cluster.bootstrap)).mode("append").save()
    empty, full = read_records(cluster.bootstrap, topic)
    assert (full.partition, full.key, full.value, full.headers) == (1, b"k", b"v", (("h", b"1"), ("h", None)))
    assert full.timestamp_ms == int(when.timestamp() * 1000)
    assert (empty.partition, empty.key, empty.value, empty.headers) == (0, None, None, ())
    assert abs(empty.timestamp_ms - time.time() * 1000) < 600_000


def test_sink_writes_many_text_rows_once_to_the_partitions_of_their_keys(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=3)
    frame = spark.range(0, 30_000, 1, 2).selectExpr("CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value")
    writer = frame.write.format("kraft").options(**options(cluster.bootstrap, topic=topic, markRecords="true"))
    writer.mode("append").save()
    found = read_records(cluster.bootstrap, topic)
    assert sorted(int(record.value or b"") for record in found) == list(range(30_000))
    assert len({(record.key, record.partition) for record in found}) == 7
    marks = [parse_mark(dict(record.headers)["spark"] or b"") for record in found]
    assert len(set(marks)) == 30_000
    assert {(mark.query_id, mark.batch_id) for mark in marks} == {(marks[0].query_id, 0)}
    assert {mark.partition for mark in marks} == {0, 1}


# rejected writes


@pytest.mark.parametrize(
    ("columns", "more", "text"),
    [
        (["'v' AS val"], {"topic": "t"}, "no column `value`"),
        (["id AS value"], {"topic": "t"}, "column `value` is BIGINT, expected STRING or BINARY"),
        (["'v' AS value"], {}, "set the option `topic`, or add a column `topic`"),
        (["'v' AS value"], {"topic": "t", "transactionalIdPrefix": "p"}, "transactionalIdPrefix is for streams"),
        (["'v' AS value"], {"topic": "t", "markRecord": "true"}, "markRecords"),
    ],
)
def test_sink_rejects_an_invalid_dataframe_before_writing_a_row(
    spark: SparkSession, columns: list[str], more: dict[str, str], text: str
) -> None:
    frame = spark.range(1).selectExpr(*columns)
    with pytest.raises(Exception, match=text):
        frame.write.format("kraft").options(**options("127.0.0.1:1", **more)).mode("append").save()


def test_sink_rejects_overwrite_mode(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("'v' AS value")
    with pytest.raises(Exception, match="cannot be overwritten"):
        frame.write.format("kraft").options(**options("127.0.0.1:1", topic="t")).mode("overwrite").save()


def test_sink_error_for_a_row_with_an_unknown_partition_names_the_row(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=2)
    frame = spark.range(0, 3, 1, 1).selectExpr("'v' AS value", "CAST(id AS INT) AS partition")
    with pytest.raises(Exception, match=rf"row 2 names partition 2 of topic {topic}"):
        frame.write.format("kraft").options(**options(cluster.bootstrap, topic=topic)).mode("append").save()


# duplicates


def write_lines(folder: Path) -> None:
    """Write the lines into two files, so that Spark reads them in two partitions."""
    (folder / "lines").mkdir()
    for part in (0, 1):
        (folder / "lines" / f"{part}.txt").write_text("".join(f"{line}\n" for line in LINES[part::2]))


def topics_of(bootstrap: str) -> str:
    """Create a topic for each sink, named SINK-RUN, and return RUN."""
    run = secrets.token_hex(4)
    for sink in SINKS:
        create_topic(bootstrap, f"{sink}-{run}", partitions=2)
    return run


@contextmanager
def job_running(folder: Path, job: str, bootstrap: str, run: str) -> Iterator[Job]:
    command = [
        sys.executable,
        "-c",
        RUN_MODULE,
        str(ROOT),
        "tests.client.spark.sink.sink_jobs",
        job,
        bootstrap,
        str(folder),
        run,
    ]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    messages = folder / "messages"
    with (
        messages.open("w+") as out,
        leashed(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=out, text=True) as process,
    ):
        yield Job(process, messages)


def times_of_each_line(bootstrap: str, topic: str) -> set[int]:
    """Return how often each line is in the topic, as a read_committed consumer sees it: one number if it is equal for
    all lines."""
    records = read_records(bootstrap, topic, isolation="read_committed")
    found = Counter((record.value or b"").decode() for record in records)
    assert set(found) == set(LINES)
    return set(found.values())


def test_failed_tasks_duplicate_written_rows_except_with_transactions(apache_kafka: str, tmp_path: Path) -> None:
    write_lines(tmp_path)
    run = topics_of(apache_kafka)
    with job_running(tmp_path, "fail", apache_kafka, run) as job:
        without_duplicates = job.result()
    assert times_of_each_line(apache_kafka, f"plain-{run}") == {2}
    assert times_of_each_line(apache_kafka, f"marked-{run}") == {2}
    assert without_duplicates == sorted(LINES)
    assert times_of_each_line(apache_kafka, f"exact-{run}") == {1}


def test_driver_killed_between_write_and_commit_duplicates_rows_except_with_transactions(
    spark: SparkSession, apache_kafka: str, tmp_path: Path
) -> None:
    from kraft.client.spark.sink.marks import without_duplicates

    write_lines(tmp_path)
    run = topics_of(apache_kafka)
    with job_running(tmp_path, "hold", apache_kafka, run) as job:
        deadline = time.monotonic() + HELD_SECONDS_MAX
        while not all((tmp_path / f"held-{sink}-{run}").exists() for sink in SINKS):
            job.require_sound()
            assert time.monotonic() < deadline, job.messages.read_text()[-5_000:]
            time.sleep(0.1)
        kill_tree(job.process)
    for sink in SINKS:
        assert times_of_each_line(apache_kafka, f"{sink}-{run}") == {1}
        assert not list((tmp_path / sink / "commits").glob("[0-9]*"))
        start(spark, "kraft", apache_kafka, tmp_path, f"{sink}-{run}", sink).awaitTermination()
        assert list((tmp_path / sink / "commits").glob("[0-9]*"))
    assert times_of_each_line(apache_kafka, f"plain-{run}") == {2}
    assert times_of_each_line(apache_kafka, f"exact-{run}") == {1}
    read = options(apache_kafka, subscribe=f"marked-{run}", includeHeaders="true")
    frame = without_duplicates(spark.read.format("kraft").options(**read).load()).selectExpr("CAST(value AS STRING)")
    assert times_of_each_line(apache_kafka, f"marked-{run}") == {2}
    assert sorted(row[0] for row in frame.collect()) == sorted(LINES)
