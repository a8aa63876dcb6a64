"""Tests of the combined results of many runs: checks without input, and histories without a result, are reported as
unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kraft
from kraft.broker.partition.partition_states import TRANSITIONS
from kraft.sim.check.base import Finding
from kraft.sim.cluster.chronicle import STATES
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import FAULT_CLASSES, Fault, Plan
from kraft.sim.run import seed_campaign as campaign
from kraft.sim.run.fault_coverage import TRANSITION
from kraft.sim.run.kept_runs import CodeChanged, KeptRuns
from kraft.sim.run.run import RunResult, RunSettings, run_plan
from kraft.sim.run.seed_campaign import COVERING_SEEDS, LARGE_SEEDS, CampaignSettings, SeedCampaign


def result(*, undecided: int) -> RunResult:
    ran = run_plan(Plan(duration_ms=100, ends_early=True))
    assert not ran.findings
    return replace(ran, unseen=(), counters={**ran.counters, "undecided": undecided})


@pytest.mark.parametrize(("undecided", "verdict"), [(0, "valid"), (2, "unknown")])
def test_a_run_with_an_undecided_history_has_an_unknown_verdict(undecided: int, verdict: str) -> None:
    assert result(undecided=undecided).verdict == verdict


@pytest.mark.parametrize(
    ("seeds", "undecided", "is_good"), [(LARGE_SEEDS, 0, True), (LARGE_SEEDS, 1, False), (LARGE_SEEDS - 1, 1, True)]
)
def test_a_large_campaign_fails_with_an_undecided_history(
    monkeypatch: pytest.MonkeyPatch, seeds: int, undecided: int, is_good: bool
) -> None:
    known, unknown = result(undecided=0), result(undecided=undecided)

    def runs(_run: Any, chosen: range, _jobs: int) -> Iterator[tuple[RunResult, float]]:
        yield from ((unknown if seed == 7 else known, 1.0) for seed in chosen)

    monkeypatch.setattr(campaign, "in_processes", runs)
    said: list[str] = []
    assert SeedCampaign(CampaignSettings(range(seeds)), said.append).run() == is_good
    told = [line for line in said if line.startswith(f"unknown: the judgement of {undecided} ")]
    assert len(told) == bool(undecided)
    assert all(("no failure" in line) == is_good for line in told)


@pytest.mark.parametrize(
    ("seeds", "empty", "is_good"),
    [(COVERING_SEEDS, 0, True), (COVERING_SEEDS, 1, False), (COVERING_SEEDS - 1, 1, True)],
)
def test_a_very_large_campaign_fails_if_a_fault_class_never_coincided_with_a_cluster_state(
    monkeypatch: pytest.MonkeyPatch, seeds: int, empty: int, is_good: bool
) -> None:
    met = Counter({(kinds[0], state): 1 for kinds in FAULT_CLASSES.values() for state in STATES})
    for kind in FAULT_CLASSES["wear"][:empty]:
        del met[kind, STATES[0]]
    ran = replace(result(undecided=0), coverage=met)
    monkeypatch.setattr(campaign, "in_processes", lambda _run, chosen, _jobs: ((ran, 1.0) for _ in chosen))
    said: list[str] = []
    assert SeedCampaign(CampaignSettings(range(seeds)), said.append).run() == is_good
    told = [line for line in said if line.startswith("unmet: ")]
    assert len(told) == empty
    assert all(("no failure" in line) == is_good and f"that never met: wear and {STATES[0]}" in line for line in told)


@pytest.mark.parametrize(("seeds", "is_shown"), [(1, False), (2, True)])
def test_a_campaign_of_several_seeds_shows_the_coverage_table_and_codes_of_checks(
    monkeypatch: pytest.MonkeyPatch, seeds: int, is_shown: bool
) -> None:
    ran = replace(result(undecided=0), unseen=("R15", "R16"))
    monkeypatch.setattr(campaign, "in_processes", lambda _run, chosen, _jobs: ((ran, 1.0) for _ in chosen))
    said: list[str] = []
    assert SeedCampaign(CampaignSettings(range(seeds)), said.append).run()
    for part in ("-never-", "cells were met", "seen: ", "R15"):
        assert any(part in line for line in said) == is_shown


def test_a_campaign_lists_replica_transitions_that_never_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = result(undecided=0)
    taken = {name for name, count in ran.counters.items() if name.startswith(TRANSITION) and count}
    monkeypatch.setattr(campaign, "in_processes", lambda _run, chosen, _jobs: ((ran, 1.0) for _ in chosen))
    said: list[str] = []
    assert SeedCampaign(CampaignSettings(range(2)), said.append).run()
    (told,) = [line for line in said if "transitions of a replica's states" in line]
    assert told.startswith(f"{len(taken)} of {len(TRANSITIONS)} transitions")
    assert "log open + failed" in told, "no disk fails in a run without faults"
    assert "transition: log new + placed, without a folder" in taken
    assert not any(name.removeprefix(TRANSITION) in told for name in taken)
    assert not any(line.startswith("seen: ") and TRANSITION in line for line in said)


def test_a_campaign_of_a_single_seed_reports_its_checks_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = replace(result(undecided=0), unseen=("R15", "R16"), counters=Counter({"undecided": 1, "fault: kill": 2}))
    monkeypatch.setattr(campaign, "in_processes", lambda _run, _chosen, _jobs: iter([(ran, 1.0)]))
    said: list[str] = []
    assert SeedCampaign(CampaignSettings([42]), said.append).run()
    assert said[1:] == [
        "faults: kill 2",
        "checks: all that had something to judge held; 2 had nothing to judge in this one run (--seeds 20 tells "
        "which); histories whose judgement took too long and was given up: 1",
    ]


def test_a_campaign_reports_the_lowest_figures_of_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = result(undecided=0)
    faulty = replace(plain, plan=replace(plain.plan, faults=(Fault(at_ms=1, kind="kill"),)))

    def ran(base: RunResult, **counters: int) -> tuple[RunResult, float]:
        named = {name.replace("fault_", "fault: "): count for name, count in counters.items()}
        return replace(base, counters=Counter({**named, "acknowledged": counters["acknowledged"]})), 1.0

    runs = [
        ran(faulty, acknowledged=50, fault_kill=1, fault_cut=2, fault_pause=3),
        ran(faulty, acknowledged=70, fault_kill=9, fault_cut=0),
        ran(plain, acknowledged=60),
    ]
    monkeypatch.setattr(campaign, "in_processes", lambda _run, _chosen, _jobs: iter(runs))
    said: list[str] = []
    assert SeedCampaign(CampaignSettings(range(3)), said.append).run()
    (line,) = [each for each in said if each.startswith("least of a seed: ")]
    assert "50 records acknowledged, 6 faults, 1 kinds" in line


def test_a_campaign_continues_if_a_failing_plan_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    bad = replace(result(undecided=0), findings=(Finding("D1", 1, 2, "something", {}),))
    monkeypatch.setattr(campaign, "in_processes", lambda _run, chosen, _jobs: ((bad, 1.0) for _ in chosen))
    said: list[str] = []
    assert not SeedCampaign(CampaignSettings([1, 2], failures=tmp_path / "file"), said.append).run()
    assert len([line for line in said if line.startswith("  no plan is left, ") and "--failures" in line]) == 2
    assert any("D1" in line for line in said)


class Runs:
    """Replacement for the worker processes. `ran` are the seeds that were run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, bad: int = -1) -> None:
        self.ran: list[int] = []
        self._bad = bad
        self._good = replace(result(undecided=0), coverage={("kill", "election"): 2}, counters=Counter({"crashes": 3}))
        monkeypatch.setattr(campaign, "in_processes", self._run)

    def _run(self, _run: Any, seeds: list[int], _jobs: int) -> Iterator[tuple[RunResult, float]]:
        for seed in seeds:
            self.ran.append(seed)
            findings = (Finding("D1", 1, 2, "something", {}),) if seed == self._bad else ()
            yield replace(self._good, plan=replace(self._good.plan, seed=seed), findings=findings), 1.5


def summed(said: list[str]) -> list[str]:
    """Return the sums over all seeds, from recorded and new runs."""
    return [line for line in said if "cells were met" in line or line.startswith(("least of a seed", "seen: "))]


def of_three(kept: KeptRuns, tmp_path: Path) -> tuple[list[str], bool]:
    said: list[str] = []
    return said, SeedCampaign(CampaignSettings([1, 2, 3], failures=tmp_path, kept=kept), said.append).run()


def test_a_campaign_continues_from_recorded_runs_and_adds_them_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    first = Runs(monkeypatch, bad=2)
    before, is_good = of_three(KeptRuns(path, RunSettings()), tmp_path)
    assert not is_good
    assert first.ran == [1, 2, 3]
    with path.open("a") as file:
        file.write(path.read_text().splitlines()[0][:-20])  # incomplete, as if interrupted during the write
    again = Runs(monkeypatch)
    said, is_good = of_three(KeptRuns(path, RunSettings()), tmp_path)
    assert is_good
    assert again.ran == [2]
    assert said[0] == f"2 of 3 seeds have passed before, with this code: {path}"
    assert summed(said) == summed(before)
    last = Runs(monkeypatch)
    assert of_three(KeptRuns(path, RunSettings()), tmp_path)[1]
    assert last.ran == []


def test_recorded_runs_of_other_code_or_settings_are_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    Runs(monkeypatch)
    of_three(KeptRuns(path, RunSettings()), tmp_path)
    shorter = RunSettings(faults=FaultSettings(duration_ms=1_000))
    assert KeptRuns(path, shorter).found == {}
    assert set(KeptRuns(path, RunSettings()).found) == {1, 2, 3}
    code = tmp_path / "more"
    code.mkdir()
    (code / "changed.py").write_text("x = 1")
    kept = KeptRuns(path, RunSettings())
    run = kept.found[1]
    monkeypatch.setattr(kraft, "__path__", [*kraft.__path__, str(code)])
    assert KeptRuns(path, RunSettings()).found == {}
    with pytest.raises(CodeChanged, match="while seed 1 ran"):
        kept.keep(run)
