"""Incident timeline: the events in a cluster, second by second.

    from kraft.client.spark.jobs import incident_timeline
    timeline = incident_timeline.run(spark, {"bootstrap": "localhost:9092"}, start="2026-11-21T10:00:00")
    timeline.moments.show(truncate=False)

The metadata log shows which broker led which partition and when. It is read as table `metadata_events`, from the
cluster or from the files of a node. A run of `kraft chaos`, given as `chaos_run`, adds its faults and what its clients
observed. Cluster and run have different clocks. The run's clock is aligned by the leader changes that both recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from kraft.client.spark.jobs import chaos_files
from kraft.client.spark.jobs.report_page import COLOURS, GOOD, Picture, ReportFinding, table_section, write_page
from kraft.client.spark.jobs.timeline_moments import (
    client_seconds,
    event_moments,
    fault_moments,
    observed_moments,
    started_at,
)

MARGIN_S = 5
"""Seconds before and after a chaos run in which metadata events still belong to the run, because its cluster starts and
stops then."""
METADATA_LOG = "__cluster_metadata-0"


@dataclass(frozen=True, slots=True)
class IncidentTimeline:
    """Result of the timeline. `moments`: a row per event. `seconds`: a row per second in which anything happened, with
    that second's results of client operations."""

    moments: DataFrame
    seconds: DataFrame
    report: Path | None


def run(
    spark: SparkSession,
    cluster: Mapping[str, str],
    *,
    folder: str | None = None,
    chaos_run: str | None = None,
    start: str | None = None,
    end: str | None = None,
    out: str = "incident-timeline.html",
) -> IncidentTimeline:
    """Build the timeline and write a report to `out`.

    Without `folder` the metadata log is read from the cluster. With `chaos_run` alone, it is read from the data that
    `kraft chaos run --keep` left, if there is any."""
    events = _events(spark, cluster, folder, chaos_run)
    moments = [] if events is None else [event_moments(events)]
    clients = None
    if chaos_run is not None:
        samples = chaos_files.read_samples(spark, chaos_run).cache()
        began = started_at(events, samples, chaos_files.read_info(spark, chaos_run))
        observed = observed_moments(samples, began, with_partitions=events is None)
        moments += [fault_moments(chaos_files.read_faults(spark, chaos_run), began), observed]
        clients = client_seconds(chaos_files.read_history(spark, chaos_run), began)
        moments = [within_run(one, clients) for one in moments]
    every = within(reduce(DataFrame.unionByName, moments), start, end).orderBy("time", "offset").cache()
    seconds = by_second(every, clients).cache()
    return IncidentTimeline(
        every, seconds, _report(out, chaos_run or folder or cluster.get("bootstrap", ""), every, seconds)
    )


def _events(
    spark: SparkSession, cluster: Mapping[str, str], folder: str | None, chaos_run: str | None
) -> DataFrame | None:
    """Read the metadata events. Return None if there is no metadata log, because the chaos run kept no data."""
    reader = spark.read.format("kraft").option("table", "metadata_events")
    if folder is None and chaos_run is not None:
        if next(Path(chaos_run).glob(f"nodes/**/{METADATA_LOG}"), None) is None:
            return None
        folder = f"{chaos_run}/nodes"
    return reader.options(**cluster).load() if folder is None else reader.option("folder", folder).load()


def within(moments: DataFrame, start: str | None, end: str | None) -> DataFrame:
    """Return the moments from `start` to before `end` (ISO 8601; None: no limit)."""
    first = moments if start is None else moments.where(sf.col("time") >= sf.lit(start).cast("timestamp"))
    return first if end is None else first.where(sf.col("time") < sf.lit(end).cast("timestamp"))


def within_run(moments: DataFrame, clients: DataFrame) -> DataFrame:
    """Return the moments from MARGIN_S before the clients of a chaos run began to MARGIN_S after they ended."""
    margin = sf.expr(f"INTERVAL {MARGIN_S} SECONDS")
    times = clients.agg((sf.min("second") - margin).alias("low"), (sf.max("second") + margin).alias("high"))
    return moments.crossJoin(sf.broadcast(times)).where("time BETWEEN low AND high").drop("low", "high")


def by_second(moments: DataFrame, clients: DataFrame | None) -> DataFrame:
    """Return a row per second. `happened` lists the second's events in order, next to the numbers of client operations
    that succeeded, failed, or have an unknown outcome."""
    described = sf.array_sort(sf.collect_list(sf.struct("time", "offset", "what")))
    grouped = moments.groupBy(sf.date_trunc("second", "time").alias("second")).agg(described.alias("described"))
    happened = grouped.select("second", sf.col("described.what").alias("happened"))
    if clients is None:
        return happened.orderBy("second")
    empty = sf.array().cast("array<string>")
    both = happened.join(clients, "second", "full_outer").fillna(0)
    counts = [name for name in clients.columns if name != "second"]
    return both.select("second", *counts, sf.coalesce("happened", empty).alias("happened")).orderBy("second")


def _report(out: str, about: str, moments: DataFrame, seconds: DataFrame) -> Path | None:
    if not out:
        return None
    span = moments.agg(
        sf.min("time").alias("first"), sf.max("time").alias("last"), sf.count("*").alias("count")
    ).first()
    assert span is not None
    facts = [about, f"{span['first']} to {span['last']}", f"{span['count']:,} moments"]
    found = [ReportFinding(GOOD, f"{row.number} × {row.kind}.") for row in _kinds(moments)]
    sections = [
        table_section(
            "Second by second", seconds, "Above: results of clients' operations. Below: events.", draw(seconds)
        ),
        table_section("Moments", moments.select("time", "source", "what", "topic", "partition", "broker_id", "offset")),
    ]
    return write_page(out, "Incident timeline", facts, found, sections)


def _kinds(moments: DataFrame) -> list[Row]:
    return moments.groupBy("kind").agg(sf.count("*").alias("number")).orderBy(sf.desc("number"), "kind").collect()


def draw(seconds: DataFrame) -> bytes:
    """Draw client operations per second, with a marker at each second with an event, as PNG."""
    rows = seconds.collect()
    if not rows:
        return b""
    picture = Picture(3.0)
    first = rows[0].second
    at = [(row.second - first).total_seconds() for row in rows]
    for name, colour in (("ok", "blue"), ("failed", "red"), ("unknown", "amber")):
        if name in seconds.columns:
            picture.axes.step(at, [row[name] for row in rows], where="post", color=COLOURS[colour], label=name)
    marked = [x for x, row in zip(at, rows, strict=True) if row.happened]
    transform = picture.axes.get_xaxis_transform()
    picture.axes.scatter(
        marked, [0.02] * len(marked), marker="^", s=18, color=COLOURS["ink"], transform=transform, label="event"
    )
    picture.axes.set_xlabel(f"seconds since {first}", fontsize=8)
    picture.legend()
    return picture.png()
