"""Many seeds of the chaos schedule: each in its own world, what went wrong in any, and what the checks saw in all."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from kraft.seam import InvariantError
from kraft.sim.cores.chaos import Chaos, Stuck, odds_of, shape_of
from kraft.sim.cores.checks import Checks, Violation
from kraft.sim.cores.witness import Witness
from kraft.sim.cores.world import World

SEEDS_AT_ONCE = 4
"""Handed to a process together."""
STUCK = "stuck"
STOPPED = "invariant"
"""A core's own `require`."""
BROKEN = "broken"
"""Neither a check nor an invariant: the code raised what it should never raise."""
KNOWN_CHECKS = (*(f"R{n}" for n in range(1, 20) if n not in (5, 16)), "K4")
"""Those that the schedule gives input to. R5 is what R12 compares; R16 is about changes of the voter set."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CoresSettings:
    """`trace_lines`: keep so many of the last steps of a run that fails."""

    duration_ms: int = 10_000
    is_checked: bool = True
    trace_lines: int = 0


@dataclass(frozen=True, slots=True)
class CoresRun:
    """What one seed came to. A step is one input to one core. `failed` is the check that fired, "" if none did."""

    seed: int
    voters: int
    observers: int
    steps: int
    cpu_s: float
    elections: int
    seen: Counter[str]
    faults: Counter[str]
    failed: str = ""
    evidence: str = ""
    trace: tuple[str, ...] = ()


def run_seed(settings: CoresSettings, seed: int) -> CoresRun:
    """One world from its start to its verdict."""
    voters, observers = shape_of(seed)
    checks = Checks() if settings.is_checked else Witness()
    world = World(seed, voters, observers, odds=odds_of(seed), checks=checks)
    if settings.trace_lines:
        world.trace = deque(maxlen=settings.trace_lines)
    chaos = Chaos(world)
    began = time.process_time()
    failed, evidence = _verdict(chaos, settings.duration_ms)
    return CoresRun(
        seed=seed,
        voters=voters,
        observers=observers,
        steps=world.steps,
        cpu_s=time.process_time() - began,
        elections=world.elections,
        seen=checks.counts,
        faults=chaos.faults,
        failed=failed,
        evidence=evidence,
        trace=tuple(world.trace or ()) if failed else (),
    )


def _verdict(chaos: Chaos, duration_ms: int) -> tuple[str, str]:
    try:
        chaos.run(duration_ms)
    except Violation as violation:
        return violation.name, str(violation)
    except Stuck as stuck:
        return STUCK, str(stuck)
    except InvariantError as broken:
        return STOPPED, str(broken)
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed that led there must be told
        return BROKEN, repr(error)
    return "", ""


@dataclass(slots=True)
class CoresCampaign:
    """What the runs came to together."""

    seeds: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    elections: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[CoresRun] = field(default_factory=list)

    def add(self, run: CoresRun) -> None:
        self.seeds += 1
        self.steps += run.steps
        self.cpu_s += run.cpu_s
        self.elections += run.elections
        self.seen.update(run.seen)
        self.faults.update(run.faults)
        if run.failed:
            self.failures.append(run)

    @property
    def steps_per_cpu_s(self) -> int:
        return round(self.steps / max(self.cpu_s, 0.001))

    @property
    def unknown(self) -> list[str]:
        """Checks that saw nothing that could have failed them."""
        return [name for name in KNOWN_CHECKS if not self.seen[name]]

    def as_json(self) -> dict[str, object]:
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "cpu_seconds": round(self.cpu_s, 3),
            "steps_per_cpu_second": self.steps_per_cpu_s,
            "elections": self.elections,
            "faults": dict(sorted(self.faults.items())),
            "seen": dict(sorted(self.seen.items())),
            "failures": [{"seed": run.seed, "check": run.failed, "evidence": run.evidence} for run in self.failures],
        }


def run_campaign(seeds: Sequence[int], settings: CoresSettings, jobs: int, say: Say) -> CoresCampaign:
    """All of these seeds. Failures are said at once, figures in the end."""
    campaign = CoresCampaign()
    for run in _runs(seeds, settings, jobs):
        campaign.add(run)
        if run.failed:
            _tell_failure(run, settings, say)
    _tell_sum(campaign, settings, say)
    return campaign


def _runs(seeds: Sequence[int], settings: CoresSettings, jobs: int) -> Iterator[CoresRun]:
    """In the order of the seeds; with one job, in this process."""
    if jobs <= 1:
        yield from map(partial(run_seed, settings), seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(partial(run_seed, settings), seeds, SEEDS_AT_ONCE)


def _tell_failure(run: CoresRun, settings: CoresSettings, say: Say) -> None:
    unchecked = "" if settings.is_checked else " --no-checks"
    say(f"seed {run.seed} failed ({run.voters} voters, {run.observers} observers) at step {run.steps}: {run.evidence}")
    for line in run.trace:
        say(f"    | {line}")
    say(f"  kraft sim cores --seed {run.seed} --seconds {settings.duration_ms / 1000:g}{unchecked} --log")


def _tell_sum(campaign: CoresCampaign, settings: CoresSettings, say: Say) -> None:
    passed = campaign.seeds - len(campaign.failures)
    checked = "all checks on" if settings.is_checked else "checks off"
    say(f"{passed} of {campaign.seeds} seeds passed, {checked}")
    speed = f"{campaign.steps_per_cpu_s} steps per CPU second"
    say(f"{campaign.steps} steps (inputs to cores) in {campaign.cpu_s:.1f} CPU seconds: {speed}")
    say(f"elections: {campaign.elections}; faults: {_counted(campaign.faults)}")
    if settings.is_checked:
        say(f"seen: {_counted(campaign.seen)}")
        if campaign.unknown:
            say(f"unknown: nothing that matters was seen for {', '.join(campaign.unknown)}")
    if campaign.failures:
        say("failed: " + ", ".join(f"{run.seed} ({run.failed})" for run in campaign.failures))


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {counter[name]}" for name in sorted(counter)) or "none"
