"""Archive: copy topics into Parquet files by topic, date and partition, each record exactly once.

    from kraft.client.spark.jobs import archive
    archive.run(spark, {"bootstrap": "localhost:9092"}, topics="orders", path="/data/archive", available_now=True)
    spark.read.parquet("/data/archive").where("topic = 'orders' AND date = '2026-11-21'")

Exactly once, because two logs agree: the checkpoint holds the offsets of each step before it is carried out, and the
file sink's own log (PATH/_spark_metadata) holds the files of each step that is complete. A step that is repeated after
a crash reads the same offsets; files of the broken attempt are in no log, and Spark does not read them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

FOLDERS = ("topic", "date", "partition")
"""Columns whose values are names of folders: a query that filters on them opens only these files."""


def run(
    spark: SparkSession,
    cluster: Mapping[str, str],
    *,
    topics: str,
    path: str,
    per_trigger: int = 1_000_000,
    checkpoint: str | None = None,
    available_now: bool = False,
) -> StreamingQuery:
    """Start the query. With `available_now` it ends when it has archived what is there. `per_trigger` in records."""
    records = (
        spark.readStream.format("kraft")
        .options(**cluster)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(per_trigger))
        .load()
    )
    writer = with_date(records).writeStream.format("parquet").partitionBy(*FOLDERS).queryName(f"archive of {topics}")
    writer = writer.option("path", path).option("checkpointLocation", checkpoint or f"{path}/_checkpoint")
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def with_date(records: DataFrame) -> DataFrame:
    """The records with their `date`, in the session's time zone; NULL for a record without a time."""
    return records.withColumn("date", sf.to_date("timestamp"))
