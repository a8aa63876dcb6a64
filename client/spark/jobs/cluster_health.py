"""Cluster health: overloaded brokers, partitions that lack replicas, and groups that are behind.

    from kraft.client.spark.jobs import cluster_health
    health = cluster_health.run(spark, {"bootstrap": "localhost:9092"}, out="health.html")
    health.load.show()

The results are joins and sums over four state tables. Each table is read once and cached, because two reads of the
cluster would be of two points in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from kraft.client.spark.jobs.report_page import (
    BAD,
    COLOURS,
    GOOD,
    WARNING,
    Picture,
    ReportFinding,
    table_section,
    write_page,
)

SKEW_MAX = 1.5
"""Factor over the mean above which a broker's leaders or replicas are reported as skewed."""
TOPIC_SKEW_MAX = 3.0
"""Factor over the mean above which a topic's largest partition is reported as skewed. It is larger than SKEW_MAX
because keys are rarely distributed evenly."""
SKEWED_RECORDS_MIN = 1_000
"""Minimum records of a topic that is checked for skew, because a handful of records is never distributed evenly."""
BARS_MAX = 30


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """Result of the health check. `load`: a row per broker. `troubled`: a row per partition with a problem. `skew`: a
    row per topic. `lag`: a row per group and topic."""

    load: DataFrame
    troubled: DataFrame
    skew: DataFrame
    lag: DataFrame
    findings: list[ReportFinding]
    report: Path | None


def run(spark: SparkSession, cluster: Mapping[str, str], *, out: str = "cluster-health.html") -> ClusterHealth:
    """Read the cluster's state, look for problems, and write a report to `out`."""

    def table(name: str) -> DataFrame:
        return spark.read.format("kraft").options(**cluster).option("table", name).load().cache()

    partitions = table("partitions")
    load = broker_load(table("brokers"), table("replicas")).cache()
    troubled = troubled_partitions(partitions).cache()
    skew = topic_skew(partitions).cache()
    lag = group_lag(table("group_offsets")).cache()
    found = findings(load.collect(), troubled.collect(), skew.collect(), lag.collect())
    facts = [f"{load.count()} brokers", f"{partitions.count():,} partitions", f"at {cluster.get('bootstrap', '')}"]
    sections = [
        table_section("Brokers", load, "Leaders and replicas of each broker.", draw_load(load.collect())),
        table_section("Partitions in trouble", troubled),
        table_section("Topics", skew, "Skew: records of the largest partition by the mean of all partitions."),
        table_section("Consumer lag", lag, "Records that groups have still to read.", draw_lag(lag.collect())),
    ]
    return ClusterHealth(load, troubled, skew, lag, found, write_page(out, "Cluster health", facts, found, sections))


def broker_load(brokers: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return the numbers of leaders and replicas of each broker, including brokers without any. Skews are relative to
    the mean over the brokers that are not fenced."""
    held = replicas.groupBy("broker_id").agg(
        sf.count("*").alias("replicas"),
        sf.count_if("is_leader").alias("leaders"),
        sf.count_if(sf.col("position") == 0).alias("preferred_leaders"),
        sf.count_if(~sf.col("is_in_sync")).alias("out_of_sync"),
        sf.sum("size_bytes").alias("size_bytes"),
    )
    counts = ("replicas", "leaders", "preferred_leaders", "out_of_sync")
    known = brokers.select("broker_id", "host", "rack", sf.coalesce("is_fenced", sf.lit(False)).alias("is_fenced"))
    load = known.join(held, "broker_id", "full_outer").fillna(0, list(counts))
    means = load.where(~sf.coalesce("is_fenced", sf.lit(True))).agg(
        sf.avg("leaders").alias("mean_leaders"), sf.avg("replicas").alias("mean_replicas")
    )
    return (
        load.crossJoin(means)
        .withColumn("leader_skew", sf.round(sf.try_divide("leaders", "mean_leaders"), 2))
        .withColumn("replica_skew", sf.round(sf.try_divide("replicas", "mean_replicas"), 2))
        .drop("mean_leaders", "mean_replicas")
        .orderBy("broker_id")
    )


def troubled_partitions(partitions: DataFrame) -> DataFrame:
    """Return the partitions that have no leader, too few in-sync replicas, or a leader other than the preferred one."""
    trouble = (
        sf.when(sf.col("is_offline"), "no leader")
        .when(sf.col("is_under_min_isr"), "under min.insync.replicas")
        .when(sf.col("is_under_replicated"), "under-replicated")
        .when(~sf.col("is_preferred_led"), "not led by its preferred leader")
    )
    return (
        partitions.withColumn("trouble", trouble)
        .where("trouble IS NOT NULL")
        .select("trouble", "topic", "partition", "leader", "preferred_leader", "replicas", "isr")
        .orderBy("topic", "partition")
    )


def topic_skew(partitions: DataFrame) -> DataFrame:
    """Return how unevenly each topic's records are spread over its partitions. Kafka's internal topics are excluded,
    because they are always uneven."""
    return (
        partitions.where("topic NOT LIKE '\\_\\_%'")
        .groupBy("topic")
        .agg(
            sf.count("*").alias("partitions"),
            sf.sum("records").alias("records"),
            sf.sum("size_bytes").alias("size_bytes"),
            sf.max_by("partition", "records").alias("largest"),
            sf.round(sf.try_divide(sf.max("records"), sf.avg("records")), 2).alias("skew"),
        )
        .orderBy(sf.desc_nulls_last("records"), "topic")
    )


def group_lag(group_offsets: DataFrame) -> DataFrame:
    """Return each group's lag in each topic. `expired`: number of partitions in which the group's next record is
    already deleted."""
    return (
        group_offsets.groupBy("group_id", "topic")
        .agg(
            sf.sum("lag").alias("lag"),
            sf.max("lag").alias("largest_lag"),
            sf.count("*").alias("partitions"),
            sf.count_if(sf.col("offset").isNull()).alias("without_commit"),
            sf.count_if("is_expired").alias("expired"),
            sf.count_distinct("member_id").alias("members"),
        )
        .orderBy(sf.desc_nulls_last("lag"), "group_id", "topic")
    )


def findings(
    load: Sequence[Row], troubled: Sequence[Row], skew: Sequence[Row], lag: Sequence[Row]
) -> list[ReportFinding]:
    """Return the problems found, the worst first; if there are none, one finding that says so."""
    found = [*_of_brokers(load), *_of_partitions(troubled), *_of_topics(skew), *_of_groups(lag)]
    return sorted(found, key=lambda one: one.tone != BAD) or [ReportFinding(GOOD, "Nothing is wrong.")]


def _of_brokers(load: Sequence[Row]) -> Iterator[ReportFinding]:
    for row in load:
        if row.is_fenced is None:
            yield ReportFinding(BAD, f"Broker {row.broker_id} holds {row.replicas} replicas and is not registered.")
        elif row.is_fenced:
            yield ReportFinding(BAD, f"Broker {row.broker_id} is fenced.", "Start it, or move its replicas elsewhere.")
        elif (row.leader_skew or 0) > SKEW_MAX:
            text = f"Broker {row.broker_id} leads {row.leaders} partitions, {row.leader_skew} times the mean."
            yield ReportFinding(WARNING, text, "kraft partitions elect --preferred, or move leaders.")
        elif (row.replica_skew or 0) > SKEW_MAX:
            text = f"Broker {row.broker_id} holds {row.replicas} replicas, {row.replica_skew} times the mean."
            yield ReportFinding(WARNING, text, "Plan a reassignment: kraft partitions reassign plan.")


def _of_partitions(troubled: Sequence[Row]) -> Iterator[ReportFinding]:
    by_trouble: dict[str, list[Row]] = {}
    for row in troubled:
        by_trouble.setdefault(row.trouble, []).append(row)
    for trouble, rows in by_trouble.items():
        tone = WARNING if trouble.startswith("not led") else BAD
        named = ", ".join(f"{row.topic}-{row.partition}" for row in rows[:3])
        yield ReportFinding(tone, f"{len(rows)} partitions: {trouble}. Such as {named}.")


def _of_topics(skew: Sequence[Row]) -> Iterator[ReportFinding]:
    for row in skew:
        if (row.records or 0) >= SKEWED_RECORDS_MIN and row.skew > TOPIC_SKEW_MAX:
            text = f"Partition {row.largest} of {row.topic} has {row.skew} times the mean of the topic's records."
            yield ReportFinding(WARNING, text, "Look for a key that most records have.")


def _of_groups(lag: Sequence[Row]) -> Iterator[ReportFinding]:
    for row in lag:
        if row.expired:
            text = f"Group {row.group_id} has lost its place in {row.expired} partitions of {row.topic}."
            yield ReportFinding(BAD, text, "The records that it wanted are deleted; see kraft groups reset-offsets.")
        elif (row.lag or 0) > 0 and row.members == 0:
            text = f"Group {row.group_id} is {row.lag:,} records behind in {row.topic}, and no member reads it."
            yield ReportFinding(WARNING, text)


def draw_load(load: Sequence[Row]) -> bytes:
    """Draw bars of leaders, preferred leaders and replicas per broker, as PNG."""
    picture = Picture()
    at = range(len(load))
    for number, (name, colour) in enumerate(
        (("replicas", "grey"), ("preferred_leaders", "amber"), ("leaders", "blue"))
    ):
        heights = [row[name] for row in load]
        label = name.replace("_", " ")
        picture.axes.bar([x + (number - 1) * 0.27 for x in at], heights, width=0.25, color=COLOURS[colour], label=label)
    picture.axes.set_xticks(list(at), [f"broker {row.broker_id}" for row in load])
    picture.legend()
    return picture.png()


def draw_lag(lag: Sequence[Row]) -> bytes:
    """Draw bars of the groups with the largest lag, as PNG; b"" if no group has lag."""
    rows = [row for row in lag if row.lag][:BARS_MAX]
    if not rows:
        return b""
    picture = Picture(0.8 + 0.28 * len(rows))
    picture.axes.barh(
        [f"{row.group_id} · {row.topic}" for row in rows], [row.lag for row in rows], color=COLOURS["blue"]
    )
    picture.axes.invert_yaxis()
    return picture.png()
