"""Tests of topics read as batches through Spark: selected columns, filters with and without pushdown, and errors as a
user sees them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.client.spark.topic_records import create_topic, numbered, read_records, write_records
from tests.stages.started_clusters import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from tests.client.spark.conftest import WithSettings

pytestmark = pytest.mark.interop

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PARTITIONS = 3
COUNT = 600
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled(cluster: LocalCluster) -> str:
    """A topic of 3 partitions with 200 records each; records are a millisecond apart."""
    topic = "filled"
    create_topic(cluster.bootstrap, topic, partitions=PARTITIONS)
    records = numbered(COUNT, partitions=PARTITIONS, timestamp_ms=FIRST_MS)
    write_records(cluster.bootstrap, topic, records, batch_num_messages=20)
    return topic


def load(spark: SparkSession, cluster: LocalCluster, topic: str, schema: str | None = None, **more: str) -> DataFrame:
    reader = spark.read.format("kraft").option("kafka.bootstrap.servers", cluster.bootstrap).options(**more)
    return (reader if schema is None else reader.schema(schema)).option("subscribe", topic).load()


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect())


def random_condition(draw: random.Random) -> str:
    """Return a random SQL condition on columns whose filters are pushed down, and on other columns."""
    moment = FIRST_MS + draw.randrange(-10, COUNT + 10)
    singles = [
        f"offset {draw.choice(['<', '<=', '>', '>=', '=', '!=', '<=>'])} {draw.randrange(-5, 210)}",
        f"offset BETWEEN {draw.randrange(100)} AND {draw.randrange(100, 200)}",
        f"offset IN ({draw.randrange(200)}, {draw.randrange(200)}, NULL)",
        f"partition {draw.choice(['=', '>', '<', '!='])} {draw.randrange(4)}",
        f"partition IN ({draw.randrange(4)}, {draw.randrange(4)})",
        f"topic {draw.choice(['=', '!=', '<=', 'LIKE'])} '{draw.choice(['filled', 'fill%', 'other'])}'",
        f"timestamp {draw.choice(['<', '<=', '>', '>=', '='])} timestamp_millis({moment})",
        f"key = encode('key-{draw.randrange(12)}', 'utf-8')",
        f"offset % 7 = {draw.randrange(7)}",
        "offset IS NULL",
        "timestamp IS NOT NULL",
        f"(offset < {draw.randrange(200)} OR partition = {draw.randrange(3)})",
        f"NOT (offset < {draw.randrange(200)})",
    ]
    return " AND ".join(draw.sample(singles, draw.randint(1, 3)))


def test_topic_batch_in_spark_has_the_columns_and_rows_of_the_topic(
    spark: SparkSession, cluster: LocalCluster, filled: str
) -> None:
    frame = load(spark, cluster, filled)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    found = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    stored = read_records(cluster.bootstrap, filled)
    assert [(row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in found] == [
        (one.partition, one.offset, one.key, one.value) for one in stored
    ]
    assert [round(row.timestamp.timestamp() * 1000) for row in found] == [one.timestamp_ms for one in stored]


def test_schema_or_option_columns_selects_topic_columns_in_any_order(
    spark: SparkSession, cluster: LocalCluster, filled: str
) -> None:
    by_schema = load(spark, cluster, filled, schema="offset BIGINT, partition INT")
    by_option = load(spark, cluster, filled, columns="offset,partition")
    assert by_schema.columns == by_option.columns == ["offset", "partition"]
    assert rows(by_schema) == rows(by_option) == [(offset, index) for offset in range(200) for index in range(3)]


def test_random_filters_give_the_same_rows_with_and_without_pushdown(
    spark: SparkSession, with_settings: WithSettings, cluster: LocalCluster, filled: str
) -> None:
    draw = random.Random(27)
    for condition in [random_condition(draw) for _ in range(15)]:
        found = []
        for enabled in ("false", "true"):
            with with_settings({PUSHDOWN: enabled}):
                found.append(rows(load(spark, cluster, filled).where(condition).select("partition", "offset")))
        assert found[0] == found[1], condition


def test_pushed_filters_reduce_the_tasks_of_a_topic_batch(
    spark: SparkSession, with_settings: WithSettings, cluster: LocalCluster, filled: str
) -> None:
    tasks = {}
    for enabled in ("false", "true"):
        with with_settings({PUSHDOWN: enabled}):
            frame = load(spark, cluster, filled, maxRecordsPerPartition="50").where("partition = 1 AND offset >= 100")
            tasks[enabled] = frame.rdd.getNumPartitions()
    assert tasks == {"false": 12, "true": 2}


def test_topic_batch_with_a_filter_that_no_record_satisfies_is_empty(
    spark: SparkSession, with_settings: WithSettings, cluster: LocalCluster, filled: str
) -> None:
    with with_settings({PUSHDOWN: "true"}):
        assert load(spark, cluster, filled).where("partition = 17").count() == 0


def test_topic_batch_in_spark_error_for_a_missing_topic_names_the_topic(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="topic no-such-topic: it does not exist: create it"):
        load(spark, cluster, "no-such-topic").count()
