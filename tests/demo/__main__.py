"""`python -m tests.demo`: a scenario on real processes behind toxiproxy, with a real client. The exit code is 0 if the
verdict is valid, 1 if it is invalid, 3 if it is unknown.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from kraft.deploy.cli.chaos import ending_on_signals
from kraft.sim.chaos.judge import Gap
from kraft.sim.chaos.run.campaign import ChaosCampaign, ChaosCampaignSettings, FinishedRun
from kraft.sim.chaos.run.run_folder import FaultRecord, RunFolder
from kraft.sim.chaos.scenarios.scenario_file import read_scenario
from kraft.sim.chaos.targets.choices import own_choice
from tests.demo.spark_query import show_who_led, why_not

SCENARIO = Path(__file__).with_name("demo.toml")
RESULTS = Path(__file__).parents[2] / "docs" / "chaos-results.json"
KAFKA_SCENARIOS = {("kill", "leader"): "broker-crash", ("kill", "active controller"): "controller-crash"}
"""Name of the scenario with the same fault that Apache Kafka was tested with, by the kind and role of the fault."""
NOTED = {"broker-crash": "gap_median_ms", "controller-crash": "topic_gap_median_ms"}
"""Statistic of Apache Kafka's runs that is printed for each scenario: the gap in sends, or in created topics. It is
printed only if every one of those runs was valid, because a fault that has no effect gives no gap to compare."""
EXIT_CODES = {"valid": 0, "invalid": 1}
EXIT_UNKNOWN = 3


def main() -> int:
    """Run the demo; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--client", default="confluent-kafka", help="kraft, confluent-kafka or kafka-python")
    parser.add_argument("--out", type=Path, default=Path("chaos-runs"), help="where the run's folder is made")
    arguments = parser.parse_args()
    settings = ChaosCampaignSettings(
        runs=[(read_scenario(str(SCENARIO)), 1)],
        clusters=[own_choice()],
        out=arguments.out,
        command=lambda *_: f"kraft chaos run {SCENARIO} --client {arguments.client}",
        client=arguments.client,
        keeps_data=not why_not(),
    )
    with ending_on_signals() as raise_if_interrupted:
        campaign = ChaosCampaign(replace(settings, raise_if_interrupted=raise_if_interrupted))
        campaign.run()
    _show_gaps(campaign.finished[0])
    show_who_led(campaign.finished[0].folder)
    return EXIT_CODES.get(campaign.verdict, EXIT_UNKNOWN)


def _show_gaps(run: FinishedRun) -> None:
    """Print the gap after each fault next to the gap of Apache Kafka."""
    if run.info is None:
        return
    noted = _noted_gaps()
    print(f"{'fault':44}{'gap here':>12}{'Apache Kafka (noted)':>24}")
    for number, fault in enumerate(RunFolder(run.folder).read_faults()):
        gap = _gap_of(run, number, fault)
        here = "none" if gap is None else f"{gap.gap_ms:,.0f} ms"
        what = f"{fault.kind} of node {', '.join(map(str, fault.nodes))}, the {fault.role}"
        there = noted.get(KAFKA_SCENARIOS.get((fault.kind, fault.role), ""))
        print(f"{what:44}{here:>12}{'not measured' if there is None else f'{there:,.0f} ms':>24}")
    print("A gap is the longest time without a success: of topics being created while there is no active controller,")
    print(
        "else of records being sent to one partition. Kafka's figures are in docs/chaos.md; this run starts no Kafka."
    )


def _gap_of(run: FinishedRun, number: int, fault: FaultRecord) -> Gap | None:
    wanted = "create topic" if fault.role == "active controller" else "send"
    found = [gap for gap in run.verdict.gaps if gap.fault == number and gap.f == wanted]
    return max(found, key=lambda gap: gap.gap_ms, default=None)


def _noted_gaps() -> dict[str, float]:
    """Return the median gap of Apache Kafka in the newest chaos campaign, by scenario."""
    if not RESULTS.exists():
        return {}
    rows = json.loads(RESULTS.read_text())["rows"]
    kafka = {row["scenario"]: row for row in rows if row["cluster"] == "kafka" and set(row["verdicts"]) == {"valid"}}
    return {name: kafka[name][figure] for name, figure in NOTED.items() if name in kafka and kafka[name][figure]}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
