"""Elections are fast when the leader is known to be gone, and never happen without need (K4, K5, K6).

Source: docs/decisions/05-fast-fencing.md#voters.
"""

from __future__ import annotations

import pytest

from kraft.raft.inputs import Input, ShutdownRequested
from kraft.raft.raft import Raft
from kraft.sim.cores.driver import Odds
from kraft.sim.cores.node import CoreNode
from kraft.sim.cores.world import CoreWorld
from kraft.wire.rpc.quorum_messages import QuorumRequest, VoteRequest

SPEED_MS = 500
"""Limit for a new active controller: 500 virtual ms plus three link latencies (K6)."""


def settled(seed: int, voters: int = 3, **arguments: object) -> CoreWorld:
    world = CoreWorld(seed, voters, **arguments)  # type: ignore[arg-type]
    world.start()
    assert world.run_until(world.has_active_leader, 5000)
    world.append_every(20)
    world.run(500)
    return world


def replaced(world: CoreWorld, old_epoch: int) -> bool:
    leader = world.leader
    return (
        world.has_active_leader() and leader is not None and leader.raft is not None and leader.raft.epoch > old_epoch
    )


def count_votes(world: CoreWorld) -> list[VoteRequest]:
    seen: list[VoteRequest] = []
    inner = world.checks.on_send

    def on_send(node: CoreNode, raft: Raft, request: QuorumRequest) -> None:
        if isinstance(request, VoteRequest):
            seen.append(request)
        inner(node, raft, request)

    world.checks.on_send = on_send  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("voters", [3, 5])
def test_killed_leader_is_replaced_within_the_election_limit(voters: int) -> None:
    for seed in range(30):
        world = settled(seed, voters, observers=1)
        leader = world.leader
        assert leader is not None
        assert leader.raft is not None
        epoch = leader.raft.epoch
        world.kill(leader.node_id)
        assert world.run_until(lambda: replaced(world, epoch), SPEED_MS + 12), f"seed {seed} is slow"  # noqa: B023


@pytest.mark.parametrize("delay", [0, 5, 40, 200])
def test_leader_that_restarts_at_once_is_replaced_within_the_election_limit(delay: int) -> None:
    for seed in range(25):
        world = settled(seed, 3)
        leader = world.leader
        assert leader is not None
        assert leader.raft is not None
        epoch = leader.raft.epoch
        world.kill(leader.node_id)
        world.at(delay, world.start, leader.node_id)
        assert world.run_until(lambda: replaced(world, epoch), SPEED_MS + 12), f"seed {seed} is slow"  # noqa: B023


def test_leader_that_resigns_is_replaced_within_150_ms() -> None:
    for seed in range(40):
        world = settled(seed, 3)
        leader = world.leader
        assert leader is not None
        assert leader.raft is not None
        epoch = leader.raft.epoch
        world.offer(leader, ShutdownRequested())
        assert world.run_until(lambda: replaced(world, epoch), 150), f"seed {seed} is slow"  # noqa: B023


@pytest.mark.slow
@pytest.mark.parametrize("voters", [3, 5])
def test_200_starts_of_a_whole_quorum_take_at_most_three_election_rounds_each(voters: int) -> None:
    for seed in range(200):
        world = CoreWorld(seed, voters)
        for node_id in world.nodes:
            world.at(world.chance.below(30), world.start, node_id)
        assert world.run_until(world.has_active_leader, 2000), f"seed {seed}: no leader"
        assert world.leader is not None
        assert world.leader.raft is not None
        assert world.leader.raft.epoch <= 3, f"seed {seed} took {world.leader.raft.epoch} rounds"
        assert world.now < 1000, f"seed {seed} took {world.now} ms"


def test_voter_that_starts_late_does_not_disturb_the_leader() -> None:
    for seed in range(30):
        world = CoreWorld(seed, 3)
        world.start(1, 2)
        assert world.run_until(world.has_active_leader, 2000)
        assert world.leader is not None
        assert world.leader.raft is not None
        epoch = world.leader.raft.epoch
        world.run(300)
        world.start(3)
        world.run(5000)
        assert [node.raft.epoch for node in world.nodes.values() if node.raft] == [epoch] * 3


@pytest.mark.slow
def test_epoch_does_not_rise_while_the_leader_keeps_contact_with_a_majority() -> None:
    """One follower cannot reach the leader, in every way that a link can fail (second half of K4)."""
    for seed in range(2):
        for kind in ("refused", "cut", "one-way"):
            world = settled(seed, 3 + seed % 2 * 2)
            leader = world.leader
            assert leader is not None
            assert leader.raft is not None
            epoch = leader.raft.epoch
            follower = next(n for n in world.voters.ids if n != leader.node_id)
            pair = (follower, leader.node_id)
            if kind == "refused":
                world.refused = {pair}
                world.offer(world.nodes[follower], _lost_connection(world, follower))
            else:
                world.cut = {pair} if kind == "one-way" else {pair, (leader.node_id, follower)}
            world.run(15_000)
            epochs = {node.raft.epoch for node in world.nodes.values() if node.raft is not None}
            assert epochs == {epoch}, f"seed {seed}, {kind}: epochs {epochs}"
            world.heal()
            world.run(3000)
            assert world.has_active_leader()
            assert world.leader is leader


def _lost_connection(world: CoreWorld, follower: int) -> Input:
    from kraft.raft.inputs import Failure, RequestFailed

    raft = world.nodes[follower].raft
    assert raft is not None
    return RequestFailed(raft._core.fetch.request_id or 0, Failure.CLOSED)


def test_follower_without_contact_sends_few_pre_votes() -> None:
    """The number of pre-vote requests per voter and second stays bounded while the link to the leader is refused
    (K5)."""
    world = settled(4, 3)
    leader = world.leader
    assert leader is not None
    follower = next(n for n in world.voters.ids if n != leader.node_id)
    world.refused = {(follower, leader.node_id)}
    world.offer(world.nodes[follower], _lost_connection(world, follower))
    votes = count_votes(world)
    world.run(20_000)
    assert 5 < len(votes) < 20 * 2 * 3


def test_last_live_voter_sends_few_pre_votes_and_keeps_its_epoch() -> None:
    world = settled(5, 3)
    leader = world.leader
    assert leader is not None
    survivor = next(n for n in world.voters.ids if n != leader.node_id)
    for node_id in world.voters.ids:
        if node_id != survivor:
            world.kill(node_id)
    votes = count_votes(world)
    world.run(20_000)
    epoch = world.nodes[survivor].raft.epoch  # type: ignore[union-attr]
    assert epoch == 1
    assert 10 < len(votes) < 20 * 2 * 3


def test_silent_leader_is_replaced_after_the_fetch_timeout() -> None:
    for seed in range(6):
        world = settled(seed, 3)
        leader = world.leader
        assert leader is not None
        assert leader.raft is not None
        epoch = leader.raft.epoch
        world.pause(leader.node_id, 20_000)
        began = world.now
        assert world.run_until(lambda: replaced(world, epoch), 8000)  # noqa: B023
        assert world.now - began >= 1500


def test_isolated_leader_resigns_and_later_rejoins() -> None:
    for seed in range(6):
        world = settled(seed, 3)
        leader = world.leader
        assert leader is not None
        assert leader.raft is not None
        others = tuple(n for n in world.nodes if n != leader.node_id)
        world.partition((leader.node_id,), others)
        world.run(8000)
        assert not leader.raft.is_leader
        assert world.has_active_leader()
        world.heal()
        world.run(4000)
        assert world.has_active_leader()
        assert leader.raft.epoch == world.leader.raft.epoch  # type: ignore[union-attr]


@pytest.mark.parametrize("slow", [10, 40])
def test_quorum_elections_finish_on_slow_disks(slow: int) -> None:
    for seed in range(20):
        odds = Odds(latency=(1, 5), sync=(1, slow), state_write=(1, slow))
        world = settled(seed, 5, odds=odds)
        leader = world.leader
        assert leader is not None
        assert leader.raft is not None
        epoch = leader.raft.epoch
        world.kill(leader.node_id)
        assert world.run_until(lambda: replaced(world, epoch), 1500), f"seed {seed} is slow"  # noqa: B023
