"""Convert the metadata log and the files of a `kraft chaos` run into moments of a timeline.

A moment is a row with `time`, `source` (cluster, fault or observer), `kind`, and `what` (a sentence). Its other columns
name its subject: `topic`, `partition`, `broker_id`, and `offset` in the metadata log.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as sf

COLUMNS = ("time", "source", "kind", "what", "topic", "partition", "broker_id", "offset")
NO_LEADER, UNCHANGED_LEADER = -1, -2
"""Values of the field `leader` of PartitionChangeRecord."""
NEAR_MS = 2_000
"""Maximum difference in ms from the median. Two clocks are aligned by the changes that were recorded with both clocks.
A change with a larger difference is ignored, because a node's clock may have been stepped."""
QUIET = ("NoOp", "ProducerIds")
"""Types of metadata events that are left out of the timeline, because they say nothing about the cluster's behaviour.
"""


def event_moments(events: DataFrame) -> DataFrame:
    """Return a moment for each row of the table `metadata_events`."""
    reported = _with_leaders(events).where(~sf.col("type").isin(*QUIET))
    place = sf.concat_ws("-", "topic", "partition")
    led = sf.when(sf.col("leader_now") == NO_LEADER, sf.concat(place, sf.lit(" has no leader"))).otherwise(
        sf.concat(place, sf.lit(" is led by broker "), sf.col("leader_now").cast("string"))
    )
    was = sf.when(
        sf.col("leader_before").isNotNull() & (sf.col("leader_before") != sf.col("leader_now")),
        sf.concat(sf.lit(" (was "), sf.nullif(sf.col("leader_before"), sf.lit(NO_LEADER)).cast("string"), sf.lit(")")),
    )
    isr = sf.concat(sf.lit(", ISR "), sf.array_join("isr", ","))
    what = (
        sf.when(sf.col("is_election"), sf.concat(led, sf.coalesce(was, sf.lit("")), sf.coalesce(isr, sf.lit(""))))
        .when(sf.col("type") == "Partition", sf.concat(led, isr))
        .when(sf.col("isr").isNotNull(), sf.concat(sf.lit("ISR of "), place, sf.lit(" is "), sf.array_join("isr", ",")))
        .when(sf.col("type") == "Topic", sf.concat(sf.lit("topic "), "topic", sf.lit(" is created")))
        .when(sf.col("type") == "RemoveTopic", sf.concat(sf.lit("topic "), "topic", sf.lit(" is deleted")))
        .when(
            sf.col("type") == "FeatureLevel",
            sf.concat(sf.lit("feature "), _field("name"), sf.lit(" = "), _field("level")),
        )
        .when(
            sf.col("type") == "RegisterController", sf.format_string("controller %s registers", _field("controller_id"))
        )
        .when(sf.col("broker_id").isNotNull(), _of_broker())
        .when(sf.col("config").isNotNull(), _of_config())
    )
    kind = sf.when(sf.col("is_election"), "election").when(sf.col("isr").isNotNull() & _is_change(), "ISR change")
    return reported.select(
        sf.col("timestamp").alias("time"),
        sf.lit("cluster").alias("source"),
        sf.coalesce(kind, sf.col("type")).alias("kind"),
        sf.coalesce(what, sf.concat_ws(" ", "type", "topic", "partition")).alias("what"),
        *COLUMNS[4:],
    )


def _field(name: str) -> Column:
    """Return the column of one field of an event, as text."""
    return sf.get_json_object("fields", f"$.{name}")


def _is_change() -> Column:
    return sf.col("type") == "PartitionChange"


def _with_leaders(events: DataFrame) -> DataFrame:
    """Add `leader_now` (-1: none), `leader_before` and `epoch_now` of the event's partition, and `is_election` if its
    leader changed. The leader epoch rises by one with each election."""
    field = sf.get_json_object("fields", "$.leader").cast("int")
    named = sf.when(field != UNCHANGED_LEADER, field)
    of_partition = Window.partitionBy("topic_id", "partition").orderBy("offset")
    return (
        events.withColumn("leader_named", sf.when(sf.col("partition").isNotNull(), sf.coalesce("leader", named)))
        .withColumn("leader_now", sf.last("leader_named", ignorenulls=True).over(of_partition))
        .withColumn("leader_before", sf.lag("leader_now").over(of_partition))
        .withColumn("is_election", _is_change() & sf.col("leader_named").isNotNull())
        .withColumn("epoch_now", sf.coalesce("leader_epoch", sf.count("leader_named").over(of_partition) - 1))
    )


def _of_broker() -> Column:
    broker = sf.concat(sf.lit("broker "), sf.col("broker_id").cast("string"))
    is_fenced = sf.get_json_object("fields", "$.fenced")
    is_ending = sf.get_json_object("fields", "$.in_controlled_shutdown") == "true"
    return (
        sf.when(sf.col("type") == "RegisterBroker", sf.concat(broker, sf.lit(" registers")))
        .when(sf.col("type") == "UnregisterBroker", sf.concat(broker, sf.lit(" is unregistered")))
        .when(is_fenced == "true", sf.concat(broker, sf.lit(" is fenced")))
        .when(is_fenced == "false", sf.concat(broker, sf.lit(" is active")))
        .when(is_ending, sf.concat(broker, sf.lit(" begins to stop")))
    )


def _of_config() -> Column:
    name = sf.concat_ws(" ", "resource_type", sf.nullif("resource", sf.lit("")), "config")
    return sf.concat(name, sf.lit(" = "), sf.coalesce("value", sf.lit("(removed or secret)")))


def started_at(events: DataFrame | None, samples: DataFrame, info: DataFrame) -> datetime:
    """Return the time, by the cluster's clock, at which the clients of a chaos run began. The times in the run's files
    count from this moment.

    The observer sees a change shortly after the cluster has written it, never before, so the largest of the differences
    between the two clocks' times is used. Without events, the result is the time at which the run was started, to the
    second."""
    row = info.select("started_at").first()
    assert row is not None
    if events is None:
        return _aware(row["started_at"])
    seen = samples.select("time_ms", sf.explode("partitions").alias("seen")).groupBy(
        sf.col("seen.topic").alias("topic"),
        sf.col("seen.partition").alias("partition"),
        sf.col("seen.leader_epoch").cast("bigint").alias("epoch_now"),
        sf.col("seen.leader").alias("leader_now"),
    )
    first_seen = seen.agg(sf.min("time_ms").alias("seen_ms"))
    written = _with_leaders(events).where("leader_named IS NOT NULL")
    both = written.join(first_seen, ["topic", "partition", "epoch_now", "leader_now"])
    zero = both.select((sf.unix_micros("timestamp") / 1000 - sf.col("seen_ms")).alias("zero_ms"))
    median = zero.agg(sf.median("zero_ms").alias("median_ms"))
    latest = zero.crossJoin(median).where(sf.abs(sf.col("zero_ms") - sf.col("median_ms")) <= NEAR_MS)
    found = latest.agg(sf.max("zero_ms").alias("zero_ms")).first()
    if found is None or found["zero_ms"] is None:
        return _aware(row["started_at"])
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=found["zero_ms"])


def _aware(moment: datetime) -> datetime:
    """Attach this process's time zone to a time from Spark, which returns times without a zone."""
    return moment.astimezone(UTC)


def at(began: datetime, column: str) -> Column:
    """Return a column with times: `began` plus the milliseconds in the given column."""
    return sf.timestamp_micros((sf.lit(round(began.timestamp() * 1e6)) + sf.col(column) * 1000).cast("bigint"))


def fault_moments(faults: DataFrame, began: datetime) -> DataFrame:
    """Return the moments of each fault: its beginning and, if it ended, its end."""
    nodes = sf.when(sf.size("nodes") == 1, sf.col("nodes")[0])
    happened = faults.where("missed = ''")
    begins = happened.select(at(began, "begin_ms").alias("time"), "text", nodes.alias("broker_id"))
    ends = happened.where("end_ms IS NOT NULL").select(
        at(began, "end_ms").alias("time"), "text", nodes.alias("broker_id")
    )
    begun = begins.withColumn("kind", sf.lit("fault begins")).withColumn("what", sf.col("text"))
    ended = ends.withColumn("kind", sf.lit("fault ends")).withColumn("what", sf.concat(sf.lit("over: "), "text"))
    return _moments(begun.unionByName(ended).withColumn("source", sf.lit("fault")))


def observed_moments(samples: DataFrame, began: datetime, *, with_partitions: bool) -> DataFrame:
    """Return a moment for each change between consecutive samples of the observer: of the active controller, the
    running nodes and, with `with_partitions`, leaders and ISRs."""
    in_order = Window.orderBy("time_ms")
    asked = samples.where("controller >= 0")
    controllers = _changes(
        asked, sf.col("controller").cast("string"), in_order, "controller", "active controller: node "
    )
    nodes = sf.array_join(sf.array_sort("running"), ",")
    running = _changes(samples.where("size(running) > 0"), nodes, in_order, "processes", "running nodes: ")
    moments = controllers.unionByName(running)
    if with_partitions:
        moments = moments.unionByName(_partition_changes(samples))
    return _moments(moments.withColumn("time", at(began, "time_ms")).withColumn("source", sf.lit("observer")))


def _changes(samples: DataFrame, state: Column, in_order: WindowSpec, kind: str, words: str) -> DataFrame:
    known = samples.select("time_ms", state.alias("state")).withColumn("before", sf.lag("state").over(in_order))
    changed = known.where("before IS NULL OR before != state")
    return changed.select("time_ms", sf.lit(kind).alias("kind"), sf.concat(sf.lit(words), "state").alias("what"))


def _partition_changes(samples: DataFrame) -> DataFrame:
    each = samples.select("time_ms", sf.explode("partitions").alias("seen")).select("time_ms", "seen.*")
    place = sf.concat_ws("-", "topic", "partition")
    state = sf.concat(
        sf.when(sf.col("leader") < 0, sf.lit(" has no leader")).otherwise(
            sf.concat(sf.lit(" is led by broker "), sf.col("leader").cast("string"))
        ),
        sf.lit(", ISR "),
        sf.array_join(sf.array_sort("isr"), ","),
    )
    in_order = Window.partitionBy("topic", "partition").orderBy("time_ms")
    known = each.withColumn("state", state).withColumn("before", sf.lag("state").over(in_order))
    changed = known.where("before IS NULL OR before != state")
    what = sf.concat(place, sf.col("state"))
    return changed.select("time_ms", sf.lit("partition").alias("kind"), what.alias("what"))


def client_seconds(history: DataFrame, began: datetime) -> DataFrame:
    """Return a row per second of a chaos run: the number of client operations that ended in it as `ok`, `failed` or
    `unknown`, and how many of the successful ones were acknowledged records."""
    ended = history.where("type != 'invoke'").withColumn("ended_ms", sf.col("time_ns") / 1e6)
    return ended.groupBy(sf.date_trunc("second", at(began, "ended_ms")).alias("second")).agg(
        sf.count_if(sf.col("type") == "ok").alias("ok"),
        sf.count_if((sf.col("type") == "ok") & (sf.col("f") == "send")).alias("acknowledged"),
        sf.count_if(sf.col("type") == "fail").alias("failed"),
        sf.count_if(sf.col("type") == "info").alias("unknown"),
    )


def _moments(known: DataFrame) -> DataFrame:
    """Return the rows with all columns of a moment, adding missing ones as NULL."""
    kinds = {"topic": "string", "partition": "int", "broker_id": "int", "offset": "bigint"}
    for name, kind in kinds.items():
        if name not in known.columns:
            known = known.withColumn(name, sf.lit(None).cast(kind))
    return known.select(*COLUMNS)
