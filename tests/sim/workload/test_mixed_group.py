"""Tests of the mixed group of a run: what its members do, and that checks find forbidden behaviour."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.consumer_group import targets
from kraft.broker.consumer_group.records import TargetEpochValue
from kraft.broker.group import offsets
from kraft.client.commits import Commits
from kraft.sim.check.consumer_groups.ledger import GroupLedger
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.drawn_mixed_group import VERBS, MemberChoices
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    ADD_TOPIC,
    BE_BUSY,
    CHANGE_SUBSCRIPTION,
    CUT_OFF_MEMBER,
    END_MEMBER,
    GROUP_COORDINATOR,
    GROUP_ROLES,
    GROW_TOPIC,
    KILL_MEMBER,
    MIXED_GROUP,
    MOVE_COORDINATOR,
    OVERRIDES,
    SET_GROUP_CONFIG,
    START_MEMBER,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.swarm import CONSUMER_GROUP_SETTINGS, draw_plan
from kraft.sim.run.run import ClusterRun, RunSettings
from kraft.sim.workload import group_member
from kraft.sim.workload.group_member import WAITED_FOR, WAYS
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.bank import BANK
from tests.bugbank.consumer_groups.consumer_group_schedules import start
from tests.bugbank.originals import plant

SHAPE = ClusterShape(controllers=1, overrides={**OVERRIDES, **CONSUMER_GROUP_SETTINGS})
DURATION_MS = 10_000
NEW_CHECKS = ("G1b", "G2b", "G2c", "G3c", "G6b", "G9b")


def at(at_ms: int, verb: str, target: int = 0, amount: int = 0) -> PlannedOperation:
    return PlannedOperation(at_ms, verb, target, amount)


def played(
    *work: PlannedOperation, faults: tuple[Fault, ...] = (), seed: int = 1, duration_ms: int = DURATION_MS
) -> tuple[ClusterRun, set[str]]:
    """Carry out a run; return it, and the codes of its findings."""
    plan = Plan(seed=seed, duration_ms=duration_ms, shape=SHAPE, faults=faults, work={MIXED_GROUP: work})
    run = ClusterRun(seed, RunSettings(plan=plan))
    return run, {finding.check for finding in run.run().findings}


TWO = (start(0, 0), start(200, 1))


@pytest.fixture(scope="module")
def busy_run() -> tuple[ClusterRun, set[str]]:
    work = (
        *TWO,
        start(300, 2),
        at(1_500, GROW_TOPIC),
        at(2_000, KILL_MEMBER, 1),
        at(2_200, CHANGE_SUBSCRIPTION, 0, 1),
        at(2_500, SET_GROUP_CONFIG, 0, 2),
        at(3_000, ADD_TOPIC),
        start(3_500, 1),
        at(4_000, END_MEMBER, 2),
        at(4_500, MOVE_COORDINATOR, 0, 1),
        start(5_000, 2),
        at(5_500, CUT_OFF_MEMBER, 1, 7_000),
    )
    killed = Fault(at_ms=6_000, kind="kill", role=GROUP_COORDINATOR, back_ms=500)
    return played(*work, faults=(killed,))


def test_members_of_the_consumer_protocol_process_all_records_under_all_operations(
    busy_run: tuple[ClusterRun, set[str]],
) -> None:
    run, found = busy_run
    assert not found
    assert run.mixed.processed > 100
    assert run.nemesis.moments[GROUP_COORDINATOR]


def test_the_checks_of_consumer_groups_have_input_in_a_run(busy_run: tuple[ClusterRun, set[str]]) -> None:
    seen = {check.id: check.seen for check in busy_run[0].cluster.watch.suite.checks.checks}
    assert all(seen[check] for check in (*NEW_CHECKS, "G7b"))


def test_a_group_that_changes_its_protocol_and_back_processes_all_records() -> None:
    changes = []
    for number in (0, 1, 2):
        changes += [
            start(100 * number, number, is_consumer_protocol=False),
            at(3_000 + 700 * number, END_MEMBER, number),
            start(3_200 + 700 * number, number),
            at(7_000 + 700 * number, END_MEMBER, number),
            start(7_200 + 700 * number, number, is_consumer_protocol=False),
        ]
    kinds = set()
    watched = GroupLedger.add

    def noting(self: GroupLedger, entry: Any) -> None:
        watched(self, entry)
        group = self.group(MIXED_GROUP)
        if group.member_ids:
            kinds.add(group.is_consumer_group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupLedger, "add", noting)
        run, found = played(*sorted(changes, key=lambda each: each.at_ms))
    assert not found
    assert kinds == {True, False}
    assert run.mixed.processed > 100


def test_seeds_draw_all_operations_and_faults_of_the_mixed_group_and_both_protocols() -> None:
    plans = [draw_plan(seed, FaultSettings(duration_ms=30_000)) for seed in range(1, 121)]
    drawn = [plan for plan in plans if MIXED_GROUP in plan.work]
    assert {each.verb for plan in drawn for each in plan.work[MIXED_GROUP]} == set(VERBS)
    assert {fault.role for plan in drawn for fault in plan.faults} >= set(GROUP_ROLES)
    others = [fault for plan in plans if plan not in drawn for fault in plan.faults]
    assert not [fault for fault in others if fault.role in GROUP_ROLES]
    protocols = [
        {MemberChoices.of(each.amount).is_consumer_protocol for each in plan.work[MIXED_GROUP]
         if each.verb == START_MEMBER}
        for plan in drawn
    ]  # fmt: skip
    assert {True} in protocols
    assert {True, False} in protocols
    assert all(CONSUMER_GROUP_SETTINGS.items() <= plan.shape.overrides.items() for plan in drawn)


def test_the_amount_of_a_start_encodes_all_choices_of_a_member() -> None:
    amounts = range(2 * 4 * 4 * 3)
    assert [MemberChoices.of(amount).amount for amount in amounts] == list(amounts)


@pytest.mark.parametrize(
    ("bug", "check"),
    [("B48b", "G7b"), ("B49c", "G6b"), ("B51b", "G2b"), ("B51c", "G2c"), ("B51d", "G2c"), ("B53c", "G9b")],
)
def test_checks_catch_planted_bugs_of_consumer_groups(bug: str, check: str) -> None:
    classic = [start(100 * number, number, is_consumer_protocol=bug != "B51c") for number in (0, 1)]
    changes = {
        "B48b": (at(2_000, BE_BUSY, 0), start(2_500, 2)),
        "B49c": (),
        "B51b": (),
        "B51c": (start(4_000, 2),),
        "B51d": (at(2_500, CUT_OFF_MEMBER, 0, 7_000),),
        "B53c": (at(1_500, GROW_TOPIC),),
    }
    with next(each for each in BANK if each.id == bug).planted():
        assert check in played(*classic, *changes[bug])[1]


def test_checks_catch_an_assignment_of_an_epoch_that_the_group_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(epoch: int, timestamp: int) -> TargetEpochValue:
        return TargetEpochValue(epoch + 1, timestamp)

    monkeypatch.setattr(targets, "TargetEpochValue", twin)
    assert "G1b" in played(*TWO, duration_ms=2_000)[1]


def test_checks_catch_a_coordinator_that_commits_another_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    original = offsets.OffsetValue

    def twin(offset: int, *rest: Any, **more: Any) -> Any:
        return original(max(0, offset - 1), *rest, **more)

    monkeypatch.setattr(offsets, "OffsetValue", twin)
    assert "G3c" in played(*TWO, duration_ms=3_000)[1]


def test_checks_catch_a_commit_of_a_member_that_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member leaves because its application takes too long, and the application then commits."""
    choices = MemberChoices(True, WAYS.index(WAITED_FOR), 0, 0)
    work = (at(0, START_MEMBER, 0, choices.amount), at(100, START_MEMBER, 1, choices.amount), at(2_000, BE_BUSY, 1))
    monkeypatch.setattr(group_member, "TURNS_PER_COMMIT", 1)
    plant(monkeypatch, Commits, "_require_held", lambda *_: None)
    plant(monkeypatch, offsets, "consumer_commit_error", lambda *_: ErrorCode.NONE)
    assert "G4b" in played(*work)[1]
