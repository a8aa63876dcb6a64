"""Tests that a failing run leaves a plan file, which replays the same run, can be shrunk, and gives a report.

A bug is planted for the whole test: the commands find it by a seed, as a user would.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from kraft.broker.partition.partition import Partition
from kraft.client import Consumer
from kraft.control.brokers.probing import ProbeOutcome, Probing
from kraft.sim.check.base import Finding
from kraft.sim.cluster.fold import MetadataFold
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.commands import SECONDS_MAX, app
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import BLACKOUT, DIRECTORY, OVERRIDES, PLAN_MS_MAX, Fault, Plan, allows
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.plan_file import RecordedPlan, read_plan, write_plan
from kraft.sim.run.run import RunResult, Signature, run_plan
from kraft.sim.run.shrink import NotFailing, Shrinker, describe
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.originals import plant

ALONE = ("--jobs", "1", "--seconds")


def kraft_sim(*arguments: object) -> tuple[int, str]:
    """Run `kraft sim` with these arguments; return its exit code and output."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def acknowledge_what_is_only_appended(patch: pytest.MonkeyPatch) -> None:
    original = Partition.settle

    def twin(self: Partition) -> None:
        while self.waiting:
            self.waiting.popleft()[1].acknowledged(self, ErrorCode.NONE)
        original(self)

    plant(patch, Partition, "settle", twin)


def take_one_bad_result_for_proof(patch: pytest.MonkeyPatch) -> None:
    def twin(self: Probing, watch: Any, outcome: ProbeOutcome, now_ms: int) -> None:
        if outcome in (ProbeOutcome.REFUSED, ProbeOutcome.CLOSED, ProbeOutcome.OTHER):
            watch.proven_ms = now_ms

    plant(patch, Probing, "_judge", twin)


@pytest.mark.slow
def test_a_failing_seed_is_replayed_shrunk_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge_what_is_only_appended(monkeypatch)
    code, said = kraft_sim("--seed", 3, *ALONE, 1, "--crashes", 1, "--failures", tmp_path)
    file, small = tmp_path / "seed-3.json", tmp_path / "seed-3.small.json"
    assert code == 1
    assert f"kraft sim replay {file}" in said
    recorded = read_plan(file)
    assert recorded.failure is not None
    check = recorded.failure.check
    assert check in ("D1", "D11")

    code, said = kraft_sim("replay", file)
    assert code == 1
    assert "the trace is the same" in said
    assert f"{check} fails again" in said

    code, said = kraft_sim("shrink", file)
    assert code == 0
    shrunk = read_plan(small)
    assert shrunk.failure == recorded.failure
    assert not shrunk.plan.faults
    assert shrunk.plan.operations <= 3
    assert len(shrunk.plan.work) == 1
    assert shrunk.plan.shape.controllers == 1
    assert small.stat().st_size < 1_500

    code, said = kraft_sim("replay", small)
    assert code == 1
    assert "the trace is the same" in said
    assert f"{check} fails again" in said

    code, said = kraft_sim("report", small)
    assert code == 1
    assert f"FOUND  {check}: {recorded.failure.text}" in said
    assert "orders-" in said
    assert "at that moment" in said
    page = (tmp_path / "seed-3.small.html").read_text()
    assert recorded.failure.text in page
    assert 'class="name evidence"' in page


@pytest.mark.slow
def test_shrinking_keeps_a_crash_that_the_failure_needs_and_the_report_page_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_one_bad_result_for_proof(monkeypatch)
    kraft_sim("--seed", 12, *ALONE, 4, "--failures", tmp_path)
    file, small = tmp_path / "seed-12.json", tmp_path / "seed-12.small.json"
    before = read_plan(file)
    assert before.failure is not None
    assert before.failure.check == "K1"
    kraft_sim("shrink", file, "--runs", 30)
    after = read_plan(small)
    assert 1 <= len(after.plan.faults) < len(before.plan.faults)
    assert after.plan.operations < before.plan.operations / 3
    kraft_sim("report", small)
    page = small.with_suffix(".html").read_text()
    pictures = [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)]
    assert pictures
    names = [element.text for element in pictures[-1].iter() if element.get("class", "").startswith("name")]
    assert after.plan.faults[-1].kind in names
    assert {"controller 101", "broker 1"} <= set(names)
    assert all(target.startswith("#") for target in re.findall('href="([^"]*)"', page))
    assert "src=" not in page


def test_a_plan_that_does_not_fail_is_not_shrunk(tmp_path: Path) -> None:
    file = tmp_path / "good.json"
    nothing = Plan(duration_ms=100, ends_early=True)
    write_plan(file, RecordedPlan(nothing, "", Signature("D1", "something"), "", "0"))
    code, said = kraft_sim("shrink", file)
    assert code == 1
    assert "this plan does not fail D1: something" in said
    code, said = kraft_sim("report", file)
    assert code == 0
    assert "nothing was found" in said
    with pytest.raises(NotFailing):
        list(Shrinker(nothing, Signature("D1", "something")).steps())


def test_kraft_sim_with_a_file_that_has_no_plan_ends_with_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"format": 1}))
    for verb in ("replay", "shrink", "report"):
        code, said = kraft_sim(verb, file)
        assert code == 2
        assert "no plan" in said
    assert kraft_sim("replay", tmp_path / "missing.json")[0] == 2


def test_kraft_sim_with_a_number_instead_of_a_command_suggests_the_seed_option() -> None:
    code, said = kraft_sim("42")
    assert code == 2
    assert "A seed is given as --seed 42" in said
    code, said = kraft_sim("repaly")
    assert code == 2
    assert "repaly" in said
    assert "--seed" not in said


def test_a_run_longer_than_a_plan_file_allows_is_rejected() -> None:
    assert SECONDS_MAX * 1000 == PLAN_MS_MAX
    code, said = kraft_sim("--seed", 1, "--seconds", SECONDS_MAX + 1)
    assert code == 2
    assert f"x<={SECONDS_MAX}" in said
    for verb in ((), ("cores",), ("determinism",)):
        for seconds, why in (("nan", "nan is no number of seconds"), ("inf", f"x<={SECONDS_MAX}")):
            code, said = kraft_sim(*verb, "--seconds", seconds)
            assert (code, why in said) == (2, True), said


def test_the_size_of_a_plan_is_described_in_words() -> None:
    fault = Fault(at_ms=1, kind="kill", node=1)
    one, two = ClusterShape(controllers=1, brokers=1), ClusterShape(controllers=3, brokers=2)
    told = "1 fault, 0 operations of 0 clients, 1 controller and 1 broker, 5 ms"
    assert describe(Plan(duration_ms=5, faults=(fault,), shape=one)) == told
    told = "2 faults, 0 operations of 0 clients, 3 controllers and 2 brokers, 5 ms"
    assert describe(Plan(duration_ms=5, faults=(fault, fault), shape=two)) == told


def test_kraft_sim_rejects_zero_seeds() -> None:
    code, said = kraft_sim("--seeds", 0)
    assert (code, "add --fresh" in said) == (2, True), said


def test_shrinking_the_plan_of_a_passed_run_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "good.json"
    write_plan(file, RecordedPlan(Plan(duration_ms=100, ends_early=True), ""))
    code, said = kraft_sim("shrink", file)
    assert code == 2
    assert "there is nothing to shrink" in " ".join(said.split())


def test_kraft_sim_with_an_unwritable_file_ends_with_a_usage_error_before_the_run(tmp_path: Path) -> None:
    file, blocked = tmp_path / "good.json", tmp_path / "file" / "x"
    write_plan(file, RecordedPlan(Plan(duration_ms=100, ends_early=True), "", Signature("D1", "something")))
    (tmp_path / "file").touch()
    for arguments in (
        ("--seed", 1, "--keep", "--failures", blocked),
        ("report", file, "--out", blocked),
        ("report", file, "--out", tmp_path),
        ("shrink", file, "--out", blocked),
    ):
        code, framed = kraft_sim(*arguments)
        said = " ".join(framed.replace("│", " ").split())
        assert code == 2
        assert "virtual" not in said
        assert "nothing can be written" in said or "is a folder" in said


def test_kraft_sim_rejects_keeping_the_plans_of_runs_that_are_recorded_already(tmp_path: Path) -> None:
    code, framed = kraft_sim("--seed", 1, "--keep", "--resume", tmp_path / "runs")
    assert code == 2
    assert "--keep and --resume" in framed
    assert "virtual" not in framed


def test_a_run_whose_checks_use_stale_metadata_has_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = MetadataFold.take

    def take(fold: MetadataFold, batches: Iterable[bytes]) -> None:
        if fold.end_offset < 32:  # all nodes are up by then; the last start adds to it
            honest(fold, batches)

    monkeypatch.setattr(MetadataFold, "take", take)
    found = run_plan(Plan(duration_ms=1_000)).findings
    assert any(one.check == "M1" and "stale metadata" in one.text for one in found)


def test_a_report_page_is_written_to_a_new_folder(tmp_path: Path) -> None:
    file, page = tmp_path / "good.json", tmp_path / "pages" / "of today" / "good.html"
    write_plan(file, RecordedPlan(Plan(duration_ms=100, ends_early=True), ""))
    assert kraft_sim("report", file, "--out", page)[0] == 0
    assert page.exists()


@pytest.mark.slow
def test_an_exception_of_a_workload_client_is_a_finding_and_the_next_seeds_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, polls = Consumer.poll, itertools.count(1)

    async def twin(self: Consumer, **settings: Any) -> Any:
        if next(polls) == 20:
            raise ValueError("the 20th poll")
        return await original(self, **settings)

    monkeypatch.setattr(Consumer, "poll", twin)
    code, said = kraft_sim("--seed", 1, "--seeds", 2, *ALONE, 1, "--crashes", 0, "--failures", tmp_path)
    assert code == 1
    assert "1 of 2 seeds passed" in said
    recorded = read_plan(tmp_path / "seed-1.json")
    assert recorded.failure == Signature("N1", "the run ended with ValueError('the #th poll')")
    assert recorded.trace_hash

    polls = itertools.count(1)
    again = run_plan(recorded.plan, recorded.failure)
    assert [Signature.of(finding) for finding in again.findings] == [recorded.failure]
    assert again.trace_hash == recorded.trace_hash


def with_settings(**overrides: str) -> ClusterShape:
    return ClusterShape(overrides={**OVERRIDES, **{name.replace("_", "."): value for name, value in overrides.items()}})


@pytest.mark.parametrize(
    ("fault", "shape"),
    [
        (Fault(at_ms=1, kind=BLACKOUT, back_ms=1), with_settings(log_flush_interval_messages="1")),
        (Fault(at_ms=1, kind=DIRECTORY, node=1, duration_ms=1), replace(with_settings(), log_dirs=2)),
    ],
    ids=[BLACKOUT, DIRECTORY],
)
def test_shrinking_removes_a_fault_together_with_the_setting_that_allows_it(fault: Fault, shape: ClusterShape) -> None:
    """If the setting were kept, a smaller plan would fail for another reason than the one that was found."""
    tried: list[Plan] = []

    def run(plan: Plan, failure: Signature) -> RunResult:
        tried.append(plan)
        found = (Finding(failure.check, 1, 10, failure.text, {}),) if plan.faults else ()
        return RunResult(plan, found, (), {}, {}, (), (), "", (), 20, 0)

    shrinker = Shrinker(Plan(duration_ms=5, faults=(fault,), shape=shape), Signature("D1", "lost"), run=run)
    list(shrinker.steps())
    assert len(tried) > 10
    assert shrinker.smallest.faults
    assert allows(shrinker.smallest.shape, fault.kind)
    assert all(allows(plan.shape, each.kind) for plan in tried for each in plan.faults)


def test_a_run_skips_a_planned_fault_that_its_cluster_need_not_tolerate() -> None:
    faults = (
        Fault(at_ms=0, kind=BLACKOUT, back_ms=50),
        Fault(at_ms=0, kind=DIRECTORY, lane=1, node=1, duration_ms=50, back_ms=50),
    )
    result = run_plan(Plan(duration_ms=500, faults=faults, ends_early=True))
    assert not result.history
    assert not result.findings


def test_findings_during_the_teardown_of_a_run_that_was_stopped_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge_what_is_only_appended(monkeypatch)
    plan = draw_plan(3, FaultSettings(duration_ms=2_000, crashes=0, network_faults=0))
    whole = run_plan(plan)
    first = whole.findings[0]
    stopped = run_plan(plan, Signature.of(first))
    assert [str(finding) for finding in stopped.findings] == [str(first)]
    assert first.at_ms <= stopped.virtual_ms < first.at_ms + 100 < whole.virtual_ms
