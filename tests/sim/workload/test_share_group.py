"""Tests of the share groups of a run: what their members do, and that checks find forbidden behaviour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.broker.share_coordinator.records import NO_OFFSET
from kraft.sim.check.observations import Observation
from kraft.sim.check.share_groups.feed import ShareFeed
from kraft.sim.check.share_groups.steps import OffsetsChanged
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.drawn_share_group import VERBS
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    ACKNOWLEDGING_LEADER,
    CUT_OFF_MEMBER,
    DELETE_SHARE_OFFSETS,
    END_MEMBER,
    GROW_TOPIC,
    HOLD_RECORDS,
    KILL,
    KILL_MEMBER,
    MOVE_COORDINATOR,
    MOVE_LEADER,
    OVERRIDES,
    PAUSE,
    SET_SHARE_OFFSETS,
    SHARE_GROUP,
    SHARE_LEADER,
    SHARE_OFFSET_VERBS,
    SHARE_ROLES,
    START_MEMBER,
    TRANSACTOR,
    WRITING_SHARE_COORDINATOR,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.swarm import SHARE_GROUP_SETTINGS, draw_plan
from kraft.sim.run.run import ClusterRun, RunSettings
from kraft.sim.workload.share_group import AT_ONCE, MOMENTS, WHEN_LEFT
from kraft.sim.workload.share_member import ACCEPTS, DECIDES, DOES_NOT_WAIT, RENEWS, WAYS
from tests.bugbank.bank import BANK
from tests.bugbank.share_groups.share_group_schedules import trials
from tests.bugbank.share_groups.share_trial import STEPS, ShareTrial

SHAPE = ClusterShape(controllers=1, overrides={**OVERRIDES, **SHARE_GROUP_SETTINGS})
DURATION_MS = 8_000
AGAIN_MIN = 20
"""Least number of records that members accept a second time after the first offset is set."""
CHECKS = tuple(f"S{number}" for number in range(1, 15))


def at(at_ms: int, verb: str, target: int = 0, amount: int = 0) -> PlannedOperation:
    return PlannedOperation(at_ms, verb, target, amount)


def start(at_ms: int, member: int, way: str = ACCEPTS) -> PlannedOperation:
    return at(at_ms, START_MEMBER, member, WAYS.index(way))


def played(
    *work: PlannedOperation, faults: tuple[Fault, ...] = (), seed: int = 1, duration_ms: int = DURATION_MS
) -> tuple[ClusterRun, set[str]]:
    """Carry out a run; return it, and the codes of its findings."""
    plan = Plan(seed=seed, duration_ms=duration_ms, shape=SHAPE, faults=faults, work={SHARE_GROUP: work})
    run = ClusterRun(seed, RunSettings(plan=plan))
    return run, {finding.check for finding in run.run().findings}


@pytest.fixture(scope="module")
def busy_run() -> tuple[ClusterRun, set[str]]:
    ways = (ACCEPTS, DECIDES, RENEWS, DOES_NOT_WAIT, DECIDES, ACCEPTS)
    work = (
        *(start(50 * member, member, way) for member, way in enumerate(ways)),
        at(1_000, HOLD_RECORDS, 0),
        at(1_200, HOLD_RECORDS, 5),
        at(1_500, KILL_MEMBER, 1),
        at(2_500, MOVE_LEADER, 0, 0),
        start(3_000, 1, DECIDES),
        at(3_200, GROW_TOPIC),
        at(3_500, MOVE_COORDINATOR, 0, 0),
        at(3_600, MOVE_COORDINATOR, 0, 1),
        at(4_000, END_MEMBER, 3),
        at(4_100, SET_SHARE_OFFSETS, 0, MOMENTS.index(AT_ONCE)),
        at(4_100, SET_SHARE_OFFSETS, 1, MOMENTS.index(WHEN_LEFT)),
        at(4_200, CUT_OFF_MEMBER, 2, 3_000),
        start(5_500, 3, RENEWS),
    )
    faults = (
        Fault(at_ms=2_000, kind=KILL, role=ACKNOWLEDGING_LEADER, back_ms=300),
        Fault(at_ms=5_000, kind=KILL, role=WRITING_SHARE_COORDINATOR, back_ms=300),
    )
    return played(*work, faults=faults)


def test_share_groups_process_all_records_under_all_operations(busy_run: tuple[ClusterRun, set[str]]) -> None:
    run, found = busy_run
    assert not found
    assert run.shared.accepted > 100
    assert run.nemesis.moments[ACKNOWLEDGING_LEADER]
    assert run.nemesis.moments[WRITING_SHARE_COORDINATOR]
    assert run.shared.offsets.refused > 0
    assert run.shared.offsets.done > 0


@pytest.mark.parametrize("level", [0, 1])
def test_share_groups_read_transactions_at_old_levels_of_transaction_version(level: int) -> None:
    work = {SHARE_GROUP: tuple(start(0, member) for member in range(6)), TRANSACTOR: ()}
    plan = Plan(seed=1, duration_ms=DURATION_MS, shape=SHAPE, transaction_version=level, work=work)
    run = ClusterRun(1, RunSettings(plan=plan))
    assert [str(finding) for finding in run.run().findings] == []
    seen = {check.id: check.seen for check in run.cluster.watch.suite.checks.checks}
    assert seen["T5"] > 0
    assert seen["S9"] > 0


def test_the_checks_of_share_groups_have_input_in_a_run(busy_run: tuple[ClusterRun, set[str]]) -> None:
    seen = {check.id: check.seen for check in busy_run[0].cluster.watch.suite.checks.checks}
    assert [check for check in CHECKS if not seen[check]] == []


def test_seeds_draw_all_operations_and_faults_of_share_groups() -> None:
    plans = [draw_plan(seed, FaultSettings(duration_ms=30_000)) for seed in range(1, 121)]
    drawn = [plan for plan in plans if SHARE_GROUP in plan.work]
    assert {each.verb for plan in drawn for each in plan.work[SHARE_GROUP]} == set(VERBS)
    assert {fault.role for plan in drawn for fault in plan.faults} >= set(SHARE_ROLES)
    others = [fault for plan in plans if plan not in drawn for fault in plan.faults]
    assert not [fault for fault in others if fault.role in SHARE_ROLES]
    assert all(SHARE_GROUP_SETTINGS.items() <= plan.shape.overrides.items() for plan in drawn)


@pytest.mark.parametrize("verb", SHARE_OFFSET_VERBS)
@pytest.mark.parametrize("when", MOMENTS[1:])
def test_members_process_all_records_again_after_the_offsets_were_changed(verb: str, when: str) -> None:
    members = tuple(start(0, member) for member in (0, 1))
    before, _ = played(*members, duration_ms=12_000)
    run, found = played(*members, at(3_000, verb, 0, MOMENTS.index(when)), duration_ms=12_000)
    assert not found
    assert run.shared.offsets.done == 1
    assert run.shared.accepted > before.shared.accepted + AGAIN_MIN


def test_offsets_are_not_changed_while_a_member_is_there() -> None:
    run, found = played(start(0, 0), *(at(3_000, verb, 0, MOMENTS.index(AT_ONCE)) for verb in SHARE_OFFSET_VERBS))
    assert not found
    assert (run.shared.offsets.done, run.shared.offsets.refused) == (0, 3)


def test_a_change_of_deleted_offsets_is_compared_with_states_that_begin_after_the_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: list[OffsetsChanged] = []
    original = ShareFeed._changed

    def noted(feed: ShareFeed, seen: OffsetsChanged) -> Iterator[Observation]:
        changes.append(seen)
        return original(feed, seen)

    monkeypatch.setattr(ShareFeed, "_changed", noted)
    now = MOMENTS.index(AT_ONCE)
    changing = (at(3_000, DELETE_SHARE_OFFSETS, 0, now), at(3_200, SET_SHARE_OFFSETS, 0, now))
    run, found = played(start(0, 0), at(2_000, END_MEMBER, 0), *changing, duration_ms=6_000)
    assert not found
    assert run.shared.offsets.done == 2
    deleted = {one.begin_before for one in changes if one.start_offset == NO_OFFSET}
    assert (deleted, {one.begin_before for one in changes if one.start_offset != NO_OFFSET}) == ({1}, {2})


PAUSED = (Fault(at_ms=1_000, kind=PAUSE, role=SHARE_LEADER, duration_ms=12_000),)
"""The leader of records that members hold is frozen until it has been replaced, and their locks have expired."""
KILLED = tuple(Fault(at_ms=at_ms, kind=KILL, role=SHARE_LEADER, back_ms=500) for at_ms in (2_600, 3_600, 4_600))


@pytest.mark.parametrize(
    ("bug", "check", "faults"),
    [
        ("B70b", "S6", ()),
        ("B71", "S7", PAUSED),
        ("B72", "S2", KILLED),
        ("B73", "S1", ()),
        ("B74", "S5", ()),
        ("B76", "S5", ()),
        ("B76b", "S5", ()),
        ("B77", "S9", ()),
    ],
)
def test_checks_catch_planted_bugs_of_share_groups(bug: str, check: str, faults: tuple[Fault, ...]) -> None:
    started = [start(0, member, DECIDES if member % 3 else ACCEPTS) for member in range(5)]
    held = [at(300 + 450 * number, HOLD_RECORDS, number % 5) for number in range(8)]
    members = sorted((*started, *held, at(3_000, KILL_MEMBER, 1)), key=lambda each: each.at_ms)
    with next(each for each in BANK if each.id == bug).planted():
        assert check in played(*members, faults=faults, duration_ms=14_000 if faults is PAUSED else 5_000)[1]


@pytest.mark.parametrize(
    ("bug", "check"),
    [("B72", "S2"), ("B73", "S1"), ("B74", "S5"), ("B76", "S5"), ("B71", "S7"), ("B70", "S6"), ("B80", "S13")],
)
def test_checks_catch_planted_bugs_as_well_after_the_start_offset_was_set_back(bug: str, check: str) -> None:
    trials = [ShareTrial(seed) for seed in range(30)]
    for trial in trials:
        trial.append(6)
        trial.leader.acknowledge("a", *trial.leader.acquire("a", 6))
        trial.reset(0)
        trial.move_leader()
        assert trial.found == []
    with next(each for each in BANK if each.id == bug).planted():
        for trial in trials:
            for offset in trial.leader.acquire("a", 6):
                trial.leader.acknowledge("a", offset, kind=trial.random.randrange(1, 4))
            for _ in range(STEPS):
                trial.disturb()
    assert check in {found for trial in trials for found in trial.found}


@pytest.mark.parametrize("seed", range(20))
def test_random_steps_of_a_leader_and_a_share_coordinator_pass_all_checks(seed: int) -> None:
    assert trials(seed) == []


def test_checks_of_share_groups_have_input_in_random_steps() -> None:
    trial = ShareTrial(1)
    for _ in range(STEPS):
        trial.disturb()
    trial.settle()
    of_sessions_and_clients = {"S11", "S12"}
    assert set(trial.checks.unseen()) == of_sessions_and_clients
