"""The replicas of a partition go on while one of them is dead, deaf or mute for good; what a fault that heals would
hide is found without any other check."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.replica.leader import FollowerProgress, LeaderState
from kraft.sim.cores.core_alone import Outside
from kraft.sim.cores.replicas.chaos import WRITE_INTERVAL_MS, replica_odds_of
from kraft.sim.cores.replicas.core_alone import ReplicasAlone
from kraft.sim.cores.replicas.witness import ReplicaWitness
from kraft.sim.cores.replicas.world import ReplicaSettings, ReplicaWorld
from kraft.sim.cores.schedule import Stuck
from tests.bugbank.originals import plant

SEEDS = range(6)
UP_MS_MAX = 5_000


def left_alone(seed: int, kind: Outside, *, leads: bool) -> None:
    """Three replicas in sync, and then two, without the leader or another one. Nothing else is checked."""
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


@pytest.mark.parametrize("kind", Outside)
def test_replicas_go_on_without_one_that_follows(kind: Outside) -> None:
    for seed in SEEDS:
        left_alone(seed, kind, leads=False)


@pytest.mark.parametrize("kind", [Outside.DEAD, Outside.MUTE])
def test_replicas_go_on_without_the_one_that_led(kind: Outside) -> None:
    for seed in SEEDS:
        left_alone(seed, kind, leads=True)


def first_stuck(kind: Outside) -> str:
    """What is found missing in the first seed that ends so."""
    for seed in SEEDS:
        try:
            left_alone(seed, kind, leads=False)
        except Stuck as stuck:
            return str(stuck).partition(":")[0]
    return ""


def test_a_deaf_follower_whose_every_fetch_counts_as_caught_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = FollowerProgress.fetched

    def twin(self: Any, fetch_offset: int, log_start: int, leader_end: int, now_ms: int, broker_epoch: int) -> None:
        original(self, fetch_offset, log_start, leader_end, now_ms, broker_epoch)
        self.last_caught_up_ms = now_ms

    plant(monkeypatch, FollowerProgress, "fetched", twin)
    assert first_stuck(Outside.DEAF) == "L5"


def test_a_deaf_follower_that_is_taken_back_again_and_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(self: LeaderState, replica_id: int, progress: FollowerProgress, eligible: Any) -> bool:
        return replica_id not in self.left and replica_id in eligible

    plant(monkeypatch, LeaderState, "_may_join", twin)
    assert first_stuck(Outside.DEAF) == "L12"


def test_who_does_not_let_go_of_a_deaf_follower_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, LeaderState, "check_lag", lambda *_: None)
    assert first_stuck(Outside.DEAF) == "L5"
