"""One run of cores alone, from its seed to its verdict: a quorum of raft cores, or the replicas of a partition."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kraft.seam import InvariantError
from kraft.sim.cores.chaos import CoreChaos, changes_voters_in, odds_of, shape_of
from kraft.sim.cores.checks import CoreChecks, Violation
from kraft.sim.cores.replicas.chaos import ReplicaChaos, replica_shape_of, world_of
from kraft.sim.cores.replicas.checks import ReplicaChecks
from kraft.sim.cores.replicas.witness import ReplicaWitness
from kraft.sim.cores.replicas.world import ReplicaWorld
from kraft.sim.cores.schedule import FaultSchedule, NoProgressMade
from kraft.sim.cores.witness import Witness
from kraft.sim.cores.world import CoreWorld

STUCK = "stuck"
STOPPED = "invariant"
"""Name that a run reports as the failed check if an assertion (`require`) in a core fails."""
BROKEN = "broken"
"""Name that a run reports as the failed check for an exception that comes neither from a check nor from an assertion
(`require`) in a core."""
RAFT = "raft"
REPLICAS = "replicas"


@dataclass(frozen=True, slots=True)
class CoresSettings:
    """Settings of a run. `what` is RAFT or REPLICAS. `trace_lines`: number of the last steps of a failed run that are
    kept."""

    duration_ms: int = 10_000
    is_checked: bool = True
    trace_lines: int = 0
    what: str = RAFT


@dataclass(frozen=True, slots=True)
class CoresRun:
    """Result of one seed. A step is one input to one core. `failed` is the name of the check that failed, "" if none
    did. `happened` counts the events that the checks need (elections, truncations …), `seen` the input of each check.
    """

    what: str
    seed: int
    shape: str
    steps: int
    cpu_s: float
    happened: Counter[str]
    seen: Counter[str]
    faults: Counter[str]
    failed: str = ""
    evidence: str = ""
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Staged:
    """The world of one seed, ready to run. Its checks count their input in `seen`."""

    shape: str
    world: CoreWorld | ReplicaWorld
    schedule: FaultSchedule[Any]
    seen: Counter[str]


def run_seed(settings: CoresSettings, seed: int) -> CoresRun:
    """Run one world from its start to its verdict."""
    staged = STAGES[settings.what](seed, settings.is_checked)
    world, schedule = staged.world, staged.schedule
    world.trace = deque(maxlen=settings.trace_lines) if settings.trace_lines else None
    cpu_s, failed, evidence = _verdict(schedule, settings.duration_ms)
    return CoresRun(
        what=settings.what,
        seed=seed,
        shape=staged.shape,
        steps=world.steps,
        cpu_s=cpu_s,
        happened=world.happened if isinstance(world, ReplicaWorld) else _happened_to_quorum(world),
        seen=staged.seen,
        faults=schedule.faults,
        failed=failed,
        evidence=evidence,
        trace=tuple(world.trace or ()) if failed else (),
    )


def _happened_to_quorum(world: CoreWorld) -> Counter[str]:
    return Counter({"election": world.elections, "change of voters": world.voter_changes})


def _stage_raft(seed: int, is_checked: bool) -> _Staged:
    voters, observers = shape_of(seed)
    checks = CoreChecks() if is_checked else Witness()
    world = CoreWorld(seed, voters, observers, odds=odds_of(seed), checks=checks)
    changes = changes_voters_in(seed)
    shape = f"{voters} voters, {observers} observers" + (", voters come and go" if changes else "")
    return _Staged(shape, world, CoreChaos(world, changes_voters=changes), checks.counts)


def _stage_replicas(seed: int, is_checked: bool) -> _Staged:
    replicas, min_isr = replica_shape_of(seed)
    witness = ReplicaChecks() if is_checked else ReplicaWitness()
    world = world_of(seed, witness)
    return _Staged(f"{replicas} replicas, min.insync.replicas {min_isr}", world, ReplicaChaos(world), witness.counts)


STAGES: Mapping[str, Callable[[int, bool], _Staged]] = MappingProxyType({RAFT: _stage_raft, REPLICAS: _stage_replicas})

KNOWN_CHECKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        RAFT: (*(f"R{n}" for n in range(1, 20) if n != 5), "K4"),
        REPLICAS: (
            *(f"D{n}" for n in (*range(1, 10), 11, 16, 18)),
            *("K7", "M3", "M5", "M6", "M7", "M8", "M9", "M16"),
        ),
    }
)
"""Kind of cores → checks for which its schedule produces input. R5 is missing because the comparison of R12 covers it.
"""


def _verdict(schedule: FaultSchedule[Any], duration_ms: int) -> tuple[float, str, str]:
    """Run the world; return the CPU seconds, the name of the check that failed, and the evidence."""
    began = time.process_time()
    failed = evidence = ""
    try:
        schedule.run(duration_ms)
    except Violation as violation:
        failed, evidence = violation.name, str(violation)
    except NoProgressMade as stuck:
        failed, evidence = STUCK, str(stuck)
    except InvariantError as broken:
        failed, evidence = STOPPED, str(broken)
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed that led there must be told
        failed, evidence = BROKEN, repr(error)
    return time.process_time() - began, failed, evidence
