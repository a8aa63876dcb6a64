"""`kraft sim cores`: runs of cores alone over many seeds, their report, and that a seed always gives the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from kraft.broker.replica import follower as replica_follower
from kraft.raft import follower
from kraft.raft.core import Core
from kraft.sim.commands import app
from kraft.sim.cores import campaign, runs
from kraft.sim.cores.campaign import LARGE_SEEDS, CoresCampaign, run_campaign
from kraft.sim.cores.chaos import shape_of
from kraft.sim.cores.runs import REPLICAS, CoresSettings, run_seed

SHORT = CoresSettings(duration_ms=2_000, trace_lines=1_000_000)
TRACE_HASH = """
import hashlib
from kraft.sim.cores.chaos import run_chaos
from kraft.sim.cores.world import CoreWorld
world = CoreWorld(5, 3, 1)
world.trace = []
run_chaos(5, duration_ms=2000, world=world)
print(hashlib.sha256("\\n".join(world.trace).encode()).hexdigest(), world.steps)
"""


def kraft_sim(*arguments: str) -> tuple[int, str]:
    """Run `kraft sim cores` with these arguments in this process; return exit code and output."""
    done = CliRunner().invoke(app, ["cores", "--seconds", "3", "--jobs", "1", *arguments])
    return done.exit_code, done.output


def acknowledge_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    original = follower.send_fetch_if_due

    def twin(core: Core) -> None:
        kept, core.log.synced_end_offset = core.log.synced_end_offset, core.log.end_offset
        original(core)
        core.log.synced_end_offset = kept

    monkeypatch.setattr(follower, "send_fetch_if_due", twin)


def test_sim_cores_reports_seeds_steps_speed_and_faults() -> None:
    code, said = kraft_sim("--seeds", "6")
    assert code == 0
    assert "raft: 6 of 6 seeds passed, all checks on" in said
    assert "replicas: 6 of 6 seeds passed, all checks on" in said
    assert said.count("steps (inputs to cores)") == said.count("steps per CPU second") == 2
    assert "kill " in said
    assert "R9 " in said
    assert "D4 " in said


def test_sim_cores_runs_only_the_kind_of_core_given_by_the_option_what() -> None:
    code, said = kraft_sim("--seeds", "2", "--what", "replicas")
    assert code == 0
    assert "raft:" not in said
    assert "replicas: 2 of 2 seeds passed" in said


def test_sim_cores_reports_its_figures_as_json() -> None:
    code, said = kraft_sim("--seeds", "3", "--json")
    kinds = json.loads(said)
    assert code == 0
    assert set(kinds) == {"raft", "replicas"}
    for figures, check, steps in ((kinds["raft"], "R7", 1_000), (kinds["replicas"], "D2", 500)):
        assert figures["seeds"] == 3
        assert figures["steps"] > steps
        assert figures["steps_per_cpu_second"] > 0
        assert figures["happened"]["election"] > 0
        assert figures["seen"][check] > 0
        assert figures["failures"] == []


def test_sim_cores_finds_a_planted_raft_bug_and_its_seed_reproduces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge_before_the_sync(monkeypatch)
    code, said = kraft_sim("--seeds", "4", "--json")
    assert code == 1
    first, *_ = json.loads(said)["raft"]["failures"]
    assert first["check"] == "R19"
    code, said = kraft_sim("--what", "raft", "--seed", str(first["seed"]), "--log")
    assert code == 1
    assert first["evidence"] in said
    assert f"kraft sim cores --what raft --seed {first['seed']} --seconds 3 --log" in said
    assert "MetadataFetchRequest" in said
    assert "0 of 1 seeds passed" in said


def test_sim_cores_finds_a_planted_replica_bug_and_its_seed_reproduces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_follower, "truncation_offset", lambda log, epoch, end: log.high_watermark)
    code, said = kraft_sim("--seeds", "20", "--what", "replicas", "--json")
    assert code == 1
    first, *_ = json.loads(said)["replicas"]["failures"]
    assert first["check"] == "D9"
    code, said = kraft_sim("--seed", str(first["seed"]), "--log")
    assert code == 1
    assert "raft: 1 of 1 seeds passed" in said
    assert first["evidence"] in said
    assert f"kraft sim cores --what replicas --seed {first['seed']} --seconds 3 --log" in said
    assert "replicas: 0 of 1 seeds passed" in said


def test_sim_cores_without_checks_misses_the_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge_before_the_sync(monkeypatch)
    code, said = kraft_sim("--seeds", "4", "--no-checks")
    assert code == 0
    assert "4 of 4 seeds passed, checks off" in said
    assert "seen:" not in said


def test_sim_cores_reports_an_unexpected_exception_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(core: Core) -> None:
        raise KeyError("request_id")

    monkeypatch.setattr(follower, "send_fetch_if_due", broken)
    code, said = kraft_sim("--seed", "7")
    assert code == 1
    assert "seed 7 failed" in said
    assert "KeyError('request_id')" in said


def test_sim_cores_reports_a_quorum_without_progress_as_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "send_fetch_if_due", lambda core: None)
    run = run_seed(SHORT, 2)
    assert (run.failed, run.evidence) == ("stuck", "no leader after healing")


def test_seed_gives_the_same_steps_with_and_without_checks() -> None:
    checked, unchecked = run_seed(SHORT, 8), run_seed(CoresSettings(2_000, is_checked=False), 8)
    assert checked.steps == unchecked.steps
    assert checked.faults == unchecked.faults
    assert not unchecked.seen


def test_seed_gives_the_same_core_trace_in_every_process() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", TRACE_HASH],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(said) == 1


def test_seeds_draw_every_number_of_voters_and_observers() -> None:
    assert {shape_of(seed) for seed in range(18)} == {(v, o) for v in range(1, 6) for o in range(3)}


@pytest.mark.slow
def test_seeds_run_in_parallel_processes_give_the_same_results() -> None:
    def figures(campaign: CoresCampaign) -> tuple[object, ...]:
        return (campaign.steps, campaign.happened, campaign.seen, campaign.faults)

    for settings in (CoresSettings(duration_ms=500), CoresSettings(duration_ms=500, what=REPLICAS)):
        alone, together = (run_campaign(range(1, 9), settings, jobs, lambda line: None) for jobs in (1, 2))
        assert figures(alone) == figures(together)


@pytest.mark.slow
def test_every_core_check_observes_something_within_a_few_seeds() -> None:
    campaign = run_campaign(range(1, 25), CoresSettings(duration_ms=6_000), 1, lambda line: None)
    assert not campaign.failures
    assert not campaign.unknown


@pytest.mark.parametrize(("seeds", "code"), [(LARGE_SEEDS - 1, 0), (LARGE_SEEDS, 1)])
def test_large_campaign_fails_if_a_check_observed_nothing(
    monkeypatch: pytest.MonkeyPatch, seeds: int, code: int
) -> None:
    """In the patched campaign no run counts an observation for check R10."""
    original = runs.run_seed(CoresSettings(duration_ms=200), 1)

    def twin(_run: Any, chosen: range, _jobs: int, *, runs_per_process: int) -> Any:
        seen = Counter({name: 1 for name in runs.KNOWN_CHECKS["raft"] if name != "R10"})
        return (replace(original, seed=seed, seen=seen) for seed in chosen)

    monkeypatch.setattr(campaign, "in_processes", twin)
    exit_code, said = kraft_sim("--what", "raft", "--seeds", str(seeds))
    assert exit_code == code
    assert "unknown: nothing that matters was seen for R10" in said
    assert ("no failure" in said) == (not code)
    assert json.loads(kraft_sim("--what", "raft", "--seeds", "2", "--json")[1])["raft"]["unknown"] == ["R10"]
