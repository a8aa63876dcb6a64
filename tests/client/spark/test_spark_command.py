"""Tests of the command `kraft spark`, called in the tests' session: its output, its writes and its errors."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraft.deploy.cli.app import command_line
from kraft.deploy.cli.output import CommandFailed
from tests.client.spark.topic_records import create_topic, numbered, read_records, write_records
from tests.stages.started_clusters import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

Kraft = Callable[..., str]


@pytest.fixture
def kraft(spark: SparkSession, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Kraft:
    """Run `kraft spark` with these arguments, and return its output."""

    def run(*words: str, bootstrap: str = cluster.bootstrap) -> str:
        capsys.readouterr()
        command_line("spark")(["spark", *words, "--bootstrap-server", bootstrap], standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_kraft_spark_sql_prints_tables_csv_and_json(kraft: Kraft, cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=2, replication_factor=3)
    write_records(cluster.bootstrap, topic, numbered(10, partitions=2))
    found = json.loads(
        kraft("sql", "--json", f"select partition, size(isr) as isr from partitions where topic = '{topic}' order by 1")
    )
    assert found == [{"partition": 0, "isr": 3}, {"partition": 1, "isr": 3}]
    text = kraft("sql", "--format", "csv", f"select key, value, offset from `topic_{topic}` order by value")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["key"], row["value"]) for row in rows] == [(f"key-{n}", f"value-{n}") for n in range(10)]
    table = kraft(
        "sql", "--limit", "1", f"select count(*) as records from `topic_{topic}` union all select 0"
    ).splitlines()
    assert [line.strip() for line in table] == ["RECORDS", "10"]


def test_kraft_spark_sql_with_an_as_of_option_shows_a_past_state(
    kraft: Kraft, cluster: LocalCluster, topic: str
) -> None:
    events = f"select max(offset) as offset from metadata_events where topic = '{topic}'"
    create_topic(cluster.bootstrap, topic, partitions=1)
    [last] = json.loads(kraft("sql", "--json", events))
    count = f"select count(*) as n from topics where topic = '{topic}'"
    assert json.loads(kraft("sql", "--json", "--as-of", str(last["offset"] + 1), count)) == [{"n": 1}]
    assert json.loads(kraft("sql", "--json", "--as-of", "1", count)) == [{"n": 0}]
    change = f"select distinct change from metadata_diff where topic = '{topic}'"
    assert json.loads(kraft("sql", "--json", "--from", "1", change)) == [{"change": "added"}]


def test_kraft_spark_sql_from_a_folder_needs_no_broker(kraft: Kraft, cluster: LocalCluster) -> None:
    query = "select broker_id from brokers order by 1"
    found = kraft("sql", "--json", "--folder", str(cluster.folder), query, bootstrap="127.0.0.1:1")
    assert [row["broker_id"] for row in json.loads(found)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("query", "words", "said", "code"),
    [
        ("select nothing from brokers", (), "`nothing` cannot be resolved", 2),
        ("selct 1", (), "selct", 2),
        ("select * from topics", ("--as-of", "99999999"), "99999999", 1),
    ],
)
def test_kraft_spark_sql_rejects_an_invalid_query_in_one_sentence(
    kraft: Kraft, query: str, words: tuple[str, ...], said: str, code: int
) -> None:
    with pytest.raises(CommandFailed) as failure:
        kraft("sql", query, *words)
    assert said in str(failure.value)
    assert "Traceback" not in str(failure.value)
    assert failure.value.code == code


def test_kraft_spark_sql_without_a_reachable_broker_names_the_address(kraft: Kraft) -> None:
    with pytest.raises(CommandFailed, match=r"127\.0\.0\.1:1\b") as failure:
        kraft("sql", "--timeout", "1", "select * from brokers", bootstrap="127.0.0.1:1")
    assert failure.value.code == 3


def test_kraft_spark_run_runs_pipelines_and_prints_their_results(
    kraft: Kraft, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    again = f"{topic}-again"
    for name in (topic, again):
        create_topic(cluster.bootstrap, name, partitions=2)
    write_records(cluster.bootstrap, topic, numbered(20, partitions=2))
    path = str(tmp_path / "archive")
    archived = json.loads(kraft("run", "archive", "--topics", topic, "--path", path, "--available-now", "--json"))
    assert archived["rows"] == 20
    assert "records: 20" in kraft("run", "replay", "--path", path, "--target", again)
    kept = [
        [(one.partition, one.key, one.value) for one in read_records(cluster.bootstrap, name)]
        for name in (topic, again)
    ]
    assert kept[0] == kept[1]
    report = tmp_path / "health.html"
    assert f"wrote {report}" in kraft("run", "cluster-health", "--out", str(report))
    assert report.read_text().startswith("<!doctype html>")


def test_kraft_spark_shell_has_views_of_tables_and_topics(spark: SparkSession, cluster: LocalCluster) -> None:
    from kraft.deploy.cli.spark.shell import shell_names

    names = shell_names(spark, {"bootstrap": cluster.bootstrap})
    assert names["sql"]("select count(*) from brokers").first()[0] == 3
    assert names["table"]("controllers").where("role = 'voter'").count() == 3
    assert names["read"]().option("table", "brokers").load().count() == 3


def test_kraft_spark_run_prints_the_progress_of_a_running_stream(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    from kraft.deploy.cli.spark.progress_bar import stream_note, tasks_of

    create_topic(cluster.bootstrap, topic, partitions=2)
    write_records(cluster.bootstrap, topic, numbered(20, partitions=2))
    stream = spark.readStream.format("kraft").option("bootstrap", cluster.bootstrap).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "4")
    query = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    notes = [stream_note(progress) for progress in running.recentProgress]
    assert notes[0].startswith("batch 0: 4 rows, ")
    assert notes[0].endswith(", 16 behind")
    assert "behind" not in notes[4]
    assert tasks_of(spark).total == 0
