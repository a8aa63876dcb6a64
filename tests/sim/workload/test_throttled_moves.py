"""Tests of throttled reassignments: which replicas are delayed, that no throttle remains, and in which worlds they are
drawn.
"""

from __future__ import annotations

import pytest

from kraft.broker.partition.replication_quota import ReplicationQuota
from kraft.client.admin.reassign_throttle import FOLLOWER_REPLICAS, LEADER_RATE
from kraft.sim.check.base import Finding
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.drawing import THROTTLED_MOVE_MS
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    DIRECTORY_MOVER,
    IDEMPOTENT,
    MOVER,
    OVERRIDES,
    SEND,
    THROTTLED_MOVE,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.swarm import DIRECTORY_RATE, draw_plan
from kraft.sim.run.run import ClusterRun, RunSettings
from kraft.sim.workload import throttled_moves

SHAPE = ClusterShape(controllers=1, brokers=5, overrides=OVERRIDES)
WRITTEN = tuple(PlannedOperation(at_ms, SEND, at_ms % 3, 600) for at_ms in range(0, 6_000, 20))
MOVES = tuple(PlannedOperation(2_000 + 100 * number, THROTTLED_MOVE, number, 7 * number) for number in range(3))
DRAWN = FaultSettings(duration_ms=30_000)


def carried_out(*faults: Fault, duration_ms: int = 9_000) -> ClusterRun:
    work = {IDEMPOTENT: WRITTEN, MOVER: MOVES}
    run = ClusterRun(1, RunSettings(plan=Plan(duration_ms=duration_ms, shape=SHAPE, work=work, faults=faults)))
    run.run()
    return run


def found_by(run: ClusterRun) -> list[Finding]:
    return [*run.report.findings, *(found for check in run.checks for found in check.findings)]


def seen_by(run: ClusterRun, check: str) -> int:
    return sum(each.seen for each in run.checks if each.id == check)


@pytest.fixture(autouse=True)
def slow_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttled_moves, "RATES_BYTES", (8_000,))


def test_a_throttled_reassignment_is_delayed_and_its_throttle_is_removed_at_the_end() -> None:
    run = carried_out()
    assert not found_by(run), found_by(run)[0]
    assert run.mover.throttles.begun == len(MOVES)
    assert seen_by(run, "D19") > 10
    image = run.cluster.image
    assert [broker for broker in SHAPE.broker_ids if LEADER_RATE in image.broker_configs(broker)] == []
    assert FOLLOWER_REPLICAS not in image.topic_configs("orders")


def test_a_throttle_that_was_set_after_its_reassignment_ended_is_still_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates of brokers are set once more when the move has ended, because a broker forwarded the request a second
    time."""
    original = throttled_moves.remove_throttle

    async def late(admin: object, topics: list[str], brokers: list[int]) -> None:
        await original(admin, topics, brokers)  # type: ignore[arg-type]
        if len(again) < len(MOVES):
            again.append(1)
            await throttled_moves.set_throttle(admin, {("orders", 0): (1, 2, 3)}, {("orders", 0): (4,)}, 500)  # type: ignore[arg-type]

    again: list[int] = []
    monkeypatch.setattr(throttled_moves, "remove_throttle", late)
    run = carried_out()
    assert not found_by(run), found_by(run)[0]
    assert [broker for broker in SHAPE.broker_ids if LEADER_RATE in run.cluster.image.broker_configs(broker)] == []


def test_checks_catch_a_throttle_that_delays_an_in_sync_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicationQuota, "holds_back", lambda self, _partition, _replica: self.is_exceeded)
    assert "D19" in {found.check for found in found_by(carried_out())}


def test_some_drawn_worlds_with_reassignments_have_throttles() -> None:
    plans = [draw_plan(seed, DRAWN) for seed in range(1, 121)]
    moving = [plan for plan in plans if MOVER in plan.work]
    throttled = [plan for plan in moving if any(each.verb == THROTTLED_MOVE for each in plan.work[MOVER])]
    assert len(moving) // 4 <= len(throttled) <= 3 * len(moving) // 4
    for plan in throttled:
        assert plan.shape.brokers >= 4
        for move, then in zip(plan.work[MOVER], plan.work[MOVER][1:], strict=False):
            if move.verb == THROTTLED_MOVE:
                assert then.at_ms >= move.at_ms + THROTTLED_MOVE_MS
        assert all(
            each.at_ms + THROTTLED_MOVE_MS <= plan.duration_ms
            for each in plan.work[MOVER]
            if each.verb == THROTTLED_MOVE
        )


def test_some_drawn_worlds_limit_the_rate_of_moves_between_log_directories() -> None:
    plans = [draw_plan(seed, DRAWN) for seed in range(1, 121)]
    moving = [plan for plan in plans if DIRECTORY_MOVER in plan.work]
    held = [plan for plan in plans if DIRECTORY_RATE.items() <= plan.shape.overrides.items()]
    assert len(moving) // 4 <= len(held) <= 3 * len(moving) // 4
    assert all(plan in moving for plan in held)
