"""Tests of summaries: a campaign of several runs as a page and as a table, and a single run as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraft.sim.chaos.judge import FaultEffect, Gap, PhaseStatistics, RunVerdict
from kraft.sim.chaos.report import render_summary, summary_table_markdown, text_summary
from kraft.sim.chaos.report.formats import format_ms, headline
from kraft.sim.chaos.report.summary import Run, Throughput, summary_rows, throughput_of
from tests.chaos.report.folders import application_run, empty_run, invalid_run, unknown_run, valid_run
from tests.chaos.report.test_pages import Elements


def run_of(scenario: str, cluster: str, verdict: str, gap_ms: float | None, *, is_over: bool = True) -> Run:
    made = valid_run()
    success_ms = gap_ms if is_over else None
    gaps = () if gap_ms is None else (
        Gap(fault=0, f="send", gap_ms=gap_ms, first_success_ms=success_ms),
        Gap(fault=0, f="poll", gap_ms=9_999, first_success_ms=9_999),
    )  # fmt: skip
    info = replace(made.info, scenario=scenario, title="", cluster=cluster)
    return info, replace(made.verdict, verdict=verdict, gaps=gaps), f"{scenario}/{cluster}/report.html"


def phase(name: str, begin_ms: float, end_ms: float) -> PhaseStatistics:
    return PhaseStatistics(
        phase=name,
        begin_ms=begin_ms,
        end_ms=end_ms,
        f="send",
        ok=1,
        fail=0,
        info=0,
        p50_ms=1,
        p95_ms=1,
        p99_ms=1,
        max_ms=1,
    )


RUNS = [
    run_of("crash", "pykraft", "valid", 300),
    run_of("pause", "pykraft", "unknown", None),
    run_of("crash", "pykraft", "valid", 500),
    run_of("crash", "kafka", "invalid", 2_000, is_over=False),
    run_of("crash", "pykraft", "valid", 1_000),
]


def test_runs_are_grouped_by_scenario_and_cluster_in_the_order_of_their_first_run() -> None:
    rows = summary_rows(RUNS)
    assert [(row.scenario, row.cluster, len(row.runs)) for row in rows] == [
        ("crash", "pykraft", 3),
        ("crash", "kafka", 1),
        ("pause", "pykraft", 1),
    ]
    assert (rows[0].gap_median_ms, rows[0].gap_worst_ms) == (500, 1_000)
    assert (rows[2].gap_median_ms, rows[2].gap_worst_ms) == (None, None)


def test_the_markdown_table_has_a_row_for_each_scenario_and_cluster() -> None:
    heading, rule, *rows = summary_table_markdown(RUNS).splitlines()
    assert heading.startswith("| Scenario | Cluster | Runs | Valid | Invalid | Unknown |")
    assert rule.count("---") == heading.count("|") - 1
    assert rows[0] == "| crash | pykraft | 3 | 3 | 0 | 0 | 500 | 1000 | 150 | 150 | 150 |"
    assert rows[1].startswith("| crash | kafka | 1 | 0 | 1 | 0 | 2000 | >2000 |")
    assert rows[2].startswith("| pause | pykraft | 1 | 0 | 0 | 1 | – | – |")


def test_the_markdown_table_keeps_its_columns_for_names_with_pipes_and_line_breaks() -> None:
    table = summary_table_markdown([run_of("a|b\nc", "pykraft", "valid", 1)])
    assert table.splitlines()[2].startswith(r"| a\|b c | pykraft |")


def test_throughput_is_split_at_the_first_fault_and_at_the_heal() -> None:
    info = replace(valid_run().info, healed_ms=4_000, duration_ms=6_000)
    seconds = [
        (0.0, 100.0),
        (1_000.0, 90.0),
        (2_000.0, 10.0),
        (3_000.0, 20.0),
        (4_000.0, 80.0),
        (5_000.0, 60.0),
        (6_000.0, 1.0),
    ]
    phases = (phase("before faults", 0, 2_000), phase("fault 1", 2_000, 3_500), phase("after heal", 4_000, 6_000))
    verdict = RunVerdict(verdict="valid", phases=phases, throughput=seconds)
    assert throughput_of(info, verdict) == Throughput(95, 15, 70)


def test_throughput_of_a_run_without_faults_counts_as_before_faults() -> None:
    info = replace(valid_run().info, healed_ms=0, duration_ms=2_000)
    verdict = RunVerdict(verdict="valid", throughput=[(0.0, 10.0), (1_000.0, 30.0)])
    assert throughput_of(info, verdict) == Throughput(20, None, None)


def test_a_summary_links_to_each_run_and_names_runs_that_are_not_valid() -> None:
    elements = Elements(render_summary(RUNS))
    assert (elements.open, elements.mismatched) == ([], [])
    assert {link for _, _, link in RUNS} <= set(elements.values("href"))
    assert "5 runs of 2 scenarios" in elements.text
    assert "1 of 5 invalid" in elements.text
    assert "3 valid, 1 invalid, 1 unknown." in elements.text


@pytest.mark.parametrize(("verdicts", "words"), [
    (["valid", "valid"], "All valid"), (["valid", "unknown"], "1 of 2 unknown"), ([], "No run"),
])  # fmt: skip
def test_the_verdict_of_a_campaign_is_that_of_its_worst_run(verdicts: list[str], words: str) -> None:
    assert words in Elements(render_summary([run_of("crash", "pykraft", each, 1) for each in verdicts])).text


def test_the_text_summary_has_verdict_reasons_faults_counts_and_paths(tmp_path: Path) -> None:
    made = unknown_run()
    text = "\n".join(text_summary(made.info, made.verdict, made.faults, made.written_to(tmp_path)))
    assert text.startswith("broker-crash on pykraft with kraft, seed 7: UNKNOWN")
    for words in (
        "  - One producer was not started.",
        "  1. 4.00 s kill of the leader, node 2",
        "     ISR of chaos-0 went from 1,2,3 to 1,3 after 0.31 s",
        "     send (chaos-0): gap 640 ms, ended 640 ms after the fault began",
        "     did not happen: no broker led a partition",
        "     no effect seen: no ISR without broker 3 was seen",
        "NOT_ENOUGH_REPLICAS: 6 times",
        "  send           before faults 15 ms, fault 1 489 ms, between faults 15 ms, ",
        f"report:  {tmp_path / 'report.html'}",
        "again:   kraft chaos run broker-crash --seed 7",
    ):
        assert words in text


def test_the_text_summary_names_the_events_that_prove_an_anomaly() -> None:
    made = invalid_run()
    lines = list(text_summary(made.info, made.verdict))
    [event] = made.verdict.anomalies[0].operations
    assert any(line.startswith("  - lost write (chaos-2):") and line.endswith(f"Events {event}.") for line in lines)
    assert any("Permitted by the scenario's settings." in line for line in lines)


def test_the_text_summary_of_an_application_names_its_exit_code() -> None:
    made = application_run()
    assert "application: python app.py --topic orders: exit code 0" in list(text_summary(made.info, made.verdict))


def test_the_text_summary_has_no_terminal_control_characters() -> None:
    made = empty_run()
    verdict = replace(made.verdict, reasons=("bad \x1b[2J\nnode",))
    assert all(line.isprintable() for line in text_summary(made.info, verdict))


def test_a_gap_that_did_not_end_is_marked_in_texts() -> None:
    verdict = RunVerdict(
        verdict="valid",
        effects=(FaultEffect(fault=0, is_seen=True, evidence="seen"),),
        gaps=(Gap(fault=0, f="send", gap_ms=5_000, first_success_ms=None),),
    )
    text = "\n".join(text_summary(valid_run().info, verdict))
    assert "send: gap 5.00 s, not ended\n" in text


def test_the_headline_of_a_valid_run_gives_the_reasons_for_its_verdict() -> None:
    permitted = replace(invalid_run().verdict, verdict="valid", anomalies=invalid_run().verdict.anomalies[3:])
    assert headline(valid_run().verdict).endswith("and every fault took effect.")
    assert "the run had no fault" in headline(RunVerdict(verdict="valid"))
    assert headline(permitted).startswith("Only anomalies that the settings permit were found in 3,091 operations")


@pytest.mark.parametrize(("value_ms", "text"), [
    (None, "–"), (0.04, "0.0 ms"), (4.06, "4.1 ms"), (9.96, "10 ms"), (412.4, "412 ms"), (999.6, "1.00 s"),
    (1_100, "1.10 s"), (12_345, "12.3 s"),
])  # fmt: skip
def test_times_are_formatted_with_their_unit(value_ms: float | None, text: str) -> None:
    assert format_ms(value_ms) == text
