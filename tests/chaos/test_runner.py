"""Tests of `kraft chaos` on the command line: runs with each client library, their folders and exit codes, and invalid
arguments.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import count
from pathlib import Path

import pytest

from kraft.sim.chaos.clusters.host_faults import CLOCK, FULL_DISK
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.run.run_folder import RunFolder
from kraft.sim.chaos.scenarios.drawn_faults import faults_of_run
from kraft.sim.chaos.scenarios.scenario import Scenario
from kraft.sim.chaos.scenarios.scenario_file import BUILT_IN, read_scenario
from kraft.sim.chaos.targets.own_target import OwnTarget
from tests.chaos.chaos_command import Chaos
from tests.chaos.hosts.privileges import needs_mounts
from tests.chaos.hosts.test_clocks import needs_faketime
from tests.stages.kraft_command import Command

ONE_KILL = """
title = "One kill"
duration_s = 6
[workload]
producers = 1
[[fault]]
at_s = 1
kind = "kill"
node = 2
back_s = 0.5
"""
DRAWN = """
title = "Drawn"
duration_s = 20
random_faults = true
[workload]
producers = 1
"""
NO_CLIENTS = """
title = "No clients"
duration_s = 1
[workload]
producers = 0
readers = 0
"""
UNKNOWN = 3
FILES = {"run.json", "history.jsonl", "faults.jsonl", "samples.jsonl", "output.jsonl", "verdict.json", "report.html"}


@pytest.fixture
def chaos(tmp_path: Path) -> Chaos:
    return Chaos(tmp_path)


@pytest.fixture
def kraft(tmp_path: Path) -> Command:
    return Command(tmp_path / "state")


def run_one(chaos: Chaos, *options: str) -> Path:
    """Run a scenario that must be valid, and return the run's folder."""
    printed = chaos.run("run", chaos.scenario(ONE_KILL), "--out", chaos.runs, "--json", *options)
    (found,) = json.loads(printed)
    assert (found["scenario"], found["cluster"], found["verdict"]["verdict"]) == ("short", "pykraft", "valid")
    return Path(found["folder"])


def require_whole(folder: Path, client: str) -> None:
    """Check that the run's folder has all files and that they describe the run."""
    run_folder = RunFolder(folder)
    assert {path.name for path in folder.iterdir()} >= FILES
    assert {path.name for path in (folder / "nodes").iterdir()} >= {"1.log", "101.log", "toxiproxy.log"}
    info = run_folder.read_info()
    assert info.client == client
    assert (info.trouble, info.seed) == ((), 1)
    (fault,) = run_folder.read_faults()
    assert (fault.kind, fault.nodes, fault.missed) == ("kill", (2,), "")
    assert any(event.process == "final-reader" or "final" in event.process for event in run_folder.read_history())
    assert any(2 not in sample.running for sample in run_folder.read_samples())
    assert "<html" in run_folder.report.read_text()


def test_a_chaos_run_with_our_client_is_valid_and_judged_equally_a_second_time(chaos: Chaos) -> None:
    folder = run_one(chaos)
    require_whole(folder, "kraft")
    before = chaos.verdict(folder)
    (folder / "verdict.json").unlink()
    assert "VALID" in chaos.run("judge", folder)
    assert chaos.verdict(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python"])
def test_a_chaos_run_with_a_third_party_client_library_is_valid(chaos: Chaos, client: str) -> None:
    require_whole(run_one(chaos, "--client", client), client)


@pytest.mark.slow
def test_repeated_chaos_runs_have_a_summary_page(chaos: Chaos) -> None:
    scenario = chaos.scenario(NO_CLIENTS)
    printed = chaos.run("run", scenario, "--out", chaos.runs, "--repeat", "2", "--seed", "5", code=UNKNOWN)
    assert "2 unknown" in printed
    assert "No client had any operation." in printed
    page = (chaos.runs / "summary.html").read_text()
    reports = sorted(path.relative_to(chaos.runs) for path in chaos.runs.glob("*/report.html"))
    assert [str(path).split("-")[2] for path in reports] == ["5", "6"]
    assert all(str(path) in page for path in reports)


@pytest.mark.slow
def test_a_shown_and_edited_scenario_can_be_run_as_a_file(chaos: Chaos) -> None:
    shown = chaos.run("show", "broker-crash")
    path = chaos.scenario(shown, "mine")
    printed = chaos.run("run", path, "--out", chaos.runs, "--duration", "12", "--nodes", "1+3")
    assert "mine on pykraft with kraft, seed 1: VALID" in printed
    assert f"kraft chaos run {path}" in printed


def test_chaos_command_lists_scenarios(kraft: Command) -> None:
    rows = kraft.json("chaos", "list")
    assert [row["name"] for row in rows] == list(BUILT_IN)
    assert all(row["title"] and row["about"] for row in rows)
    assert "Broker crash" in kraft.run("chaos", "list")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "broker-crush"], "broker-crash"),
        (["run", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["show", "broker-crush"], "broker-crash"),
        (
            ["run", "broker-crash", "--against", "localhost:1", "--kafka", "."],
            "--against and --kafka exclude each other",
        ),
        (["run", "broker-crash", "--control", "nodes.toml"], "--against"),
        (["run", "broker-crash", "--nodes", "three"], "expected CONTROLLERS+BROKERS"),
        (["run", "broker-crash", "--nodes", "0+3"], "expected CONTROLLERS+BROKERS"),
        (["run", "broker-crash", "--nodes", "1+2+3"], "expected CONTROLLERS+BROKERS"),
        (["run", "broker-crash", "--duration", "5"], "no fault that fits into 5 s"),
        (["run", "broker-crash", "--client", "kafka-pyton"], "kafka-python"),
        (["run", "broker-crash", "--kafka", "/nowhere"], "/nowhere"),
        (["run", "broker-crash", "--json", "--", "true"], "--json"),
        (["campaign", "broker-crush"], "broker-crash"),
    ],
)
def test_an_invalid_chaos_argument_is_rejected_with_a_hint_to_the_valid_one(
    kraft: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in kraft.run("chaos", *words, code=2)
    assert not (tmp_path / "chaos-runs").exists(), "no run has begun"


def test_a_scenario_that_does_not_fit_the_requested_nodes_is_rejected(kraft: Command, chaos: Chaos) -> None:
    scenario = chaos.scenario(ONE_KILL)
    said = kraft.run("chaos", "run", scenario, "--nodes", "1+1", "--out", chaos.runs, code=2)
    assert "--nodes 1+1: short: [[fault]] 1 (kill): node is 2, and the cluster has 1, 101" in said
    assert not chaos.runs.exists()


def test_a_run_whose_cluster_does_not_start_has_an_unknown_verdict_and_keeps_the_logs(chaos: Chaos) -> None:
    scenario = chaos.scenario(f'{NO_CLIENTS}[cluster.settings]\n"log.dirs" = "/proc/nowhere"\n')
    printed = chaos.run("run", scenario, "--out", chaos.runs, code=UNKNOWN)
    named = re.search(r"unknown: node (\d+)", printed)
    assert named is not None, printed
    (kept,) = chaos.runs.glob(f"*/nodes/{named[1]}.log")  # other nodes may not have begun to log yet
    assert "/proc/nowhere" in kept.read_text()


def test_a_missing_program_is_rejected_before_a_run_begins(kraft: Command, chaos: Chaos) -> None:
    words = ("chaos", "run", "broker-crash", "--out", chaos.runs, "--", "no-such-program")
    assert "no such program" in kraft.run(*words, code=127)
    assert not chaos.runs.exists()


def test_judging_a_folder_that_is_not_a_run_is_rejected(kraft: Command, tmp_path: Path) -> None:
    assert "is not the folder of a run" in kraft.run("chaos", "judge", tmp_path, code=2)


@pytest.mark.slow
def test_chaos_keep_option_keeps_the_data_of_every_node_beside_its_log(chaos: Chaos) -> None:
    nodes = run_one(chaos, "--keep") / "nodes"
    assert (nodes / "1.log").stat().st_size > 0
    assert [*(nodes / "1").glob("chaos-*/*.log")]
    assert [*(nodes / "101").glob("__cluster_metadata-0/*.log")]


@pytest.mark.slow
@pytest.mark.parametrize("program", [["sleep", "600"], [sys.executable, "-c", "while True: pass"]])
def test_a_run_whose_program_runs_to_the_end_and_dies_of_sigterm_is_valid(chaos: Chaos, program: list[str]) -> None:
    printed = chaos.run("run", chaos.scenario(ONE_KILL), "--out", chaos.runs, "--", *program)
    assert "VALID" in printed
    (folder,) = chaos.runs.iterdir()
    assert chaos.verdict(folder)["verdict"] == "valid"
    assert RunFolder(folder).read_info().application_exit == 0


def seed_that_draws(scenario: Scenario, kind: str, folder: Path) -> int:
    with Warden() as warden:
        cluster = OwnTarget(scenario, folder, warden).cluster
    return next(seed for seed in count(1) if kind in {one.fault.kind for one in faults_of_run(scenario, cluster, seed)})


@pytest.mark.slow
@needs_mounts
@needs_faketime
@pytest.mark.parametrize("kind", [CLOCK, FULL_DISK])
def test_a_drawn_fault_of_a_host_is_carried_out(chaos: Chaos, kind: str) -> None:
    path = chaos.scenario(DRAWN)
    seed = seed_that_draws(read_scenario(str(path)), kind, chaos.folder)
    printed = chaos.run("run", path, "--out", chaos.runs, "--seed", str(seed), "--json")
    (found,) = json.loads(printed)
    folder = RunFolder(Path(found["folder"]))
    assert not folder.error.exists()
    assert [one.missed for one in folder.read_faults() if one.kind == kind] == [""]
