"""Tests of scenarios on simulated clusters: a seed determines the history, sound runs are valid, and runs with planted
losses are invalid.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kraft.sim.chaos.history import line_of
from kraft.sim.chaos.judge import INVALID, UNKNOWN, VALID
from kraft.sim.chaos.run.run_folder import RunFolder
from kraft.sim.chaos.run.simulated_run import SimulatedRun, run_simulated, why_not_simulated
from kraft.sim.chaos.scenarios.scenario import Scenario, ScenarioError, ScenarioExpectation
from kraft.sim.chaos.scenarios.scenario_file import BUILT_IN, parse_scenario, read_scenario
from kraft.sim.commands import app
from kraft.sim.nemesis import plan
from kraft.sim.simulated_cluster import SimulatedCluster

ON_PROCESSES_ONLY = {"clients-cut", "slow-leader", "toxics"}
IN_VIRTUAL_TIME = [name for name in BUILT_IN if name not in ON_PROCESSES_ONLY]
SEED = 7
SMALL = """
title = "Small"
duration_s = 5
[cluster]
controllers = 1
[topic]
partitions = 2
[workload]
producers = 2
rate = 20
topic_churn = 1
[[fault]]
at_s = 1
kind = "kill"
role = "leader"
back_s = 0.5
"""
UNCLEAN = """
duration_s = 16
[cluster]
controllers = 1
[cluster.settings]
"broker.session.timeout.ms" = "2000"
"broker.heartbeat.interval.ms" = "300"
[topic]
partitions = 1
[topic.configs]
"min.insync.replicas" = "1"
"unclean.leader.election.enable" = "true"
[workload]
producers = 1
rate = 20
acks = "1"
[[fault]]
at_s = 1
kind = "kill"
node = 3
back_s = 5
[[fault]]
at_s = 3
kind = "kill"
node = 1
back_s = 7
[[fault]]
at_s = 3
kind = "kill"
node = 2
back_s = 7
"""
IN_A_PROCESS = """
import sys
from kraft.sim.chaos.scenarios.scenario_file import parse_scenario
from kraft.sim.chaos.run.simulated_run import run_simulated
from tests.chaos.test_scenarios_in_virtual_time import SMALL, digest
print(digest(run_simulated(parse_scenario(SMALL, "small"), int(sys.argv[1]))))
"""


def digest(run: SimulatedRun) -> str:
    """Return a hash of the simulated world's trace and of the history's text."""
    text = "".join([run.trace_hash, *map(line_of, run.events), repr(run.samples), repr(run.faults)])
    return hashlib.sha256(text.encode()).hexdigest()


def in_a_process(seed: int, **environment: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", IN_A_PROCESS, str(seed)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, env=os.environ | environment, cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def shown(run: SimulatedRun) -> str:
    return f"{run.verdict.reasons} {[(one.name, one.text) for one in run.verdict.anomalies[:5]]}"


def test_a_seed_gives_the_same_history_in_any_process() -> None:
    here = digest(run_simulated(parse_scenario(SMALL, "small"), SEED))
    assert here == digest(run_simulated(parse_scenario(SMALL, "small"), SEED))
    assert here == in_a_process(SEED, PYTHONHASHSEED="1", TZ="UTC")
    assert here == in_a_process(SEED, PYTHONHASHSEED="4242", TZ="Asia/Tokyo")
    assert here != digest(run_simulated(parse_scenario(SMALL, "small"), SEED + 1))


def test_a_simulated_run_is_judged_and_stored_like_one_on_processes(tmp_path: Path) -> None:
    run = run_simulated(parse_scenario(SMALL, "small"), SEED, command="again")
    assert run.verdict.verdict == VALID, shown(run)
    folder = run.write_to(tmp_path / "kept")
    assert folder.read_info() == run.info
    assert folder.read_history() == list(run.events)
    assert folder.read_faults() == list(run.faults)
    assert folder.read_samples() == list(run.samples)
    assert folder.verdict.exists()
    assert folder.report.exists()
    (fault,) = run.faults
    assert (fault.begin_ms, fault.end_ms, fault.role) == (1_000, 1_500, plan.A_LEADER)
    assert run.info.healed_ms >= 1_500
    assert run.info.duration_ms >= run.info.healed_ms + 5_000


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_VIRTUAL_TIME)
def test_each_built_in_scenario_is_valid_in_virtual_time(name: str) -> None:
    scenario = read_scenario(name)
    missing = {one.fault.kind for one in scenario.faults} - set(SimulatedCluster.fault_kinds)
    assert not missing
    run = run_simulated(scenario, SEED)
    assert run.verdict.verdict == VALID, shown(run)
    assert all(not fault.missed for fault in run.faults) or scenario.random_faults


@pytest.mark.slow
def test_checks_catch_a_loss_by_an_unclean_election_that_is_not_allowed() -> None:
    scenario = read_scenario("unclean-election-on")
    run = run_simulated(scenario, SEED)
    assert run.verdict.verdict == VALID, shown(run)
    assert run.verdict.anomaly_counts["unseen"] > 10
    assert all(anomaly.is_allowed for anomaly in run.verdict.anomalies)
    strict = run_simulated(replace(scenario, expects=ScenarioExpectation()), SEED)
    assert strict.verdict.verdict == INVALID
    assert strict.verdict.anomaly_counts == run.verdict.anomaly_counts
    assert digest(strict) == digest(run)


def test_checks_catch_records_with_acks_1_lost_by_an_unclean_election() -> None:
    run = run_simulated(parse_scenario(UNCLEAN, "unclean"), SEED)
    assert run.verdict.verdict == INVALID, shown(run)


def test_a_simulated_run_without_its_required_anomaly_has_an_unknown_verdict() -> None:
    scenario = replace(parse_scenario(SMALL, "small"), expects=ScenarioExpectation(must_find=("unseen",)))
    run = run_simulated(scenario, SEED)
    assert run.verdict.verdict == UNKNOWN
    assert "'unseen'" in shown(run)


def refused(text: str) -> str:
    with pytest.raises(ScenarioError) as problem:
        run_simulated(parse_scenario(text, "mine"), SEED)
    return str(problem.value)


def test_faults_impossible_in_virtual_time_are_rejected() -> None:
    cut = '[[fault]]\nat_s = 1\nkind = "isolate"\nnode = 1\nmanner = "refuse"\nlasts_s = 1\n'
    assert "mine cannot run in virtual time: links cannot be cut by 'refuse' here" in refused(cut)
    toxic = '[[fault]]\nat_s = 1\nkind = "slicer"\nrole = "leader"\naverage_bytes = 10\nlasts_s = 1\n'
    assert "mine cannot run in virtual time: kraft sim cannot have 'slicer': toxiproxy alone" in refused(toxic)
    some = '[[fault]]\nat_s = 1\nkind = "latency"\nnode = 1\nlatency_ms = 5\nlasts_s = 1\ntoxicity_percent = 50\n'
    assert "kraft sim cannot have toxicity_percent and stream ('latency')" in refused(some)


def test_only_the_listed_built_in_scenarios_need_real_processes() -> None:
    assert {name for name in BUILT_IN if why_not_simulated(read_scenario(name))} == ON_PROCESSES_ONLY


CLIENTS_LINKS = """
duration_s = 8
[cluster]
controllers = 1
[topic]
partitions = 3
[workload]
producers = 3
rate = 20
[[fault]]
at_s = 1
kind = "cut"
node = "clients"
other = 1
lasts_s = 1
times = 2
every_s = 2
[[fault]]
at_s = 5
kind = "latency"
role = "leader"
other = "clients"
latency_ms = 100
lasts_s = 1
[[fault]]
at_s = 6.5
kind = "reset"
node = 2
other = "clients"
[[fault]]
at_s = 7
kind = "cut one way"
node = 3
other = "clients"
lasts_s = 1
"""


def test_client_link_faults_take_effect_in_virtual_time() -> None:
    run = run_simulated(parse_scenario(CLIENTS_LINKS, "mine"), SEED)
    assert run.verdict.verdict == VALID, shown(run)
    assert [(fault.kind, fault.nodes, fault.missed) for fault in run.faults] == [
        ("cut", (1,), ""),
        ("cut", (1,), ""),
        ("latency", (1,), ""),
        ("reset", (2,), ""),
        ("cut one way", (3,), ""),
    ]
    assert [fault.text for fault in run.faults] == [
        "clients are cut off from node 1 for 1000 ms",
        "clients are cut off from node 1 for 1000 ms",
        "latency of node 1 to clients: it takes 100 ms longer, and up to 0 ms more",
        "reset of node 2 to clients",
        "cut one way of node 3 to clients",
    ]


# the command


def command(*arguments: str) -> tuple[int, str]:
    """Run the command. Return its exit code and its output, without the frames around error messages and their line
    breaks."""
    result = CliRunner().invoke(app, list(arguments))
    words = result.output.replace("│", " ")
    return result.exit_code, words if result.exit_code != 2 else " ".join(words.split())


def test_sim_scenario_command_prints_verdict_and_gaps_and_stores_the_run(tmp_path: Path) -> None:
    file, kept = tmp_path / "small.toml", tmp_path / "kept"
    file.write_text(SMALL)
    code, said = command("scenario", str(file), "--seed", "7", "--keep", str(kept))
    assert code == 0, said
    assert "small, seed 7: valid" in said
    assert "1.000 s: kill of node" in said
    assert "longest time without send: " in said
    assert RunFolder(kept).read_info().command == f"kraft sim scenario {file} --seed 7"
    code, said = command("scenario", str(file), "--keep", str(kept))
    assert code == 2
    assert "it exists already" in said


def test_sim_scenario_command_exits_with_1_if_a_run_is_invalid_and_3_if_unknown(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(UNCLEAN)
    code, said = command("scenario", str(file), "--seed", "7")
    assert code == 1, said
    assert "mine, seed 7: invalid" in said
    file.write_text(SMALL.replace("[[fault]]", '[expects]\nmust_find = ["unseen"]\n[[fault]]'))
    code, said = command("scenario", str(file), "--seed", "7")
    assert code == 3, said
    assert "small" not in said
    assert "unknown" in said


def test_sim_scenario_command_reports_what_is_wrong_with_a_scenario() -> None:
    code, said = command("scenario", "broker-crush")
    assert code == 2
    assert "did you mean" in said
    code, said = command("scenarios")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == list(BUILT_IN)


def scenario_of(text: str) -> Scenario:
    return parse_scenario(text, "mine")


@pytest.mark.parametrize("kind", ["full disk", "failing sync", plan.EMPTY_DISK])
def test_a_simulated_broker_whose_disk_fails_restarts_without_losing_records(kind: str) -> None:
    lasts = "" if kind == plan.EMPTY_DISK else "lasts_s = 1"
    text = SMALL.replace('kind = "kill"', f'kind = "{kind}"\n{lasts}')
    run = run_simulated(scenario_of(text), SEED)
    assert run.verdict.verdict == VALID, shown(run)
    (fault,) = run.faults
    (node,) = fault.nodes
    last = run.samples[-1]
    assert node in last.running
    assert all(set(one.isr) == {1, 2, 3} for one in last.partitions)
