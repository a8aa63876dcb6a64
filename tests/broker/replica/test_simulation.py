"""The simulated replicas of a partition under seeds: elections, crashes, lost log tails. Every invariant is checked
after every event.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest

from kraft.sim.cores.replicas.chaos import ReplicaChaos, replica_shape_of, world_of
from kraft.sim.cores.replicas.witness import ReplicaWitness
from kraft.sim.cores.replicas.world import ReplicaWorld
from kraft.sim.cores.runs import KNOWN_CHECKS, REPLICAS, CoresSettings, run_seed

FIXED_SEEDS = range(1, 49)
INTERESTING = {
    "election": 100,
    "election from the ELR": 10,
    "election of the furthest": 20,
    "ISR shrink": 100,
    "ISR expansion": 100,
    "truncation": 50,
    "log begun anew": 1,
    "acknowledged": 2_000,
}
"""Minimum number of events of each kind over the fixed seeds. With fewer, the checks could pass without testing
anything."""
TRACE_HASH = """
import hashlib
from kraft.sim.cores.replicas.chaos import ReplicaChaos, world_of
world = world_of(6)
world.trace = []
ReplicaChaos(world).run(3_000)
print(hashlib.sha256("\\n".join(world.trace).encode()).hexdigest())
"""


def traced(seed: int, witness: ReplicaWitness | None = None) -> ReplicaWorld:
    """Run this seed with 3 s of faults. Return the world and the trace of all its steps."""
    world = world_of(seed, witness)
    world.trace = []
    ReplicaChaos(world).run(3_000)
    return world


def trace_hash(seed: int) -> str:
    return hashlib.sha256("\n".join(traced(seed).trace or ()).encode()).hexdigest()


def test_simulated_replicas_keep_every_invariant_and_no_check_is_vacuous() -> None:
    settings = CoresSettings(duration_ms=6_000, what=REPLICAS)
    seen: Counter[str] = Counter()
    happened: Counter[str] = Counter()
    for seed in FIXED_SEEDS:
        run = run_seed(settings, seed)
        assert not run.failed, f"seed {seed}: {run.evidence}"
        seen.update(run.seen)
        happened.update(run.happened)
    assert {name: happened[name] for name in INTERESTING if happened[name] < INTERESTING[name]} == {}
    assert [name for name in KNOWN_CHECKS[REPLICAS] if seen[name] < 10] == []


def test_the_fixed_seeds_cover_every_number_of_replicas_with_and_without_synced_appends() -> None:
    assert {replica_shape_of(seed)[0] for seed in FIXED_SEEDS} == {1, 2, 3, 4, 5}
    odds = [world_of(seed).odds for seed in FIXED_SEEDS]
    for name in ("loss", "twice", "trim", "waits_for_disk"):
        assert {bool(getattr(one, name)) for one in odds} == {False, True}


def test_a_seed_gives_the_same_trace_of_simulated_replicas_in_every_process() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", TRACE_HASH],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert said == {trace_hash(6)}
    assert trace_hash(6) != trace_hash(7)


def test_a_seed_gives_the_same_steps_of_simulated_replicas_with_and_without_checks() -> None:
    checked, unchecked = traced(9), traced(9, ReplicaWitness())
    assert checked.trace == unchecked.trace
    assert checked.witness.counts["D2"]
    assert not unchecked.witness.counts


def test_with_synced_appends_a_power_loss_loses_no_acknowledged_record() -> None:
    seeds = [seed for seed in range(5, 100, 5) if world_of(seed).odds.waits_for_disk]
    for seed in seeds[:8]:
        run = run_seed(CoresSettings(duration_ms=5_000, what=REPLICAS), seed)
        assert not run.failed, f"seed {seed}: {run.evidence}"
        assert not run.seen["given up"]


def test_the_simulated_cores_do_not_import_trio() -> None:
    program = "import sys, kraft.sim.cores.campaign; print(sorted({'trio', 'socket', 'ssl'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "trio" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_600, 50))
def test_simulated_replicas_keep_every_invariant_under_many_seeds(first: int) -> None:
    for seed in range(first, first + 50):
        run = run_seed(CoresSettings(what=REPLICAS), seed)
        assert not run.failed, f"seed {seed}: {run.evidence}"
