"""Whole quorums of raft cores in seeded runs: elections, crashes and partitions. Every invariant is checked after every
event.
"""

from __future__ import annotations

import pytest

from kraft.sim.cores.chaos import changes_voters_in, run_chaos, shape_of


@pytest.mark.parametrize("seed", range(14))
def test_three_voters_keep_every_invariant_through_crashes_and_network_partitions(seed: int) -> None:
    run_chaos(seed, duration_ms=15_000)


@pytest.mark.parametrize("seed", range(100, 106))
def test_five_voters_keep_every_invariant_through_crashes_and_network_partitions(seed: int) -> None:
    run_chaos(seed, voters=5, observers=2, duration_ms=12_000)


@pytest.mark.parametrize("seed", range(200, 203))
def test_a_single_voter_and_its_observers_keep_every_invariant(seed: int) -> None:
    run_chaos(seed, voters=1, observers=2, duration_ms=12_000)


@pytest.mark.parametrize("seed", range(300, 304))
def test_two_and_four_voters_keep_every_invariant(seed: int) -> None:
    run_chaos(seed, voters=2 + seed % 2 * 2, observers=0, duration_ms=12_000)


@pytest.mark.parametrize("seed", range(400, 406))
def test_voter_changes_during_crashes_keep_every_invariant(seed: int) -> None:
    world = run_chaos(seed, voters=3 + seed % 3, duration_ms=12_000, changes_voters=True)
    assert world.voter_changes
    assert world.checks.counts["R16"]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1600, 50))
def test_quorums_of_every_size_keep_every_invariant_under_many_seeds(first: int) -> None:
    for seed in range(first, first + 50):
        voters, observers = shape_of(seed)
        run_chaos(seed, voters=voters, observers=observers, changes_voters=changes_voters_in(seed))
