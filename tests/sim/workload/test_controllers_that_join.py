"""Tests of controllers that become voters by themselves: after an administrator removed them, and with an
empty disk."""

from __future__ import annotations

import pytest

from kraft.controller.voter_membership import VoterMembership
from kraft.sim.check.base import Finding
from kraft.sim.cluster.shape import AUTO_JOIN, ClusterShape
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import EMPTY_DISK, OVERRIDES, REMOVE_VOTER, VOTER_CHANGER, Fault, Plan, PlannedOperation
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import ClusterRun, RunSettings

SHAPE = ClusterShape(overrides={**OVERRIDES, AUTO_JOIN: "true"}, dynamic_voters=True)
REPLACED = tuple(
    Fault(at_ms=500 + 6_000 * number, kind=EMPTY_DISK, node=node, back_ms=300)
    for number, node in enumerate(SHAPE.controller_ids)
)
TAKEN_OUT = {VOTER_CHANGER: tuple(PlannedOperation(500 + 5_000 * number, REMOVE_VOTER, number) for number in range(3))}
DRAWN = FaultSettings(duration_ms=30_000)


def carried_out(plan: Plan) -> ClusterRun:
    run = ClusterRun(1, RunSettings(plan=plan))
    run.run()
    return run


def found_by(run: ClusterRun) -> list[Finding]:
    return [*run.report.findings, *(found for check in run.checks for found in check.findings)]


def test_controllers_restarted_one_by_one_with_empty_disks_become_voters_again() -> None:
    run = carried_out(Plan(shape=SHAPE, duration_ms=18_000, faults=REPLACED))
    assert not found_by(run), found_by(run)[0]
    assert run.disturbances.met == {EMPTY_DISK: 3}
    assert run.cluster.watch.suite.membership.added == 3
    assert run.cluster.absent_voters() == []


def test_removed_controllers_rejoin_the_voters_by_themselves() -> None:
    run = carried_out(Plan(shape=SHAPE, duration_ms=15_000, work=TAKEN_OUT))
    assert not found_by(run), found_by(run)[0]
    assert run.cluster.watch.suite.membership.added == 3
    assert run.cluster.absent_voters() == []


def test_checks_catch_a_controller_that_does_not_rejoin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VoterMembership, "_needed_change", lambda self: None)
    run = carried_out(Plan(shape=SHAPE, duration_ms=2_000, faults=REPLACED[:1]))
    assert [(found.check, found.text) for found in found_by(run)][:1] == [("L5", "the cluster did not get well")]
    assert run.cluster.absent_voters() == [101]


@pytest.mark.parametrize(
    "plan",
    [
        Plan(shape=SHAPE, duration_ms=2_000, faults=REPLACED[:1], work=TAKEN_OUT),
        Plan(shape=ClusterShape(overrides=OVERRIDES, dynamic_voters=True), duration_ms=2_000, faults=REPLACED[:1]),
        Plan(shape=ClusterShape(2, 3, SHAPE.overrides, dynamic_voters=True), duration_ms=2_000, faults=REPLACED[:1]),
    ],
    ids=["somebody takes voters out", "they do not join by themselves", "there are two"],
)
def test_an_empty_disk_fault_is_skipped_if_a_controller_could_not_be_replaced(plan: Plan) -> None:
    assert carried_out(plan).disturbances.met == {}


def test_no_second_controller_loses_its_disk_before_the_first_has_rejoined() -> None:
    first, second = REPLACED[:2]
    hasty = (first, Fault(at_ms=1_000, kind=EMPTY_DISK, lane=1, node=second.node, back_ms=300))
    run = carried_out(Plan(shape=SHAPE, duration_ms=4_000, faults=hasty))
    assert run.disturbances.met == {EMPTY_DISK: 1}
    assert not found_by(run), found_by(run)[0]


def test_some_drawn_worlds_with_voter_changes_have_controllers_that_join_by_themselves() -> None:
    plans = [plan for seed in range(1, 201) if (plan := draw_plan(seed, DRAWN)).shape.dynamic_voters]
    joining = [plan for plan in plans if plan.shape.joins_by_itself]
    removing = [plan for plan in joining if VOTER_CHANGER in plan.work]
    assert len(plans) // 4 <= len(joining) <= 3 * len(plans) // 4
    assert len(joining) // 4 <= len(removing) <= 3 * len(joining) // 4
    for plan in joining:
        assert {each.verb for each in plan.work.get(VOTER_CHANGER, ())} <= {REMOVE_VOTER}
        hit = [fault for fault in plan.faults if fault.kind == EMPTY_DISK and fault.node in plan.shape.controller_ids]
        assert hit or plan in removing or not plan.faults
