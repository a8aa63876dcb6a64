"""Replicas go on without one that is dead, deaf or mute for good; a leader that keeps it in sync is found."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.replica.leader import LeaderState
from kraft.sim.cores.core_alone import Outside
from kraft.sim.cores.replicas.chaos import WRITE_INTERVAL_MS
from kraft.sim.cores.replicas.core_alone import ReplicasAlone
from kraft.sim.cores.replicas.world import ReplicaWorld
from kraft.sim.cores.schedule import Stuck
from tests.bugbank.originals import plant

LAST = 3
"""Not the preferred replica."""


def left_alone(seed: int, kind: Outside) -> ReplicasAlone:
    """Three replicas that have worked for a while; nothing else is checked."""
    world = ReplicaWorld(seed)
    world.controller.start()
    world.start()
    world.write_every(WRITE_INTERVAL_MS)
    world.run(2_000)
    alone = ReplicasAlone(world)
    alone.outside, alone.kind = LAST, kind
    return alone


@pytest.mark.parametrize("kind", Outside)
def test_the_others_go_on_whatever_became_of_one(kind: Outside) -> None:
    for seed in range(6):
        left_alone(seed, kind).demand()


def test_a_leader_that_keeps_who_is_behind_in_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(self: LeaderState, now_ms: int) -> Any:
        return None

    plant(monkeypatch, LeaderState, "check_lag", twin)
    with pytest.raises(Stuck, match="L5: without deaf broker 3"):
        left_alone(1, Outside.DEAF).demand()
