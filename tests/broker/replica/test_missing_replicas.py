"""Progress of a partition while one of its replicas is dead or permanently cut off in one direction. No other check
runs in these tests. They find bugs that would stay hidden if the fault healed.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.replica.leader import FollowerProgress, LeaderState
from kraft.sim.cores.core_alone import OutsideFault
from kraft.sim.cores.replicas.chaos import WRITE_INTERVAL_MS, replica_odds_of
from kraft.sim.cores.replicas.core_alone import ReplicasAlone
from kraft.sim.cores.replicas.witness import ReplicaWitness
from kraft.sim.cores.replicas.world import ReplicaSettings, ReplicaWorld
from kraft.sim.cores.schedule import NoProgressMade
from tests.bugbank.originals import plant

SEEDS = range(6)
UP_MS_MAX = 5_000


def left_alone(seed: int, kind: OutsideFault, *, leads: bool) -> None:
    """Run three replicas until they are in sync. Then stop or cut off one of them, the leader or a follower. Check only
    that the other two make progress."""
    odds = replica_odds_of(seed)
    odds.loss = odds.twice = 0
    world = ReplicaWorld(seed, 3, odds=odds, settings=ReplicaSettings(min_isr=2), witness=ReplicaWitness())
    world.controller.start()
    world.start()
    world.write_every(WRITE_INTERVAL_MS)
    assert world.run_until(world.is_whole, UP_MS_MAX)
    alone = ReplicasAlone(world)
    leader = world.state.leader
    alone.kind, alone.outside = kind, leader if leads else max({*world.brokers} - {leader})
    alone.demand()


@pytest.mark.parametrize("kind", OutsideFault)
def test_replicas_make_progress_while_one_follower_is_dead_or_cut_off(kind: OutsideFault) -> None:
    for seed in SEEDS:
        left_alone(seed, kind, leads=False)


@pytest.mark.parametrize("kind", [OutsideFault.DEAD, OutsideFault.MUTE])
def test_replicas_make_progress_while_the_former_leader_is_dead_or_cut_off(kind: OutsideFault) -> None:
    for seed in SEEDS:
        left_alone(seed, kind, leads=True)


def first_stuck(kind: OutsideFault) -> str:
    """Return the finding of the first seed in which the partition makes no progress."""
    for seed in SEEDS:
        try:
            left_alone(seed, kind, leads=False)
        except NoProgressMade as stuck:
            return str(stuck).partition(":")[0]
    return ""


def test_checks_catch_a_leader_that_counts_every_fetch_of_a_stuck_follower_as_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = FollowerProgress.fetched

    def twin(self: Any, fetch_offset: int, log_start: int, leader_end: int, now_ms: int, broker_epoch: int) -> None:
        original(self, fetch_offset, log_start, leader_end, now_ms, broker_epoch)
        self.last_caught_up_ms = now_ms

    plant(monkeypatch, FollowerProgress, "fetched", twin)
    assert first_stuck(OutsideFault.DEAF) == "L5"


def test_checks_catch_a_leader_that_readmits_a_non_fetching_replica_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twin(self: LeaderState, replica_id: int, progress: FollowerProgress, eligible: Any) -> bool:
        return replica_id not in self.removed_by_controller and replica_id in eligible

    plant(monkeypatch, LeaderState, "_may_join", twin)
    assert first_stuck(OutsideFault.DEAF) == "L12"


def test_checks_catch_a_leader_that_keeps_a_non_fetching_replica_in_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, LeaderState, "check_lag", lambda *_: None)
    assert first_stuck(OutsideFault.DEAF) == "L5"
