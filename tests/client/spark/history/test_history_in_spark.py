"""Tests of metadata-log tables in a Spark session: time travel, differences, and events as a table and as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraft.client.spark.settings import When
from kraft.client.spark.tables import TABLES, table_of
from tests.client.spark.history.history_logs import read_history
from tests.client.spark.state.state_requests import read_table
from tests.client.spark.topic_records import create_topic
from tests.stages.started_clusters import LocalCluster, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.interop

PAST = [name for name, table in TABLES.items() if table.has_time_travel]
SECONDS_MAX = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One node with both roles, broker and controller, and a topic."""
    with running(combined=1) as started:
        create_topic(started.bootstrap, "orders", partitions=3, replication_factor=1)
        yield started


def load(spark: SparkSession, table: str, options: dict[str, Any]) -> DataFrame:
    return spark.read.format("kraft").options(table=table, **options).load()


def plain(value: Any) -> Any:
    """Convert Spark's values to those of rows that were read without Spark."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list):
        return [tuple(one) if isinstance(one, tuple) else one for one in value]
    return value


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.asDict().items()} for row in frame.collect()]


@pytest.mark.parametrize("table", PAST)
def test_table_as_of_the_past_has_the_same_rows_in_spark_and_without_spark(
    spark: SparkSession, cluster: LocalCluster, table: str
) -> None:
    end = read_table(cluster.bootstrap, "metadata_events", "offset")[-1]["offset"]
    expected = read_table(cluster.bootstrap, table, *table_of(table).column_names, as_of=When(offset=end))
    over_network = {"kafka.bootstrap.servers": cluster.bootstrap, "asOfOffset": end}
    assert collected(load(spark, table, over_network)) == expected
    assert collected(load(spark, table, {"folder": str(cluster.folder), "asOfOffset": end})) == expected
    assert expected


def test_metadata_events_and_diff_have_the_same_rows_in_spark_and_without_spark(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    link = {"kafka.bootstrap.servers": cluster.bootstrap}
    rows = collected(load(spark, "metadata_events", link))
    assert rows == read_history(cluster.folder, "metadata_events")[: len(rows)]
    created = load(spark, "metadata_events", link).where("type = 'Topic' and topic = 'orders'")
    (offset,) = [row["offset"] for row in created.collect()]
    assert load(spark, "metadata_events", link).where(f"offset = {offset}").count() == 1
    diff = load(spark, "metadata_diff", {**link, "fromOffset": offset, "toOffset": offset + 3})
    assert {(row["kind"], row["key"]) for row in diff.collect()} >= {("topic", "orders"), ("partition", "orders-0")}


def test_query_of_an_unavailable_metadata_point_fails_and_names_the_oldest_point(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    with pytest.raises(Exception, match=r"no offset 99999999 yet: the metadata log ends at offset \d+"):
        load(spark, "topics", {"kafka.bootstrap.servers": cluster.bootstrap, "asOfOffset": 99999999}).collect()


def test_metadata_events_stream_reads_each_event_once_across_several_runs_with_a_batch_limit(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    batches: list[list[int]] = []

    def run(name: str) -> None:
        events = (
            spark.readStream.format("kraft")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("table", "metadata_events")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 6)
            .load()
        )
        out = tmp_path / "events"
        query = (
            events.writeStream.format("json")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        try:
            assert query.awaitTermination(SECONDS_MAX), f"the {name} run did not end"
        finally:
            query.stop()
        limits = [progress.sources[0] for progress in query.recentProgress]
        batches.append([source.numInputRows for source in limits])

    run("first")
    create_topic(cluster.bootstrap, "later", partitions=2, replication_factor=1)
    run("second")
    found = [
        tuple(row) for row in spark.read.json(str(tmp_path / "events")).select("offset", "type", "topic").collect()
    ]
    known = read_table(cluster.bootstrap, "metadata_events", "offset", "type", "topic")
    expected = [tuple(row.values()) for row in known]
    assert sorted(found, key=lambda row: row[0]) == expected[: len(found)]
    assert any(row[1:] == ("Partition", "later") for row in found)
    assert all(0 <= count <= 6 for run_batches in batches for count in run_batches)
    assert len(batches[0]) > 1
