"""Tests that Spark's analysis of chaos histories gives the same result as the independent checker of `kraft chaos`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEventType
from kraft.sim.check.histories.client_histories import ANOMALIES
from tests.chaos.judge.histories import HistoryBuilder, P, fault_of, steady_history
from tests.chaos.judge.test_anomalies import CASES, A, B, C, sent
from tests.client.spark.chaos_runs import besides, write_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

OF_READERS = {"poll skip", "nonmonotonic poll", "int poll skip", "int nonmonotonic poll"}
"""Anomalies of consumers that skip records or go back. The analysis in Spark does not check them."""


def acknowledged(*times: float, place: Any = P, reported: HistoryBuilder | None = None) -> HistoryBuilder:
    """Return rows of sends that were acknowledged at these times (ms)."""
    reported = HistoryBuilder() if reported is None else reported
    for time_ms in times:
        reported.now_ms = time_ms - 2
        reported.send(f"{place}/{time_ms}", int(time_ms), place=place)
    return reported


def write_anomalies(runs: Path) -> None:
    """For each kind of anomaly, write a run with the anomaly and a similar run without it. Also write runs in which the
    end of the log is unknown."""
    for name, case in CASES.items():
        for kind, write in (("bad", case.bad), ("good", case.good)):
            reported = HistoryBuilder()
            write(reported)
            write_run(runs, f"{name} {kind}", besides(reported))
    stopped = HistoryBuilder()
    sent(stopped, 4)
    stopped.final((0, A), (2, C))
    stopped.end(stopped.begin(FINAL_READER, Function.POLL), HistoryEventType.INFO, "given up at the end")
    write_run(runs, "stopped on the way", stopped)
    nowhere = HistoryBuilder()
    nowhere.send(A, -1)
    nowhere.send(B, 1)
    nowhere.final((1, B))
    write_run(runs, "acknowledged without an offset", besides(nowhere))
    for name, with_send in (("application", False), ("application and sends", True)):
        reported = HistoryBuilder()
        if with_send:
            reported.send(A, 0)
        reported.final((0, A), (1, "of the application"))
        write_run(runs, name, reported, application=("app",), application_exit=0)


def test_chaos_analysis_counts_each_kind_of_anomaly_as_the_verdict_of_kraft_chaos_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kraft.client.spark.jobs import chaos_analysis
    from kraft.client.spark.jobs.chaos_anomalies import NAMES

    write_anomalies(tmp_path / "runs")
    found = chaos_analysis.run(spark, {}, runs=str(tmp_path / "runs"), out=str(tmp_path / "report.html"))
    rows = found.runs.collect()
    assert len(rows) == 2 * len(CASES) + 4
    for row in rows:
        expected = {name: count for name, count in row.anomaly_counts.items() if name not in OF_READERS}
        assert (row.found, row.agrees) == (expected, True), row.run
    assert {name for row in rows for name in row.found} == set(NAMES) == set(ANOMALIES) - OF_READERS
    assert "duplicate bad: 1 × duplicate" in (tmp_path / "report.html").read_text()


def test_chaos_analysis_reports_a_run_whose_verdict_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    from kraft.client.spark.jobs import chaos_analysis

    reported = HistoryBuilder()
    CASES["duplicate"].bad(reported)
    folder = write_run(tmp_path, "wrong", besides(reported))
    verdict = json.loads(folder.verdict.read_text())
    folder.verdict.write_text(json.dumps({**verdict, "anomaly_counts": {}}))
    with folder.history.open("a") as file:
        file.write('{"index":999,"time_ns":1,"proc')
    found = chaos_analysis.run(spark, {}, runs=str(tmp_path), out="")
    [row] = found.runs.collect()
    assert (row.found, row.agrees, found.report) == ({"duplicate": 1}, False, None)
    [anomaly] = found.anomalies.collect()
    assert (anomaly.run, anomaly.place, anomaly.value, anomaly.offset) == ("wrong", "chaos-0", A, 1)


def test_chaos_analysis_finds_the_same_acknowledgement_gaps_as_the_verdict(spark: SparkSession, tmp_path: Path) -> None:
    from kraft.client.spark.jobs import chaos_analysis

    open_ended = acknowledged(3_900, 4_100)
    open_ended.begin("producer-0", Function.SEND, place=list(P), value="x")
    two_faults = fault_of(), fault_of(begin_ms=10_000.0, end_ms=11_000.0), fault_of(missed="not found")
    two_places = acknowledged(4_300, 5_500, place=P._replace(partition=1), reported=acknowledged(3_900, 4_100, 4_200))
    runs = {
        "plain": (acknowledged(3_900, 4_100, 4_900, 5_000, 5_300), (fault_of(),)),
        "begins before": (acknowledged(3_000, 3_700, 4_500, 5_000), (fault_of(),)),
        "two faults": (acknowledged(3_900, 4_100, 9_500, 12_000, 12_100), two_faults),
        "two partitions": (two_places, (fault_of(),)),
        "open": (open_ended, (fault_of(end_ms=None),)),
        "steady": (steady_history(silent=((4_000, 7_000),)), (fault_of(),)),
    }
    for name, (reported, faults) in runs.items():
        write_run(tmp_path, name, reported, faults=faults, healed_ms=10_000.0)
    found = chaos_analysis.run(spark, {}, runs=str(tmp_path), out="")
    gaps = {(row.run, row.fault): row for row in found.gaps.collect()}
    assert {key: row.gap_ms for key, row in gaps.items()} == {key: row.verdict_gap_ms for key, row in gaps.items()}
    assert {key[0] for key in gaps} == set(runs)
    assert (gaps["plain", 0].gap_ms, gaps["two faults", 0].gap_ms, gaps["two faults", 1].gap_ms) == (800, 5_400, 2_500)
    assert gaps["open", 0].gap_ms == 20_000 - 4_100
    [spread] = found.distribution.collect()
    assert (spread.scenario, spread.runs, spread.p50_ms) == ("by-hand", len(runs), 20.0)
    assert spread.longest_ms == 5_400
