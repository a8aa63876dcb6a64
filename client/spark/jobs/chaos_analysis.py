"""Chaos analysis: search the histories of many `kraft chaos` runs for anomalies at once.

    from kraft.client.spark.jobs import chaos_analysis
    analysis = chaos_analysis.run(spark, {}, runs="chaos-runs")
    analysis.runs.where("NOT agrees").show()
    analysis.distribution.show()

From the operations of all clients, the analysis finds which guarantees were broken (records lost, duplicated, out of
order), and for how long no record was acknowledged. Each run already has a verdict of `kraft chaos`, made by other
code. If analysis and verdict differ, one of them is wrong, or the verdict is from an older release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from kraft.client.spark.jobs import chaos_files
from kraft.client.spark.jobs.chaos_anomalies import NAMES, find_anomalies
from kraft.client.spark.jobs.report_page import (
    BAD,
    COLOURS,
    GOOD,
    Picture,
    ReportFinding,
    Section,
    table_section,
    write_page,
)

WINDOW_MS = 30_000
"""Milliseconds after a fault's end up to which a gap between acknowledgements counts as caused by the fault."""
BEGIN_MS = 1_000
"""Milliseconds after a fault's end within which a gap must begin to count as caused by the fault."""
SAME_MS = 1.0
"""Difference in ms below which two gaps count as equal."""


@dataclass(frozen=True, slots=True)
class ChaosAnalysis:
    """Result of the analysis. `runs`: a row per run, with the number of anomalies by the verdict and by this analysis.
    `anomalies`: a row per anomaly. `gaps`: a row per fault. `distribution`: a row per scenario and kind of cluster,
    with quantiles of the gaps between consecutive acknowledgements."""

    runs: DataFrame
    anomalies: DataFrame
    gaps: DataFrame
    distribution: DataFrame
    report: Path | None


def run(
    spark: SparkSession, cluster: Mapping[str, str], *, runs: str = "chaos-runs", out: str = "chaos-analysis.html"
) -> ChaosAnalysis:
    """Analyse every chaos run in the folder `runs`, and write a report to `out`. Sends no request to `cluster`."""
    folders = f"{runs}/*"
    info, verdicts = chaos_files.read_info(spark, folders), chaos_files.read_verdicts(spark, folders)
    operations = chaos_files.operations(chaos_files.read_history(spark, folders)).cache()
    sent = chaos_files.sends(operations).cache()
    anomalies = find_anomalies(sent, chaos_files.reads(operations).cache(), operations, info).cache()
    acknowledged = acknowledgement_gaps(sent, info).cache()
    gaps = fault_gaps(acknowledged, chaos_files.read_faults(spark, folders), info, verdicts).cache()
    summary = compare(info, verdicts, anomalies, gaps).cache()
    spread = distribution(acknowledged, info).cache()
    operations.unpersist()
    report = write_page(out, "Chaos analysis", [runs], _findings(summary), _sections(summary, anomalies, gaps, spread))
    return ChaosAnalysis(summary, anomalies, gaps, spread, report)


def acknowledgement_gaps(sent: DataFrame, info: DataFrame) -> DataFrame:
    """Return the gaps between consecutive acknowledgements in each partition, as `from_ms` to `to_ms`. For the gap
    after the last acknowledgement, `to_ms` is when the clients stopped sending, and `is_open` is true."""
    known = sent.join(info.select("run", "duration_ms"), "run").where("begin_ms <= duration_ms")
    ended = sf.least("duration_ms", sf.coalesce("end_ms", "duration_ms"))
    tried = known.groupBy("run", "place").agg(sf.max(ended).alias("tried_until_ms"))
    in_order = Window.partitionBy("run", "place").orderBy("from_ms")
    times = known.where("outcome = 'ok'").select("run", "place", ended.alias("from_ms")).join(tried, ["run", "place"])
    later = sf.lead("from_ms").over(in_order)
    return (
        times.withColumn("is_open", later.isNull())
        .withColumn("to_ms", sf.coalesce(later, "tried_until_ms"))
        .withColumn("gap_ms", sf.col("to_ms") - sf.col("from_ms"))
        .drop("tried_until_ms")
    )


def fault_gaps(acknowledged: DataFrame, faults: DataFrame, info: DataFrame, verdicts: DataFrame) -> DataFrame:
    """Return, for each fault that was carried out, the longest gap over all partitions after it, and the gap that the
    run's verdict gives."""
    following = sf.min(sf.when(sf.col("other.begin_ms") > sf.col("this.end_ms"), sf.col("other.begin_ms")))
    happened = faults.join(info.select("run", "duration_ms"), "run").where("missed = '' AND begin_ms < duration_ms")
    happened = happened.withColumn("end_ms", sf.coalesce("end_ms", "duration_ms"))
    limits = (
        happened.alias("this")
        .join(happened.alias("other"), "run")
        .groupBy("run", *(f"this.{name}" for name in ("fault", "kind", "role", "begin_ms", "end_ms", "duration_ms")))
        .agg(following.alias("next_ms"))
        .withColumn("limit_ms", sf.least("duration_ms", sf.col("end_ms") + WINDOW_MS, "next_ms"))
    )
    own = limits.join(acknowledged, "run").where(
        (sf.col("from_ms") <= sf.least("limit_ms", sf.col("end_ms") + BEGIN_MS))
        & (sf.col("is_open") | (sf.col("to_ms") > sf.col("begin_ms")))
    )
    found = own.groupBy("run", "fault", "kind", "role").agg(
        sf.max(sf.least("to_ms", "limit_ms") - sf.col("from_ms")).alias("gap_ms")
    )
    judged = verdicts.select("run", sf.explode("gaps").alias("gap")).where("gap.f = 'send'")
    theirs = judged.select("run", "gap.fault", sf.col("gap.gap_ms").alias("verdict_gap_ms"))
    return found.join(theirs, ["run", "fault"], "left").orderBy("run", "fault")


def distribution(acknowledged: DataFrame, info: DataFrame) -> DataFrame:
    """Return quantiles of the gaps between acknowledgements (ms), per scenario and kind of cluster."""

    def quantile(share: float) -> Column:
        return sf.round(sf.percentile_approx("gap_ms", share, 10_000), 1)

    return (
        acknowledged.where("NOT is_open")
        .join(info.select("run", "scenario", "cluster"), "run")
        .groupBy("scenario", "cluster")
        .agg(
            sf.count_distinct("run").alias("runs"),
            sf.count("*").alias("gaps"),
            quantile(0.5).alias("p50_ms"),
            quantile(0.99).alias("p99_ms"),
            quantile(0.999).alias("p999_ms"),
            sf.round(sf.max("gap_ms"), 1).alias("longest_ms"),
        )
        .orderBy("scenario", "cluster")
    )


def compare(info: DataFrame, verdicts: DataFrame, anomalies: DataFrame, gaps: DataFrame) -> DataFrame:
    """Return a row per run that compares the run's own verdict with this analysis. `agrees` is true if both find the
    same anomalies and the same gap without acknowledgements after each fault. Kinds of anomalies that only one of them
    checks are left out. `agrees` is NULL for a run without a verdict."""
    counted = anomalies.groupBy("run", "name").count().groupBy("run")
    found = counted.agg(sf.map_from_entries(sf.sort_array(sf.collect_list(sf.struct("name", "count")))).alias("found"))
    theirs = sf.map_filter("anomaly_counts", lambda name, _: name.isin(*NAMES))
    differs = sf.coalesce(sf.abs(sf.col("gap_ms") - sf.col("verdict_gap_ms")) >= SAME_MS, sf.lit(False))
    longest = gaps.groupBy("run").agg(
        sf.max("gap_ms").alias("longest_gap_ms"), sf.count_if(differs).alias("other_gaps")
    )
    empty = sf.map_from_arrays(sf.array().cast("array<string>"), sf.array().cast("array<bigint>"))
    reported = info.select("run", "scenario", "cluster", "seed").join(verdicts.drop("gaps"), "run", "left")
    joined = (
        reported.join(found, "run", "left")
        .join(longest, "run", "left")
        .withColumn("found", sf.coalesce("found", empty))
    )
    same_counts = sf.sort_array(sf.map_entries(theirs)) == sf.sort_array(sf.map_entries("found"))
    return (
        joined.withColumn("agrees", same_counts & (sf.coalesce("other_gaps", sf.lit(0)) == 0))
        .select("run", "scenario", "cluster", "seed", "verdict", "anomaly_counts", "found", "longest_gap_ms", "agrees")
        .orderBy("run")
    )


def _findings(summary: DataFrame) -> list[ReportFinding]:
    rows = summary.collect()
    other = [row.run for row in rows if row.agrees is False]
    broken = [row for row in rows if row.found]
    found = [
        ReportFinding(BAD, f"{row.run}: {', '.join(f'{n} × {name}' for name, n in row.found.items())}.")
        for row in broken
    ]
    found += [
        ReportFinding(BAD, f"{name}: the verdict of kraft chaos differs.", "kraft chaos judge FOLDER judges it again.")
        for name in other
    ]
    if not broken:
        found.append(ReportFinding(GOOD, f"No anomaly in {len(rows)} runs."))
    if not other:
        found.append(ReportFinding(GOOD, "Every verdict agrees with what was found here."))
    return found


def _sections(summary: DataFrame, anomalies: DataFrame, gaps: DataFrame, spread: DataFrame) -> list[Section]:
    note = "Time without an acknowledgement in a partition; each dot is a fault."
    return [
        table_section("Runs", summary),
        table_section("Gaps after faults", gaps, note, draw_gaps(gaps)),
        table_section("Gaps between acknowledgements", spread),
        table_section("Anomalies", anomalies),
    ]


def draw_gaps(gaps: DataFrame) -> bytes:
    """Draw a chart of the longest gap after each fault, as PNG: a dot per fault on a log axis, in a row per kind of
    fault. Return b"" without faults."""
    rows = gaps.select(sf.concat_ws(" of ", "kind", sf.nullif("role", sf.lit(""))).alias("lane"), "gap_ms").collect()
    if not rows:
        return b""
    lanes = sorted({row.lane for row in rows})
    picture = Picture(0.9 + 0.3 * len(lanes))
    picture.axes.scatter(
        [row.gap_ms for row in rows], [row.lane for row in rows], s=24, color=COLOURS["blue"], alpha=0.7
    )
    picture.axes.set_xscale("log")
    picture.axes.set_xlabel("longest gap (ms)", fontsize=8)
    picture.axes.grid(axis="x", lw=0.4)
    return picture.png()
