"""Find anomalies in the histories of `kraft chaos` by joining the sent records with the received ones.

Each check is a join or a window over all runs at once. The names and definitions of the anomalies are those of
docs/chaos.md, taken from Jepsen's Kafka workload (jepsen/tests/kafka.clj). Anomalies of consumers that skip records, or
go back to earlier ones, are not checked here.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from kraft.client.spark.jobs.chaos_files import FINAL_READER

LOST, UNSEEN, MISPLACED, VANISHED = "lost write", "unseen", "misplaced", "vanished"
DUPLICATE, INCONSISTENT, UNSENT = "duplicate", "inconsistent offsets", "unsent"
ABORTED, NONMONOTONIC = "aborted read", "nonmonotonic send"
NAMES = (LOST, UNSEEN, MISPLACED, VANISHED, DUPLICATE, INCONSISTENT, UNSENT, ABORTED, NONMONOTONIC)
AT = ("run", "place")
COLUMNS = ("run", "name", "place", "value", "offset")


def find_anomalies(sent: DataFrame, read: DataFrame, operations: DataFrame, info: DataFrame) -> DataFrame:
    """Return a row per anomaly: `run`, `name`, `place` (TOPIC-PARTITION), `value`, `offset` (NULL for an anomaly
    without an offset)."""
    placed = with_offsets(sent, read)
    found = [
        inconsistent_offsets(read),
        _provable(vanished(read), read, operations),
        duplicates(placed, read),
        unsent(sent, read, info),
        aborted_reads(sent, read),
        nonmonotonic_sends(placed),
        _provable(broken_acknowledgements(placed, read), read, operations),
    ]
    return reduce(DataFrame.unionByName, (one.select(*COLUMNS) for one in found)).orderBy(*COLUMNS)


def with_offsets(sent: DataFrame, read: DataFrame) -> DataFrame:
    """Return the sends with offsets. An acknowledged send without an offset gets the first offset at which the final
    reader found its record."""
    final = read.where("is_final").groupBy(*AT, "value").agg(sf.min("offset").alias("final_offset"))
    unreported = sf.col("offset").isNull() | (sf.col("offset") < 0)
    joined = sent.join(final, [*AT, "value"], "left")
    offset = sf.when((sf.col("outcome") == "ok") & unreported, sf.col("final_offset")).otherwise(sf.col("offset"))
    is_nowhere = (sf.col("outcome") == "ok") & offset.isNull()
    return joined.select(
        *(name for name in sent.columns if name not in ("offset", "is_once")),
        sf.coalesce(offset, sf.lit(-1)).alias("offset"),
        (sf.col("is_once") & ~is_nowhere).alias("is_once"),
    )


def inconsistent_offsets(read: DataFrame) -> DataFrame:
    """Find offsets at which clients read two different values."""
    return (
        _values_at(read)
        .where("size(values) > 1")
        .select(*AT, "offset", _name(INCONSISTENT), sf.col("values")[0].alias("value"))
    )


def vanished(read: DataFrame) -> DataFrame:
    """Find records that a client read, but that the final reader does not find."""
    return (
        _values_at(read)
        .where("size(values) = 1 AND NOT in_final")
        .select(*AT, "offset", _name(VANISHED), sf.col("values")[0].alias("value"))
    )


def duplicates(placed: DataFrame, read: DataFrame) -> DataFrame:
    """Find records of an idempotent producer that occur at two offsets."""
    once = placed.where("is_once").select("run", "value").distinct()
    at = read.groupBy(*AT, "value").agg(sf.sort_array(sf.collect_set("offset")).alias("offsets"))
    return at.where("size(offsets) > 1").join(once, ["run", "value"]).select(
        *AT, "value", _name(DUPLICATE), sf.col("offsets")[1].alias("offset")
    )  # fmt: skip


def unsent(sent: DataFrame, read: DataFrame, info: DataFrame) -> DataFrame:
    """Find records that were read but that no client sent. Topics of a user's own application are excluded, because its
    sends are not recorded."""
    has_application = info.where("size(application) > 0").select("run", sf.lit(True).alias("has_application"))
    own_topics = sent.select("run", "topic").distinct().withColumn("is_own", sf.lit(True))
    at = read.groupBy(*AT, "topic", "value").agg(sf.min("offset").alias("offset"))
    unknown = at.join(sent.select("run", "value"), ["run", "value"], "left_anti")
    judged = unknown.join(has_application, "run", "left").join(own_topics, ["run", "topic"], "left")
    return judged.where("has_application IS NULL OR is_own").select(*AT, "value", "offset", _name(UNSENT))


def aborted_reads(sent: DataFrame, read: DataFrame) -> DataFrame:
    """Find records that were read although their send was reported as failed."""
    at = read.groupBy(*AT, "value").agg(sf.min("offset").alias("offset"))
    failed = sent.where("outcome = 'fail'").select(*AT, "value")
    return failed.join(at, [*AT, "value"]).select(*AT, "value", "offset", _name(ABORTED))


def nonmonotonic_sends(placed: DataFrame) -> DataFrame:
    """Find records of one producer whose order in the log differs from the order of sending."""
    before = sf.lag("offset").over(Window.partitionBy("run", "process", "place").orderBy("index"))
    acknowledged = placed.where("outcome = 'ok' AND is_once").withColumn("before", before)
    return acknowledged.where("offset <= coalesce(before, -1)").select(*AT, "value", "offset", _name(NONMONOTONIC))


def broken_acknowledgements(placed: DataFrame, read: DataFrame) -> DataFrame:
    """Find acknowledged records that are not at the acknowledged offset: they are at another offset, were not read at
    all, or are lost although a later record was read."""
    at_end = read.where("is_final")
    promised = placed.where("outcome = 'ok' AND is_awaited").select(*AT, "value", "offset")
    kept = at_end.select(*AT, "value", "offset").distinct()
    missing = promised.join(kept, [*AT, "value", "offset"], "left_anti")
    elsewhere = at_end.select(*AT, "value").distinct().withColumn("is_elsewhere", sf.lit(True))
    firsts = read.groupBy(*AT, "value").agg(sf.min("offset").alias("first"))
    bounds = firsts.groupBy(*AT).agg(sf.max("first").alias("bound"))
    ever = firsts.select(*AT, "value", sf.lit(True).alias("is_read"))
    joined = (
        missing.join(elsewhere, [*AT, "value"], "left").join(ever, [*AT, "value"], "left").join(bounds, [*AT], "left")
    )
    is_lost = sf.col("is_read").isNull() & sf.col("offset").between(0, sf.col("bound"))
    name = sf.when(sf.col("is_elsewhere"), MISPLACED).when(is_lost, LOST).otherwise(UNSEEN)
    return joined.select(*AT, "value", "offset", name.alias("name"))


def _provable(found: DataFrame, read: DataFrame, operations: DataFrame) -> DataFrame:
    """Keep the records that the final reader must have received if they exist. These are all records if its last
    operation shows that it reached the end, otherwise those below the highest offset that it received."""
    own = operations.where(sf.col("lineage") == FINAL_READER).groupBy("run")
    ends = own.agg((sf.max_by("outcome", "index") == "ok").alias("is_at_end"))
    reached = read.where("is_final").groupBy(*AT).agg(sf.max("offset").alias("reached"))
    joined = found.join(ends, "run", "left").join(reached, [*AT], "left")
    return joined.where("coalesce(is_at_end, false) OR offset BETWEEN 0 AND reached").select(*found.columns)


def _values_at(read: DataFrame) -> DataFrame:
    return read.groupBy(*AT, "offset").agg(
        sf.sort_array(sf.collect_set("value")).alias("values"), sf.bool_or("is_final").alias("in_final")
    )


def _name(name: str) -> Column:
    return sf.lit(name).alias("name")
