"""Schedules for raft cores, without trio or bytes; the checks of kraft.sim.cores observe every event."""

from __future__ import annotations

from collections.abc import Callable

from kraft.raft.identity import VoterSet
from kraft.raft.log_view import BatchSummary
from kraft.raft.ready import QuorumState
from kraft.sim.cores.chaos import run_chaos
from kraft.sim.cores.checks import Violation as RaftViolation
from kraft.sim.cores.driver import Odds
from kraft.sim.cores.node import CoreNode
from kraft.sim.cores.world import CoreWorld
from kraft.wire.rpc.quorum_messages import MetadataFetchRequest, MetadataFetchResponse
from tests.bugbank.mutation import Violation, require
from tests.raft.test_fast_elections import settled
from tests.stages.single_core import A, Single

HELD_PER_1000 = 40
HELD_MS = (300, 6_000)

# swarms


def chaos(seed: int) -> None:
    """Crash, cut power, pause and partition nodes; slow disks down, and lose many messages in every other seed."""
    if seed % 2:
        odds = Odds(latency=(1, 25), sync=(5, 60), state_write=(5, 60), loss=30, snapshot=15)
        run_chaos(seed, voters=5, observers=0, duration_ms=12_000, world=CoreWorld(seed, 5, odds=odds))
    else:
        run_chaos(seed, voters=(3, 3, 1, 4)[seed // 2 % 4], duration_ms=8_000)


def voter_changes(seed: int) -> None:
    """Do the same as `chaos` for four or five voters, while voters are removed and added."""
    voters = 4 + seed % 2
    odds = Odds(latency=(1, 25), sync=(1, 60), state_write=(1, 20), loss=10, snapshot=15 * (seed % 3))
    world = CoreWorld(seed, voters, odds=odds)
    run_chaos(seed, voters=voters, duration_ms=12_000, world=world, changes_voters=True)


class HoldingWorld(CoreWorld):
    """A world in which a link sometimes holds a message for longer than an election takes."""

    def between(self, bounds: tuple[int, int]) -> int:
        if bounds == self.odds.latency and self.chance.below(1_000) < HELD_PER_1000:
            return super().between(HELD_MS)
        return super().between(bounds)


def held_answers(seed: int) -> None:
    """Hold messages on links. The quorum need not make progress."""
    odds = Odds(latency=(1, 6), sync=(1, 30), state_write=(1, 5))
    try:
        run_chaos(seed, voters=3, observers=0, duration_ms=20_000, world=HoldingWorld(seed, 3, odds=odds))
    except RaftViolation:
        raise
    except AssertionError:
        return


def long_partitions(seed: int) -> None:
    """Cut off one node after the other for several fetch timeouts, most often the leader."""
    world = settled(seed, 3 + seed % 3)
    for _ in range(4):
        lonely = 1 + world.chance.below(len(world.nodes))
        if world.leader is not None and world.chance.below(3):
            lonely = world.leader.node_id
        world.partition((lonely,), tuple(n for n in world.nodes if n != lonely))
        world.run(2_000 + world.chance.below(8_000))
        world.heal()
        world.run(world.chance.below(3_000))


# directed


def flap(seed: int) -> None:
    """Kill each leader soon after it appends, and restart it. A cut link keeps one voter behind (Raft paper, figure
    8)."""
    world = CoreWorld(seed, 5, odds=Odds(latency=(1, 12), sync=(1, 20), state_write=(1, 20)))
    world.start()
    for _ in range(40):
        if not world.run_until(lambda: world.leader is not None, 4_000):
            continue
        leader = _leader(world)
        world.append(3)
        behind = 1 + world.chance.below(5)
        world.cut = {(leader.node_id, behind), (behind, leader.node_id)} if behind != leader.node_id else set()
        world.run(world.chance.below(60))
        world.kill(leader.node_id, power=bool(world.chance.below(2)))
        world.at(world.chance.below(400), world.start, leader.node_id)
        world.run(world.chance.below(300))
        world.heal()


def _leader(world: CoreWorld) -> CoreNode:
    leader = world.leader
    assert leader is not None
    return leader


def power_loss_of_the_leader(seed: int) -> None:
    """Cut the power of a leader whose followers have records that it had not synced. It restarts before there is a
    candidate."""
    for number in range(20):
        world = settled(100 * seed + number, 3, odds=Odds(latency=(1, 2), sync=(150, 200)))
        leader = _leader(world)
        for _ in range(6):
            world.append(1)
            world.run(5)
        world.kill(leader.node_id, power=True)
        world.start(leader.node_id)
        for _ in range(20):
            world.append(1)
            world.run(20)


def a_tail_of_a_minority(seed: int) -> None:
    """Let the old leader write many records alone, and reconnect it while the new leader dies."""
    for number in range(8):
        world = settled(100 * seed + number, 5)
        old = _leader(world)
        rest = tuple(n for n in world.nodes if n != old.node_id)
        world.partition((old.node_id,), rest)
        for _ in range(40):
            _append_at(world, old)
            world.run(10)
        world.run(4_000)
        new = _leader(world)
        world.append(1)
        world.run(200)
        world.kill(new.node_id)
        world.heal()
        world.run(6_000)


def _append_at(world: CoreWorld, node: CoreNode) -> None:
    from kraft.raft.inputs import AppendRequested

    if node.raft is not None and node.raft.is_leader:
        world.offer(node, AppendRequested((b"x",)))


def a_deposed_leader_rejoins(seed: int) -> None:
    """Let a deposed leader rejoin whose log is longer than that of the new leader. The new leader's high watermark lies
    within its divergent records."""
    for number in range(6):
        world = settled(100 * seed + number, 3)
        old = _leader(world)
        others = tuple(n for n in world.nodes if n != old.node_id)
        world.partition((old.node_id,), others)
        for _ in range(60):
            _append_at(world, old)
        world.run(5_000)
        assert world.leader not in (None, old)
        world.append(2)
        world.run(300)
        world.heal()
        world.run(4_000)


def a_late_divergence(seed: int) -> None:
    """Deliver a response to an old fetch after the follower's log has continued with another leader."""
    single = Single(stored=QuorumState(3, A), epochs=((1, 0), (3, 10)), end_offset=20)
    old = single.take_sent(MetadataFetchRequest)[-1]
    single.follow(3, 4)
    fetch = single.take_sent(MetadataFetchRequest)[-1]
    answer = MetadataFetchResponse(epoch=4, leader_id=3, high_watermark=24, records=b"x")
    single.answer(fetch, answer, (BatchSummary(20, 24, 4),))
    single.sync()
    committed = single.raft.high_watermark
    require("R8", committed == 24, f"{committed}")
    late = MetadataFetchResponse(epoch=3, leader_id=A, diverging_epoch=1, diverging_end_offset=8)
    single.answer(old, late)
    end = single.raft.log.end_offset
    require("R11", end == 24, f"the log was cut to {end}, {committed} was committed")


def a_leader_is_removed(seed: int) -> None:
    """Let the leader remove itself from the voters while one of the remaining voters does not respond."""
    world = settled(seed, 3)
    old = _leader(world)
    others = [n for n in world.voters.ids if n != old.node_id]
    world.cut = {(others[1], old.node_id), (old.node_id, others[1])}
    world.change_voters(VoterSet(tuple(v for v in world.voters.voters if v.key.node_id != old.node_id)))
    world.run(1_500)


def _two_changes(seed: int, is_ready: Callable[[CoreWorld], bool]) -> None:
    world = CoreWorld(seed, 4)
    world.start()
    assert world.run_until(lambda: is_ready(world), 5_000)
    voters = list(world.voters.voters)
    for _ in range(2):
        voters.pop()
        world.change_voters(VoterSet(tuple(voters)))


def a_change_before_the_epoch_is_committed(seed: int) -> None:
    _two_changes(seed, lambda world: world.leader is not None and not world.leader.is_writing_state)


def two_changes_in_flight(seed: int) -> None:
    _two_changes(seed, CoreWorld.has_active_leader)


def _alone(seed: int) -> CoreWorld:
    world = settled(seed, 3)
    old = _leader(world)
    world.partition((old.node_id,), tuple(n for n in world.nodes if n != old.node_id))
    return world


def a_leader_is_isolated(seed: int) -> None:
    _alone(seed).run(12_000)


def a_late_voter(seed: int) -> None:
    """Add a voter whose first fetch is below the leader's log start offset."""
    world = CoreWorld(seed, 3, 1, odds=Odds(snapshot=300))
    world.start(1, 2, 4)
    world.append_every(10)
    world.run(4_000)
    world.start(3)
    world.run(3_000)
    if not world.caught_up() and world.nodes[3].disk.end == 0:
        raise Violation("L11", "the late voter has nothing")


def a_paused_follower(seed: int) -> None:
    """Cut off a follower that has some records, while the leader's log is deleted below a snapshot."""
    world = settled(seed, 3, odds=Odds(snapshot=300))
    slow = next(n for n in world.voters.ids if n != _leader(world).node_id)
    world.partition((slow,), tuple(n for n in world.nodes if n != slow))
    world.run(3_000)
    world.heal()
    world.run(3_000)


def two_candidates(seed: int) -> None:
    """Let two candidates request the vote of the same voter in one epoch."""
    single = Single(stored=QuorumState(3), epochs=((3, 0),), end_offset=10)
    first = single.vote_of(A, 5, 4, 20)
    require("R2", first.vote_granted, "nobody gets the vote")
    require("R2", not single.vote_of(3, 5, 4, 20).vote_granted, "both candidates of epoch 5 have the vote")


def slow_syncs(seed: int) -> None:
    """Let syncs take longer than a round of messages; no node dies."""
    world = settled(seed, 3, odds=Odds(latency=(1, 3), sync=(60, 200)))
    world.run(3_000)


def a_single_voter_writes(seed: int) -> None:
    run_chaos(seed, voters=1, observers=1, duration_ms=5_000)
