"""Windowed aggregation: count and sum a topic's records by time and key, into another topic.

    from kraft.client.spark.jobs import windowed_aggregation
    query = windowed_aggregation.run(
        spark, {"bootstrap": "localhost:9092"}, source="orders", target="orders-per-minute", checkpoint="/data/opm",
        total="get_json_object(CAST(value AS STRING), '$.amount')")

A window is written once, when the watermark has passed its end, so no more records can count. Each result is a record.
Its key is the key of the counted records. Its value is a JSON object with `window_start`, `window_end`, `key`, `count`
and `total`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery


def run(
    spark: SparkSession,
    cluster: Mapping[str, str],
    *,
    source: str,
    target: str,
    checkpoint: str,
    window: str = "1 minute",
    slide: str | None = None,
    watermark: str = "10 seconds",
    by: str = "CAST(key AS STRING)",
    total: str | None = None,
    prefix: str | None = None,
    available_now: bool = False,
) -> StreamingQuery:
    """Start the streaming query. With `available_now` it ends after processing the present records."""
    records = (
        spark.readStream.format("kraft")
        .options(**cluster)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    results = aggregate(records, window=window, slide=slide, watermark=watermark, by=by, total=total)
    once = {} if prefix is None else {"transactionalIdPrefix": prefix}
    writer = as_records(results).writeStream.format("kraft").options(**cluster, **once).option("topic", target)
    writer = writer.option("checkpointLocation", checkpoint).queryName(f"windowed aggregation of {source}")
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.outputMode("append").start()


def aggregate(
    records: DataFrame,
    *,
    window: str,
    slide: str | None = None,
    watermark: str = "10 seconds",
    by: str = "CAST(key AS STRING)",
    total: str | None = None,
) -> DataFrame:
    """Return a row per window and key: `window_start`, `window_end`, `key`, `count`, `total` (NULL without `total`)."""
    return (
        records.withWatermark("timestamp", watermark)
        .groupBy(sf.window("timestamp", window, slide or window), sf.expr(by).alias("key"))
        .agg(sf.count("*").alias("count"), sf.sum(sf.expr(total or "CAST(NULL AS DOUBLE)")).alias("total"))
        .select(
            sf.col("window.start").alias("window_start"),
            sf.col("window.end").alias("window_end"),
            "key",
            "count",
            "total",
        )
    )


def as_records(results: DataFrame) -> DataFrame:
    """Convert the results to columns `key` and `value` for a topic. Results with the same key go to the
    same partition."""
    return results.select(sf.col("key").cast("string").alias("key"), sf.to_json(sf.struct("*")).alias("value"))
