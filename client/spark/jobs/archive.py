"""Archive: copy topics into Parquet files by topic, date and partition, each record exactly once.

    from kraft.client.spark.jobs import archive
    archive.run(spark, {"bootstrap": "localhost:9092"}, topics="orders", path="/data/archive", available_now=True)
    spark.read.parquet("/data/archive").where("topic = 'orders' AND date = '2026-11-21'")

Two logs together ensure that each record is in the archive once. The checkpoint has the offsets of each micro-batch
before it is processed. The file sink's own log (PATH/_spark_metadata) has the files of each complete micro-batch. A
micro-batch that is repeated after a crash reads the same offsets. Files of an incomplete attempt are in no log, and
Spark does not read them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

FOLDERS = ("topic", "date", "partition")
"""Columns whose values become folder names: a query that filters on these columns opens only the matching files."""


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
    """Start the streaming query. With `available_now` it ends after archiving the present records. `per_trigger`:
    maximum records per micro-batch."""
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
    """Add the column `date` to the records, in the session's time zone; NULL for a record without a timestamp."""
    return records.withColumn("date", sf.to_date("timestamp"))
