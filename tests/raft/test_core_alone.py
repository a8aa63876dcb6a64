"""A core of the voters goes on while others are dead, deaf or mute for good; who disturbs it is found without any other
check."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kraft.raft import ballots, leader, raft, transitions
from kraft.sim.cores.chaos import APPEND_INTERVAL_MS, odds_of
from kraft.sim.cores.core_alone import CoreAlone, Outside
from kraft.sim.cores.schedule import Stuck
from kraft.sim.cores.witness import Witness
from kraft.sim.cores.world import World
from kraft.wire.rpc.quorum_messages import VoteRequest
from tests.bugbank.originals import plant
from tests.stages.tables import replace_row

SEEDS = range(12)


def left_alone(seed: int, *outside: Outside) -> CoreAlone:
    """A quorum that has worked for a while, with so many of its voters outside; nothing else is checked."""
    world = World(seed, 1 + 2 * len(outside), 1, odds=odds_of(seed), checks=Witness())
    world.odds.loss = 0
    world.start()
    world.append_every(APPEND_INTERVAL_MS)
    world.run(2_000)
    alone = CoreAlone(world)
    alone.outside = dict(zip(alone.outside, outside, strict=True))
    return alone


@pytest.mark.parametrize("kind", Outside)
def test_a_core_goes_on_whatever_is_outside_of_it(kind: Outside) -> None:
    for seed in SEEDS:
        left_alone(seed, kind).demand()
    left_alone(99, kind, kind).demand()


def first_stuck(kind: Outside) -> str:
    """What is found missing in the first seed that ends so."""
    for seed in SEEDS:
        try:
            left_alone(seed, kind).demand()
        except Stuck as stuck:
            return str(stuck).partition(":")[0]
    return ""


def test_a_deaf_voter_that_disturbs_the_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ballots.handle_vote

    def twin(core: Any, token: int, request: VoteRequest) -> None:
        if request.pre_vote:
            transitions.to_unattached(core, core.epoch + 1)
        original(core, token, request)

    plant(monkeypatch, ballots, "handle_vote", twin)
    replace_row(monkeypatch, raft._REQUESTS, VoteRequest, twin)
    assert first_stuck(Outside.DEAF) in ("L1", "L2")


def test_a_commit_that_waits_for_all_voters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, leader, "majority_offset", min)
    assert first_stuck(Outside.DEAD) == "L1"


def test_fetches_that_do_not_wait_are_found_when_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(core: Any, role: Any, _name: object, token: int, request: Any) -> None:
        leader._answer_fetch(core, role, token, request, None)

    plant(monkeypatch, leader, "_park", twin)
    assert first_stuck(Outside.DEAD) == "L12"


def test_the_kinds_are_all_drawn() -> None:
    drawn = Counter(kind for seed in range(30) for kind in CoreAlone(World(seed, 5)).outside.values())
    assert set(drawn) == set(Outside)
    assert drawn.total() == 60
