"""Tests with short whole runs of the in-memory cluster: every check gets input, and a seed gives the same run in any
process.

`make sim` runs many seeds for longer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.commands import app
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import IDEMPOTENT, OVERRIDES, PLAIN, SEND, Plan, PlannedOperation
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run import run as run_module
from kraft.sim.run.cold_starts import cold_start
from kraft.sim.run.run import RunSettings, run_plan, run_seed
from kraft.sim.workload.workload import Workload
from kraft.sim.world.options import MILLISECOND_NS, WorldOptions

FAULTS = FaultSettings(duration_ms=4_000, crashes=1)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_a_run_with_a_crash_keeps_every_invariant(seed: int) -> None:
    result = run_seed(seed, RunSettings(faults=FAULTS))
    assert not result.findings, (result.history, result.findings)
    assert result.counters["acknowledged"] > 0
    assert result.counters["crashes"] >= 1


@pytest.mark.slow
def test_a_seed_run_twice_in_one_process_gives_the_same_trace() -> None:
    settings = RunSettings(faults=FaultSettings(duration_ms=1_500, crashes=1))
    first, second, other = (run_seed(seed, settings) for seed in (5, 5, 6))
    assert first.trace_hash == second.trace_hash != other.trace_hash
    assert first.counters == second.counters
    assert first.history == second.history


@pytest.mark.slow
def test_every_check_has_input_within_a_few_runs() -> None:
    """A run in which a check had no input proves nothing about its invariant."""
    settings = RunSettings(faults=FaultSettings(duration_ms=6_000, crashes=2))
    blind = set.intersection(*(set(run_seed(seed, settings).unseen) for seed in (1, 3, 9)))
    assert blind <= {"R11", "R15", "R16", "M15", "D9", "D16", "D19", "K6", "L11"}


def test_guarantees_of_idempotent_producers_are_not_counted_in_a_run_without_such_a_producer() -> None:
    plan = draw_plan(5, FaultSettings(duration_ms=500, crashes=0, network_faults=0))
    without = replace(plan, work={name: work for name, work in plan.work.items() if name != IDEMPOTENT})
    result = run_plan(without)
    assert not result.findings
    assert (result.counters["C1"], result.counters["T1"]) == (0, 0)
    assert result.counters["L10"] > 0


@pytest.mark.parametrize("voters", [3, 5])
def test_a_cold_start_of_a_quorum_takes_few_voting_rounds(voters: int) -> None:
    for seed in range(3):
        start = cold_start(seed, voters)
        assert start.is_good, start
        assert start.took_ms < 1_000


def kraft_sim(*arguments: str) -> tuple[int, str]:
    """Run `kraft sim` with these arguments; return its exit code and output."""
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


@pytest.mark.slow
def test_kraft_sim_reports_each_seed_and_the_totals(tmp_path: Path) -> None:
    code, said = kraft_sim(
        *("--seed", "7", "--seeds", "2", "--seconds", "1", "--crashes", "1", "--jobs", "1"), "--failures", str(tmp_path)
    )
    assert code == 0
    assert "seed 7 " in said
    assert "seed 8 " in said
    assert "2 of 2 seeds passed" in said
    assert "cells were met" in said
    assert "(no failure: only 30 seeds and more" in said
    assert not list(tmp_path.iterdir())


def test_the_plan_of_a_passed_run_is_kept_on_request(tmp_path: Path) -> None:
    options = ("--seconds", "0.3", "--crashes", "0", "--jobs", "1", "--failures", str(tmp_path))
    code, said = kraft_sim("--seed", "7", "--keep", *options)
    file = tmp_path / "seed-7.json"
    assert code == 0
    assert f"kraft sim replay {file}" in said
    code, said = kraft_sim("replay", str(file))
    assert code == 0
    assert "the trace is the same as pykraft" in said


def test_the_replay_of_a_handwritten_plan_needs_no_recorded_trace_hash(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "simulator.md"
    file = tmp_path / "mine.json"
    file.write_text(page.read_text().partition("```json\n")[2].partition("```")[0])
    code, said = kraft_sim("replay", str(file))
    assert code == 0
    assert "seed 1 " in said
    assert "1 crashes" in said
    assert "trace is" not in said
    assert "recorded" not in said


def test_kraft_sim_prints_a_random_seed_so_that_it_can_be_run_again(tmp_path: Path) -> None:
    options = ("--seconds", "0.3", "--crashes", "0", "--jobs", "1", "--failures", str(tmp_path))
    _, said = kraft_sim("--fresh", *options)
    line = said.splitlines()[0]
    _, again = kraft_sim("--seed", line.split()[1], *options)
    assert again.splitlines()[0].rpartition("trace")[2] == line.rpartition("trace")[2]


def test_kraft_sim_cold_starts_counts_quorum_starts_by_voting_rounds() -> None:
    code, said = kraft_sim("cold-starts", "--starts", "2", "--jobs", "1")
    assert code == 0
    assert "3 voters, 2 cold starts: rounds" in said


def test_a_backlog_of_deliveries_may_exceed_the_time_limit_while_it_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disks are slow, each record is synced, and each fetch of a follower returns one record."""
    monkeypatch.setattr(run_module, "SETTLED_MS_MAX", 500)
    overrides = {**OVERRIDES, "log.flush.interval.messages": "1", "replica.fetch.max.bytes": "1"}
    sends = tuple(PlannedOperation(at_ms, SEND) for at_ms in range(50))
    plan = Plan(
        duration_ms=100,
        shape=ClusterShape(controllers=1, overrides=overrides),
        options=WorldOptions(sync_delay_jitter_ns=60 * MILLISECOND_NS),
        batch_bytes=1,
        work={PLAIN: sends},
    )
    result = run_plan(plan)
    assert not result.findings, result.findings[0]
    assert result.counters["acknowledged"] == len(sends)


def test_checks_catch_a_delivery_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "SETTLED_MS_MAX", 500)
    monkeypatch.setattr(Workload, "is_settled", property(lambda self: False))
    plan = Plan(
        duration_ms=100,
        shape=ClusterShape(controllers=1, overrides=OVERRIDES),
        work={PLAIN: (PlannedOperation(0, SEND),)},
    )
    assert "L7" in {finding.check for finding in run_plan(plan).findings}
