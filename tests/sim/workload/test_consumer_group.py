"""Tests of the consumer group of a run whose members use pykraft's consumer: what its members do, and that checks find
forbidden behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft.broker.group.shard import Shard
from kraft.client.commits import Commits
from kraft.client.core.assigned import Assignment, _committed
from kraft.client.core.assignors import RangeAssignor
from kraft.client.core.records import CommittedOffset
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    BE_BUSY,
    CANCEL_POLL,
    CONSUMER_GROUP,
    END_MEMBER,
    IDEMPOTENT,
    KILL_MEMBER,
    OVERRIDES,
    SEND,
    START_MEMBER,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import ClusterRun, RunSettings
from kraft.sim.workload import group_member
from kraft.sim.workload.consumer_group import STRATEGIES, choices_of
from kraft.sim.workload.group_member import WAYS

SHAPE = ClusterShape(controllers=1, overrides=OVERRIDES)
DURATION_MS = 9_000
SENDS = tuple(PlannedOperation(at_ms, SEND, at_ms // 50 % 3, 10) for at_ms in range(0, DURATION_MS, 50))
BY_ITSELF, WAITS, DOES_NOT_WAIT, WHEN_REVOKED = range(len(WAYS))


def start(at_ms: int, member: int, way: int, strategy: str = "range") -> PlannedOperation:
    return PlannedOperation(at_ms, START_MEMBER, member, len(WAYS) * STRATEGIES.index(strategy) + way)


def played(*work: PlannedOperation, faults: tuple[Fault, ...] = (), seed: int = 1) -> tuple[ClusterRun, set[str]]:
    """Carry out a run; return it, and the codes of its findings."""
    plan = Plan(
        seed=seed,
        duration_ms=DURATION_MS,
        shape=SHAPE,
        faults=faults,
        work={CONSUMER_GROUP: work, IDEMPOTENT: SENDS},
    )
    run = ClusterRun(seed, RunSettings(plan=plan))
    return run, {finding.check for finding in run.run().findings}


def caught(planting: Callable[[], None], *work: PlannedOperation) -> set[str]:
    """Return the findings with the planted bug, after the same run has passed without it."""
    assert not played(*work)[1]
    planting()
    return played(*work)[1]


TWO = (start(0, 0, BY_ITSELF), start(100, 1, BY_ITSELF))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_group_members_that_join_leave_and_die_process_all_records_in_the_end(strategy: str) -> None:
    work = (
        start(0, 0, BY_ITSELF, strategy),
        start(100, 1, WAITS, strategy),
        start(200, 2, DOES_NOT_WAIT, strategy),
        PlannedOperation(2_500, CANCEL_POLL, 0),
        PlannedOperation(3_000, KILL_MEMBER, 1),
        start(4_000, 1, WHEN_REVOKED, strategy),
        PlannedOperation(4_500, END_MEMBER, 2),
        PlannedOperation(5_000, BE_BUSY, 0),
    )
    killed = Fault(at_ms=2_000, kind="kill", role="leader", back_ms=500)
    run, found = played(*work, faults=(killed,))
    assert not found
    assert run.consumers.processed == len(SENDS)
    assert all(check.seen for check in run.consumers.checks.checks)
    texts = [each.text for each in run.chronicle.operations if each.client.startswith(CONSUMER_GROUP)]
    assert texts == [each.verb for each in work]


def test_checks_catch_a_member_that_commits_records_that_its_polls_did_not_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twin(self: Assignment) -> dict[Any, Any]:
        return {tp: _committed(a.fetch) for tp, a in self.partitions.items() if a.fetch is not None}

    monkeypatch.setattr(group_member, "RECORDS_MAX", 2)  # there is always more than a poll returns
    assert "C5" in caught(lambda: monkeypatch.setattr(Assignment, "consumed", twin), *TWO)


def test_checks_catch_a_member_that_commits_records_still_being_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_member, "WORK_MS_MAX", 2_000)
    planting = lambda: monkeypatch.setattr(Assignment, "consumed", Assignment.given)  # noqa: E731
    assert "C5" in caught(planting, *TWO)


def test_checks_catch_a_member_that_commits_a_revoked_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Assignment.given
    had: dict[Assignment, dict[Any, Any]] = {}

    def twin(self: Assignment) -> dict[Any, Any]:
        had.setdefault(self, {}).update(original(self))
        return dict(had[self])

    work = (start(0, 0, WAITS), start(3_000, 1, WAITS))
    assert "G2" in caught(lambda: monkeypatch.setattr(Assignment, "given", twin), *work)


def test_checks_catch_a_commit_retried_after_other_members_own_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt finds no coordinator; at the retry there is another generation."""
    original = Commits._commit_once
    held: list[object] = []

    async def late(self: Commits, asked: Any) -> str | None:
        """A member that shares the group commits what it had when it was alone."""
        if not held and self._member().generation == 1 and len(asked.offsets) == 3:
            held.append(asked)
            return "the connection to the coordinator failed"
        if asked in held and self._member().generation == 1:
            return "the connection to the coordinator failed"
        return await original(self, asked)

    work = (start(0, 0, DOES_NOT_WAIT), start(3_000, 1, WAITS))
    monkeypatch.setattr(Commits, "_commit_once", late)
    planting = lambda: monkeypatch.setattr(Commits, "_require_held", lambda *_: None)  # noqa: E731
    assert not played(*work)[1]
    held.clear()
    planting()
    assert "G2" in played(*work)[1]


def test_checks_catch_a_member_that_starts_past_the_committed_position(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Commits.fetch

    async def twin(self: Commits, partitions: Any) -> Any:
        found = await original(self, partitions)
        return {tp: None if entry is None else CommittedOffset(entry.offset + 1) for tp, entry in found.items()}

    work = (start(0, 0, WAITS), start(3_000, 1, WAITS))
    assert "C2" in caught(lambda: monkeypatch.setattr(Commits, "fetch", twin), *work)


def test_checks_catch_a_coordinator_that_expires_a_member_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Shard.reset_session

    def twin(self: Shard, group: Any, member: Any, now_ms: int) -> None:
        original(self, group, member, now_ms - 5_000)

    assert "G8" in caught(lambda: monkeypatch.setattr(Shard, "reset_session", twin), *TWO)


def test_checks_catch_a_partition_that_no_group_member_owns(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RangeAssignor.assign

    def twin(self: RangeAssignor, *arguments: Any) -> Any:
        return {member: [tp for tp in has if tp[1] != 1] for member, has in original(self, *arguments).items()}

    assert caught(lambda: monkeypatch.setattr(RangeAssignor, "assign", twin), *TWO) == {"L8"}


def test_drawn_worlds_include_a_consumer_group_with_each_assignor_and_each_commit_mode() -> None:
    works = [draw_plan(seed, FaultSettings(duration_ms=20_000)).work.get(CONSUMER_GROUP, ()) for seed in range(1, 81)]
    drawn = [{choices_of(each.amount) for each in work if each.verb == START_MEMBER} for work in works if work]
    assert 10 <= len(drawn) <= 30
    assert all(len({strategy for _, strategy in choices}) == 1 for choices in drawn)
    assert {strategy for choices in drawn for _, strategy in choices} == set(STRATEGIES)
    assert {way for choices in drawn for way, _ in choices} == set(WAYS)
    assert {each.verb for work in works for each in work} == {
        START_MEMBER,
        END_MEMBER,
        KILL_MEMBER,
        CANCEL_POLL,
        BE_BUSY,
    }
