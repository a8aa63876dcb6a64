"""Runs many seeds, and reports their combined result: a line for each run, a plan file for each failure, and coverage.

A campaign without a failure proves only what it covered. So it reports three things as unknown: checks without relevant
input, histories whose check took too long, and combinations of a fault and a cluster state that never occurred.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kraft.broker.partition.partition_states import TRANSITIONS
from kraft.sim.run.cold_starts import ROUNDS_MAX, ColdStart, cold_start
from kraft.sim.run.fault_coverage import (
    TRANSITION,
    Cell,
    classes_never_met,
    coverage_table,
    never_met,
    transitions_never_taken,
)
from kraft.sim.run.kept_runs import KeptRuns, RunFigures
from kraft.sim.run.plan_file import RecordedPlan, write_plan
from kraft.sim.run.run import RunResult, RunSettings, run_seed
from kraft.sim.seed_processes import Died, in_processes

VOTERS = (3, 5)
LOG_LINES_SHOWN = 60
FAULT = "fault: "
LARGE_SEEDS = 30
"""Number of seeds from which on a campaign fails if any check or history is left unknown."""
COVERING_SEEDS = 100
"""Number of seeds from which on a campaign fails if some class of faults never coincided with some state of the
cluster."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """Settings of a campaign. `failures` is the folder for plan files of failed runs or, with `keeps_plans`, of all
    runs. `kept`: file of passed runs, which are not run again."""

    seeds: Sequence[int]
    run: RunSettings = field(default_factory=RunSettings)
    jobs: int = 2
    failures: Path = Path("sim-failures")
    shows_log: bool = False
    keeps_plans: bool = False
    kept: KeptRuns | None = None


def print_at_once(line: str) -> None:
    """Print a line that a reader of a pipe gets now, not with the next lines."""
    print(line, flush=True)


class SeedCampaign:
    """Runs seeds, prints the result of each, and adds the results up."""

    def __init__(self, settings: CampaignSettings, say: Say = print_at_once) -> None:
        self.failed: list[int] = []
        self.coverage: Counter[Cell] = Counter()
        self._settings = settings
        self._say = say
        self._seen: Counter[str] = Counter()
        self._checks: set[str] = set()
        self._acknowledged: list[int] = []
        """Number of acknowledged records of each seed."""
        self._faults: list[tuple[int, int]] = []
        """(number of faults, their kinds) of each seed that has faults."""
        self._virtual_ms = 0
        self._cpu_s = 0.0

    def run(self) -> bool:
        """Run all seeds. Return True if every run passed, a large campaign left nothing unknown, and in a very large
        one each class of faults coincided with each state."""
        settings = self._settings
        for ran in in_processes(partial(timed_run, settings.run), self._take_kept(), settings.jobs):
            if isinstance(ran, Died):
                self._report_death(ran)
                continue
            result, took_s = ran
            figures = RunFigures.of(result, took_s)
            self._add(figures)
            self._say(line_of(result, took_s))
            if result.findings:
                self.failed.append(result.seed)
                self._report_failure(result)
                continue
            if settings.kept is not None:
                settings.kept.keep(figures)
            if settings.keeps_plans:
                self._say(f"  kraft sim replay {self._keep(result)}")
        self._report_sum()
        is_known = self._is_small or not (self.unknown or self.undecided)
        return not self.failed and is_known and (not self._is_covering or not classes_never_met(self.coverage))

    def _take_kept(self) -> list[int]:
        """Add up the runs that are recorded already; return the remaining seeds."""
        seeds, kept = self._settings.seeds, self._settings.kept
        if kept is None:
            return list(seeds)
        known = [kept.found[seed] for seed in seeds if seed in kept.found]
        for run in known:
            self._add(run)
        self._say(f"{len(known)} of {len(seeds)} seeds have passed before, with this code: {kept.path}")
        return [seed for seed in seeds if seed not in kept.found]

    @property
    def unknown(self) -> list[str]:
        """Checks that had no relevant input in any run."""
        return sorted(check for check in self._checks if not self._seen[check])

    @property
    def _is_small(self) -> bool:
        return len(self._settings.seeds) < LARGE_SEEDS

    @property
    def _is_covering(self) -> bool:
        return len(self._settings.seeds) >= COVERING_SEEDS

    @property
    def undecided(self) -> int:
        """Number of histories, in all runs, whose search was abandoned."""
        return self._seen["undecided"]

    def _add(self, run: RunFigures) -> None:
        self._virtual_ms += run.virtual_ms
        self._cpu_s += run.took_s
        self._acknowledged.append(run.counters.get("acknowledged", 0))
        if run.is_faulty:
            happened = [count for name, count in run.counters.items() if name.startswith(FAULT) and count]
            self._faults.append((sum(happened), len(happened)))
        self._seen.update(run.counters)
        self._checks.update(run.unseen)
        self.coverage.update(run.coverage)

    def _report_death(self, died: Died) -> None:
        """Report that the process of a run died. There is no plan file, so only the seed is printed."""
        self.failed.append(died.seed)
        faults = self._settings.run.faults
        self._say(f"seed {died.seed:<6} failed: {died}")
        self._say(f"  kraft sim --seed {died.seed} --seconds {faults.duration_ms / 1000:g} --crashes {faults.crashes}")

    def _report_failure(self, result: RunResult) -> None:
        for text in failure_lines(result):
            self._say(text)
        if self._settings.shows_log:
            for text in result.log_lines[-LOG_LINES_SHOWN:]:
                self._say(f"    | {text}")
        try:
            path = self._keep(result)
        except OSError as problem:
            why = f"{self._settings.failures} cannot be written ({problem.strerror})"
            self._say(f"  no plan is left, for {why}: --failures names another")
            return
        for verb in ("replay", "shrink", "report"):
            self._say(f"  kraft sim {verb} {path}")

    def _keep(self, result: RunResult) -> Path:
        """Write the plan of this run; return the file's path."""
        path = self._settings.failures / f"seed-{result.seed}.json"
        write_plan(path, RecordedPlan.of(result))
        return path

    def _report_sum(self) -> None:
        happened = {name.removeprefix(FAULT): count for name, count in self._seen.items() if name.startswith(FAULT)}
        faults = "faults: " + (", ".join(f"{name} {count}" for name, count in happened.items()) or "none")
        if len(self._settings.seeds) == 1:
            self._say(faults)
            self._report_one()
            return
        seeds, speed = len(self._settings.seeds), self._virtual_ms / 1000 / max(self._cpu_s, 0.001)
        self._say(f"{seeds - len(self.failed)} of {seeds} seeds passed; {speed:.1f} virtual seconds per CPU second")
        self._report_coverage()
        self._report_transitions()
        self._say(faults)
        self._report_least()
        self._report_seen()
        if self.failed:
            self._say(f"failed: {', '.join(map(str, self.failed))}")

    def _report_least(self) -> None:
        """Print the lowest figures among the seeds, because they limit what the campaign proves."""
        told = [f"{min(self._acknowledged, default=0)} records acknowledged"]
        if self._faults:
            counts, kinds = zip(*self._faults, strict=True)
            told.append(f"{min(counts)} faults, {min(kinds)} kinds of faults (of seeds that are not free of them)")
        self._say(f"least of a seed: {', '.join(told)}")

    def _report_one(self) -> None:
        """Print the figures on which the verdict of a single run is based. Codes of checks are omitted, because some
        checks have no input in one run."""
        told = [] if self.failed else ["all that had something to judge held"]
        if self.unknown:
            told.append(f"{len(self.unknown)} had nothing to judge in this one run (--seeds 20 tells which)")
        if self.undecided:
            told.append(f"histories whose judgement took too long and was given up: {self.undecided}")
        if told:
            self._say(f"checks: {'; '.join(told)}")

    def _report_seen(self) -> None:
        say, seen = self._say, self._seen
        told = [f"{name} {count}" for name, count in seen.items() if not name.startswith((FAULT, TRANSITION))]
        say("seen: " + ", ".join(told))
        mild = f" (no failure: only {LARGE_SEEDS} seeds and more must leave nothing unknown)" if self._is_small else ""
        if self.unknown:
            say(f"unknown: nothing that matters was seen for {', '.join(self.unknown)}{mild}")
        if self.undecided:
            say(f"unknown: the judgement of {self.undecided} histories (R20, G3b) took too long and was given up{mild}")

    def _report_transitions(self) -> None:
        never = transitions_never_taken(self._seen)
        told = f"{len(TRANSITIONS) - len(never)} of {len(TRANSITIONS)} transitions of a replica's states were taken"
        self._say(f"{told}; never: {', '.join(never)}" if never else told)

    def _report_coverage(self) -> None:
        for text in coverage_table(self.coverage):
            self._say(text)
        empty, cells = never_met(self.coverage)
        what = "the state, of those that the fault hit, went on while it lasted, or began soon after"
        self._say(f"{cells - len(empty)} of {cells} cells were met ({what})")
        if unmet := classes_never_met(self.coverage):
            mild = "" if self._is_covering else f" (no failure: only {COVERING_SEEDS} seeds and more must meet all)"
            told = ", ".join(f"{name} and {state}" for name, state in unmet)
            self._say(f"unmet: faults of a class and a state that never met: {told}{mild}")


def timed_run(settings: RunSettings, seed: int) -> tuple[RunResult, float]:
    """Carry out a run, and return the result with its CPU seconds."""
    started = time.process_time()
    return run_seed(seed, settings), time.process_time() - started


def line_of(result: RunResult, took_s: float) -> str:
    """Summarise a run in one line."""
    facts = result.counters
    return (
        f"seed {result.seed:<6} {'failed' if result.findings else 'passed'} {result.virtual_ms / 1000:6.1f} virtual s "
        f"in {took_s:5.1f} CPU s, {facts['crashes']} crashes, {facts['acknowledged']} acknowledged, "
        f"well after {facts['whole_ms']} ms, trace {result.trace_hash[:12]}"
    )


def failure_lines(result: RunResult) -> Iterable[str]:
    """Return the faults of a run, and its findings."""
    yield from (f"    {text}" for text in result.history)
    yield from (f"  * {finding}" for finding in result.findings)


def run_cold_starts(seeds: Sequence[int], jobs: int, say: Say = print_at_once) -> bool:
    """Run the cold starts. Return True if every start, for every number of voters, took few enough voting rounds."""
    good = True
    for voters in VOTERS:
        starts: list[ColdStart] = []
        for start in in_processes(partial(cold_start, voters=voters), seeds, jobs):
            if isinstance(start, Died):
                good = False
                say(f"seed {start.seed}: {start}")
                continue
            starts.append(start)
            if not start.is_good:
                good = False
                say(f"seed {start.seed}: {start.rounds} rounds, {start.took_ms} ms {' '.join(start.problems)}")
        rounds = sorted(Counter(start.rounds for start in starts).items())
        times = sorted(start.took_ms for start in starts)
        say(
            f"{voters} voters, {len(starts)} cold starts: rounds "
            + ", ".join(f"{count} x {number}" for number, count in rounds)
            + f" (at most {ROUNDS_MAX}); led after {times[len(times) // 2]} ms (median), {times[-1]} ms (worst)"
        )
    return good
