"""Replay: write the records of an archive to a topic again, with their keys, headers, partitions and order.

    from kraft.client.spark.jobs import replay
    replay.run(spark, {"bootstrap": "localhost:9092"}, path="/data/archive", target="orders-again",
               where="topic = 'orders' AND date = '2026-11-21'", shift="now", speed=10)

Each partition of the archive is written by one task, sorted by offset. The target topic needs at least as many
partitions. A replay that is interrupted and run again starts from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

PARTITION = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a replay: the number of records written, and the number of steps in which they were written."""

    records: int
    steps: int


def run(
    spark: SparkSession,
    cluster: Mapping[str, str],
    *,
    path: str,
    target: str | None = None,
    where: str | None = None,
    shift: str | None = None,
    speed: float | None = None,
    step: float = 5.0,
) -> Replayed:
    """Write all archived records that `where` selects to the topic `target`, or without it to the topics that they came
    from. `speed` None: as fast as possible, otherwise in steps of `step` seconds."""
    archived = spark.read.parquet(path)
    records = shifted(archived if where is None else archived.where(where), shift, time.time())
    if speed is None:
        _write(ordered(records), cluster, target)
        return Replayed(records.count(), 1)
    paced = with_due_step(records, speed, step).cache()
    try:
        return _write_paced(paced, cluster, target, step)
    finally:
        paced.unpersist()


def shifted(records: DataFrame, shift: str | None, now_s: float) -> DataFrame:
    """Return the records with shifted timestamps. `shift` is an interval such as "1 day", or "now", which moves the
    first record to `now_s` (seconds since 1970)."""
    if shift is None:
        return records
    if shift != "now":
        return records.withColumn("timestamp", sf.col("timestamp") + sf.expr(f"INTERVAL {shift}"))
    first = records.agg(sf.min("timestamp").alias("first"))
    moved = sf.timestamp_micros((sf.unix_micros("timestamp") - sf.unix_micros("first") + int(now_s * 1e6)).cast("long"))
    return records.crossJoin(first).withColumn("timestamp", moved).drop("first")


def ordered(records: DataFrame) -> DataFrame:
    """Partition and sort the records so that one task writes all records of a partition, in offset order."""
    return records.repartition(*PARTITION).sortWithinPartitions(*PARTITION, "offset")


def with_due_step(records: DataFrame, speed: float, step: float) -> DataFrame:
    """Add `due_step`, the number of the step in which each record is written. It never decreases within a partition,
    even if a record's timestamp is before that of the preceding record."""
    so_far = Window.partitionBy(*PARTITION).orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    due = records.withColumn("due", sf.max("timestamp").over(so_far))
    first = due.agg(sf.min("due").alias("first"))
    seconds = (sf.unix_micros("due") - sf.unix_micros("first")) / 1e6 / speed
    number = sf.coalesce(sf.floor(seconds / step), sf.lit(0)).alias("due_step")
    return due.crossJoin(first).select(*records.columns, number)


def _write_paced(paced: DataFrame, cluster: Mapping[str, str], target: str | None, step: float) -> Replayed:
    counts = {row.due_step: row["count"] for row in paced.groupBy("due_step").count().collect()}
    for number in due_in_time(sorted(counts), step, time.monotonic, time.sleep):
        _write(ordered(paced.where(sf.col("due_step") == number).drop("due_step")), cluster, target)
    return Replayed(sum(counts.values()), len(counts))


def due_in_time(
    numbers: list[int], step: float, now: Callable[[], float], pause: Callable[[float], None]
) -> Iterator[int]:
    """Yield each number once `number * step` seconds have passed since the first call. If that time has passed already,
    yield the number at once."""
    began = now()
    for number in numbers:
        pause(max(0.0, began + number * step - now()))
        yield number


def _write(records: DataFrame, cluster: Mapping[str, str], target: str | None) -> None:
    chosen = records if target is None else records.withColumn("topic", sf.lit(target))
    writer = chosen.select("topic", "partition", "key", "value", "headers", "timestamp").write.format("kraft")
    writer.options(**cluster).option("includeHeaders", "true").mode("append").save()
