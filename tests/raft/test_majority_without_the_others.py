"""A majority of voters keeps working while the other voters are permanently dead, deaf (receive nothing) or mute (send
nothing). This property alone also catches bugs by which one voter disturbs the others.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kraft.raft import ballots, leader, raft, transitions
from kraft.sim.cores.chaos import APPEND_INTERVAL_MS, odds_of
from kraft.sim.cores.core_alone import CoreAlone, OutsideFault
from kraft.sim.cores.schedule import NoProgressMade
from kraft.sim.cores.witness import Witness
from kraft.sim.cores.world import CoreWorld
from kraft.wire.rpc.quorum_messages import VoteRequest
from tests.bugbank.originals import plant
from tests.stages.tables import replace_row

SEEDS = range(12)


def left_alone(seed: int, *outside: OutsideFault) -> CoreAlone:
    """Return a quorum that has worked for a while, with one voter outside it for each item of `outside`. No other check
    runs."""
    world = CoreWorld(seed, 1 + 2 * len(outside), 1, odds=odds_of(seed), checks=Witness())
    world.odds.loss = 0
    world.start()
    world.append_every(APPEND_INTERVAL_MS)
    world.run(2_000)
    alone = CoreAlone(world)
    alone.outside = dict(zip(alone.outside, outside, strict=True))
    return alone


@pytest.mark.parametrize("kind", OutsideFault)
def test_majority_keeps_committing_while_other_voters_are_dead_receive_nothing_or_send_nothing(
    kind: OutsideFault,
) -> None:
    for seed in SEEDS:
        left_alone(seed, kind).demand()
    left_alone(99, kind, kind).demand()


def first_stuck(kind: OutsideFault) -> str:
    """Return the code of the check that fails on the first bad seed, "" if all seeds pass."""
    for seed in SEEDS:
        try:
            left_alone(seed, kind).demand()
        except NoProgressMade as stuck:
            return str(stuck).partition(":")[0]
    return ""


def test_checks_catch_pre_votes_that_raise_the_epoch_from_a_voter_that_receives_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = ballots.handle_vote

    def twin(core: Any, token: int, request: VoteRequest) -> None:
        if request.pre_vote:
            transitions.to_unattached(core, core.epoch + 1)
        original(core, token, request)

    plant(monkeypatch, ballots, "handle_vote", twin)
    replace_row(monkeypatch, raft._REQUESTS, VoteRequest, twin)
    assert first_stuck(OutsideFault.DEAF) in ("L1", "L2")


def test_checks_catch_a_commit_that_waits_for_all_voters(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, leader, "majority_offset", min)
    assert first_stuck(OutsideFault.DEAD) == "L1"


def test_checks_catch_a_leader_that_answers_fetches_without_new_data_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(core: Any, role: Any, _name: object, token: int, request: Any) -> None:
        leader._answer_fetch(core, role, token, request, None)

    plant(monkeypatch, leader, "_park", twin)
    assert first_stuck(OutsideFault.DEAD) == "L12"


def test_seeds_draw_every_way_to_cut_off_a_voter() -> None:
    drawn = Counter(kind for seed in range(30) for kind in CoreAlone(CoreWorld(seed, 5)).outside.values())
    assert set(drawn) == set(OutsideFault)
    assert drawn.total() == 60
