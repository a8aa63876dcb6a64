"""Tests of tables read by Spark, of pykraft and of Apache Kafka: the declared schemas, and the same rows as without
Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kraft.client.spark.tables import TABLES, ColumnSource, schema_ddl
from tests.client.spark.exporters import exporter
from tests.client.spark.state.state_requests import read_table, with_admin
from tests.client.spark.topic_records import create_topic, numbered, write_records
from tests.stages.started_clusters import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.interop

NOT_SERVED = ("quotas", "scram_users")
MOVING = {"as_of", "as_of_offset", "last_fetch", "last_caught_up", "log_end_offset", "high_watermark", "lag"} | {
    "usable_bytes",
    "size_bytes",
    "age_ms",
    "open_ms",
    "epoch",
}
"""Columns that are not compared, because their values may change between two requests or come from the metadata log."""


@pytest.fixture(scope="module")
def bootstrap(cluster: LocalCluster) -> str:
    """Bootstrap address of a cluster with a topic, and with a group that has committed for it."""
    create_topic(cluster.bootstrap, "orders", partitions=3, replication_factor=2)
    write_records(cluster.bootstrap, "orders", numbered(30, partitions=3))
    with_admin(cluster.bootstrap, lambda admin: admin.groups.alter_offsets("billing", {("orders", 0): 4}))
    return cluster.bootstrap


def frame(spark: SparkSession, bootstrap: str, table: str, **options: object) -> DataFrame:
    reader = spark.read.format("kraft").option("kafka.bootstrap.servers", bootstrap).option("table", table)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def rows(found: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in found.collect()]


def plain(value: Any, names: list[str] | None = None) -> Any:
    """Convert a value of a table's row to the form in which Spark returns it: structs as dicts, times in local time
    without a zone."""
    if isinstance(value, datetime):
        return value.astimezone().replace(tzinfo=None)
    return [dict(zip(names, one, strict=True)) for one in value] if names and value is not None else value


STRUCTS = {
    ("configs", "synonyms"): ["name", "value", "source"],
    ("controllers", "endpoints"): ["name", "host", "port", "security_protocol"],
    ("group_members", "assigned"): ["topic", "partition"],
    ("group_members", "target"): ["topic", "partition"],
    ("transactions", "partitions"): ["topic", "partition"],
}
OF_ADMIN = [name for name in TABLES if name not in ("metadata_events", "metadata_diff", "metrics", "offset_commits")]


def same_rows(spark: SparkSession, bootstrap: str, table: str) -> list[dict[str, Any]]:
    """Read a table by Spark, compare the rows with those read without Spark, except for changing columns, and return
    them."""
    found = rows(frame(spark, bootstrap, table))
    expected = read_table(bootstrap, table)
    names = [
        column.name
        for column in TABLES[table].columns
        if column.source is ColumnSource.PROTOCOL and column.name not in MOVING and not column.is_live
    ]
    by_spark = [{name: row[name] for name in names} for row in found]
    without = [{name: plain(row[name], STRUCTS.get((table, name))) for name in names} for row in expected]
    assert sorted(map(repr, by_spark)) == sorted(map(repr, without))
    return found


@pytest.mark.parametrize("table", [name for name in OF_ADMIN if name not in (*NOT_SERVED, "acls")])
def test_table_in_spark_has_its_declared_schema_and_the_rows_of_the_admin_client(
    spark: SparkSession, bootstrap: str, table: str
) -> None:
    found = frame(spark, bootstrap, table)
    assert found.schema == spark.createDataFrame([], schema_ddl(table)).schema
    same = same_rows(spark, bootstrap, table)
    assert same or table in ("group_members", "transactions")
    assert all(row["as_of"] is not None for row in same)


@pytest.mark.parametrize("table", NOT_SERVED)
def test_query_in_spark_of_a_table_that_brokers_do_not_support_fails_before_the_first_row(
    spark: SparkSession, bootstrap: str, table: str
) -> None:
    with pytest.raises(Exception, match=f"table {table} needs .* brokers of pykraft do not serve it yet"):
        frame(spark, bootstrap, table).collect()


def test_table_in_spark_has_metadata_log_columns_and_the_offset_at_which_they_were_read(
    spark: SparkSession, bootstrap: str
) -> None:
    (topic,) = rows(frame(spark, bootstrap, "topics").where("topic = 'orders'"))
    assert topic["created_offset"] < topic["as_of_offset"]
    assert topic["created"] < topic["as_of"]
    (broker,) = rows(frame(spark, bootstrap, "brokers").where("broker_id = 1"))
    assert broker["epoch"] > 0
    assert [one["port"] for one in broker["endpoints"]] == [broker["port"]]
    part = rows(frame(spark, bootstrap, "partitions").where("topic = 'orders'"))
    assert {row["recovery_state"] for row in part} == {"RECOVERED"}


def test_table_in_spark_gives_the_same_rows_with_and_without_filter_pushdown(
    spark: SparkSession, bootstrap: str, with_settings: Any
) -> None:
    def query() -> list[tuple[Any, ...]]:
        chosen = frame(spark, bootstrap, "partitions", columns="partition,topic,isr")
        assert chosen.columns == ["partition", "topic", "isr"]
        narrowed = chosen.where("topic = 'orders' AND partition > 0 AND size(isr) = 2")
        return sorted(tuple(row)[:2] for row in narrowed.collect())

    assert query() == [(1, "orders"), (2, "orders")]
    with with_settings({"spark.sql.python.filterPushdown.enabled": "false"}):
        assert query() == [(1, "orders"), (2, "orders")]
    assert rows(frame(spark, bootstrap, "partitions", columns="topic").where("topic = 'no-such-topic'")) == []
    by_user = spark.read.schema("offset BIGINT, group_id STRING").format("kraft")
    found = by_user.option("bootstrap", bootstrap).option("table", "group_offsets").load()
    assert [tuple(row) for row in found.where("group_id = 'billing'").collect()] == [(4, "billing")]


def test_table_offset_commits_has_the_commit_history_of_a_group(spark: SparkSession, bootstrap: str) -> None:
    with_admin(bootstrap, lambda admin: admin.groups.alter_offsets("history", {("orders", 1): 1}))
    with_admin(bootstrap, lambda admin: admin.groups.alter_offsets("history", {("orders", 1): 5}))
    with_admin(bootstrap, lambda admin: admin.groups.delete_offsets("history", [("orders", 1)]))
    found = frame(spark, bootstrap, "offset_commits")
    assert found.schema == spark.createDataFrame([], schema_ddl("offset_commits")).schema
    history = rows(found.where("group_id = 'history'").orderBy("log_offset"))
    assert [(row["topic"], row["partition"], row["offset"], row["is_tombstone"]) for row in history] == [
        ("orders", 1, 1, False),
        ("orders", 1, 5, False),
        ("orders", 1, None, True),
    ]
    assert all(row["committed"] is not None for row in history)


def test_offset_commits_stream_has_each_commit_once_across_a_restart(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    taken: list[tuple[str, int]] = []

    def take(batch: DataFrame, _number: int) -> None:
        found = batch.where("group_id = 'streamed'").orderBy("log_offset").collect()
        taken.extend((row["topic"], row["offset"]) for row in found)

    def run() -> None:
        reader = spark.readStream.format("kraft").option("bootstrap", bootstrap).option("table", "offset_commits")
        writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    with_admin(bootstrap, lambda admin: admin.groups.alter_offsets("streamed", {("orders", 2): 1}))
    run()
    assert taken == [("orders", 1)]
    with_admin(bootstrap, lambda admin: admin.groups.alter_offsets("streamed", {("orders", 2): 7}))
    run()
    assert taken == [("orders", 1), ("orders", 7)]


def test_table_metrics_in_spark_reads_an_exporter(spark: SparkSession) -> None:
    with exporter('# TYPE up gauge\nup{broker="7"} 1\n') as endpoint:
        found = spark.read.format("kraft").option("table", "metrics").option("metrics", endpoint).load()
        (row,) = rows(found)
    assert (row["endpoint"], row["broker_id"], row["name"], row["value"]) == (endpoint, 7, "up", 1.0)
    assert row["labels"] == {"broker": "7"}


# Apache Kafka


@pytest.fixture(scope="module")
def kafka(apache_kafka: str) -> Iterator[str]:
    """Address of Apache Kafka with a topic, a group that has committed, and a SCRAM user."""
    create_topic(apache_kafka, "tables-orders", partitions=2)
    write_records(apache_kafka, "tables-orders", numbered(20, partitions=2))
    with_admin(apache_kafka, lambda admin: admin.groups.alter_offsets("tables-billing", {("tables-orders", 0): 4}))
    admin = AdminClient({"bootstrap.servers": apache_kafka})
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("tables-alice", scram, b"do-not-show-this", b"salt-not-shown")
    admin.alter_user_scram_credentials([user])["tables-alice"].result(30)
    return apache_kafka


@pytest.mark.parametrize("table", [name for name in OF_ADMIN if name not in ("acls",)])
def test_table_of_apache_kafka_has_the_schema_of_pykraft_with_null_metadata_log_columns(
    spark: SparkSession, kafka: str, table: str
) -> None:
    found = frame(spark, kafka, table)
    assert found.schema == spark.createDataFrame([], schema_ddl(table)).schema
    of_log = [column.name for column in TABLES[table].columns if column.source is ColumnSource.LOG]
    for row in same_rows(spark, kafka, table):
        assert [row[name] for name in (*of_log, "as_of_offset")] == [None] * (len(of_log) + 1)
        assert "do-not-show-this" not in repr(row)
        assert "salt-not-shown" not in repr(row)


def test_tables_in_spark_of_apache_kafka_contain_its_scram_users_and_groups(spark: SparkSession, kafka: str) -> None:
    (user,) = rows(frame(spark, kafka, "scram_users").where("user = 'tables-alice'"))
    assert (user["mechanism"], user["iterations"]) == ("SCRAM-SHA-256", 4096)
    (offset,) = rows(frame(spark, kafka, "group_offsets").where("group_id = 'tables-billing'"))
    assert (offset["topic"], offset["offset"], offset["lag"]) == ("tables-orders", 4, 6)
    (commit,) = rows(frame(spark, kafka, "offset_commits").where("group_id = 'tables-billing'"))
    assert (commit["offset"], commit["is_tombstone"]) == (4, False)
