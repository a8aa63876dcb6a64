"""Whole quorums of raft cores under seeds: elections, crashes, partitions; every invariant after every event."""

from __future__ import annotations

import pytest

from .simulation import Odds, World


def run_chaos(
    seed: int, *, voters: int = 3, observers: int = 1, duration: int = 20_000, world: World | None = None
) -> World:
    """Crashes, power losses, pauses and partitions, then a healed world that must make progress."""
    odds = Odds(
        latency=(1, 1 + seed % 20),
        sync=(1, 1 + seed % 30),
        state_write=(1, 1 + seed % 15),
        loss=seed % 3 * 10,
        snapshot=seed % 4 * 15,
    )
    world = world or World(seed, voters, observers, odds=odds)
    world.start()
    world.append_every(15)
    chance = world.chance
    majority = voters // 2 + 1

    def fault() -> None:
        up = [n for n in world.voters.ids if world.nodes[n].raft is not None]
        kind = chance.below(10)
        victim = up[chance.below(len(up))] if up else 1
        leader = world.leader
        if leader is not None and chance.below(2):
            victim = leader.node_id
        if kind < 5:
            world.kill(victim, power=kind % 2 == 0)
            world.at(1 + chance.below(800), world.start, victim)
        elif kind == 5:
            group = tuple(n for n in world.nodes if chance.below(2))
            world.partition(group, tuple(n for n in world.nodes if n not in group))
            world.at(1 + chance.below(4000), world.heal)
        elif kind == 6:
            world.pause(victim, chance.below(4000))
        elif kind == 7:
            other = 1 + chance.below(len(world.nodes))
            world.refused.add((victim, other))
            world.at(chance.below(1500), world.heal)
        elif kind == 8 and len(world.nodes) > voters:
            observer = voters + 1 + chance.below(len(world.nodes) - voters)
            world.kill(observer, power=True)
            world.at(1 + chance.below(500), world.start, observer)
        elif kind == 9 and len(up) == voters and majority < voters:
            for node_id in world.voters.ids:
                world.kill(node_id, power=bool(chance.below(2)))
                world.at(1 + chance.below(300), world.start, node_id)
        world.at(200 + chance.below(1500), fault)

    world.at(300, fault)
    world.run(duration)
    fault_free(world)
    return world


def fault_free(world: World) -> None:
    """Heal, and demand progress on every node."""
    world.forget("fault")
    world.heal()
    world.odds.loss = 0
    world.start()
    world.run(max(0, *(node.paused_until - world.now for node in world.nodes.values())))
    assert world.run_until(world.has_active_leader, 20_000), "no leader after healing"
    before = world.checks.ledger_end
    world.run(3000)
    assert world.checks.ledger_end > before, "no progress after healing"
    world.forget("write")
    assert world.run_until(world.caught_up, 20_000), "not everyone caught up"
    alone = len(world.nodes) == 1
    for name in ("R1", "R3", "R7", "R8", "R9", "R12", *(() if alone else ("R17", "R19"))):
        assert world.checks.counts[name] > 0, f"{name} never ran"


@pytest.mark.parametrize("seed", range(14))
def test_three_voters_keep_every_invariant_through_crashes_and_partitions(seed: int) -> None:
    run_chaos(seed, duration=15_000)


@pytest.mark.parametrize("seed", range(100, 106))
def test_five_voters_keep_every_invariant_through_crashes_and_partitions(seed: int) -> None:
    run_chaos(seed, voters=5, observers=2, duration=12_000)


@pytest.mark.parametrize("seed", range(200, 203))
def test_a_single_voter_and_its_observers_keep_every_invariant(seed: int) -> None:
    run_chaos(seed, voters=1, observers=2, duration=12_000)


@pytest.mark.parametrize("seed", range(300, 304))
def test_two_and_four_voters_keep_every_invariant(seed: int) -> None:
    run_chaos(seed, voters=2 + seed % 2 * 2, observers=0, duration=12_000)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1600, 50))
def test_many_seeds_of_every_size_keep_every_invariant(first: int) -> None:
    for seed in range(first, first + 50):
        run_chaos(seed, voters=(3, 5, 3, 1, 4, 2)[seed % 6], observers=seed % 3)
