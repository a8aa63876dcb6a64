"""Runs many seeds of one kind of cores, each in a separate world. Collects the failures of all runs and adds up the
input of the checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kraft.sim.cores.runs import KNOWN_CHECKS, RAFT, CoresRun, CoresSettings, run_seed
from kraft.sim.seed_processes import Died, in_processes

LARGE_SEEDS = 30
"""Number of seeds from which on a campaign fails if any check had no input."""

Say = Callable[[str], None]


@dataclass(slots=True)
class CoresCampaign:
    """Combined result of the runs."""

    what: str = RAFT
    seeds: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[CoresRun] = field(default_factory=list)
    died: list[Died] = field(default_factory=list)
    is_checked: bool = True

    def add(self, run: CoresRun) -> None:
        self.seeds += 1
        self.steps += run.steps
        self.cpu_s += run.cpu_s
        self.happened.update(run.happened)
        self.seen.update(run.seen)
        self.faults.update(run.faults)
        if run.failed:
            self.failures.append(run)

    @property
    def steps_per_cpu_s(self) -> int:
        return round(self.steps / max(self.cpu_s, 0.001))

    @property
    def unknown(self) -> list[str]:
        """Checks that had no input in any run that could have violated them."""
        return [name for name in KNOWN_CHECKS[self.what] if not self.seen[name]] if self.is_checked else []

    @property
    def is_large(self) -> bool:
        """Whether the campaign is so large that every check must have had input."""
        return self.seeds + len(self.died) >= LARGE_SEEDS

    @property
    def is_good(self) -> bool:
        """Whether every seed passed and, in a large campaign, every check had input."""
        return not (self.failures or self.died or (self.is_large and self.unknown))

    def as_json(self) -> dict[str, object]:
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "cpu_seconds": round(self.cpu_s, 3),
            "steps_per_cpu_second": self.steps_per_cpu_s,
            "happened": dict(sorted(self.happened.items())),
            "faults": dict(sorted(self.faults.items())),
            "seen": dict(sorted(self.seen.items())),
            "unknown": self.unknown,
            "died": [{"seed": died.seed, "why": str(died)} for died in self.died],
            "failures": [{"seed": run.seed, "check": run.failed, "evidence": run.evidence} for run in self.failures],
        }


def run_campaign(seeds: Sequence[int], settings: CoresSettings, jobs: int, say: Say) -> CoresCampaign:
    """Run all of these seeds. Failures are printed at once, figures at the end."""
    campaign = CoresCampaign(settings.what, is_checked=settings.is_checked)
    for run in in_processes(partial(run_seed, settings), seeds, jobs, runs_per_process=len(seeds)):
        if isinstance(run, Died):
            campaign.died.append(run)
            say(f"{settings.what}: seed {run.seed} failed: {run}")
            continue
        campaign.add(run)
        if run.failed:
            _report_failure(run, settings, say)
    _report_sum(campaign, settings, say)
    return campaign


def _report_failure(run: CoresRun, settings: CoresSettings, say: Say) -> None:
    unchecked = "" if settings.is_checked else " --no-checks"
    say(f"{run.what}: seed {run.seed} failed ({run.shape}) at step {run.steps}: {run.evidence}")
    for line in run.trace:
        say(f"    | {line}")
    command = f"kraft sim cores --what {run.what} --seed {run.seed} --seconds {settings.duration_ms / 1000:g}"
    say(f"  {command}{unchecked} --log")


def _report_sum(campaign: CoresCampaign, settings: CoresSettings, say: Say) -> None:
    passed, every = campaign.seeds - len(campaign.failures), campaign.seeds + len(campaign.died)
    checked = "all checks on" if settings.is_checked else "checks off"
    say(f"{campaign.what}: {passed} of {every} seeds passed, {checked}")
    speed = f"{campaign.steps_per_cpu_s} steps per CPU second"
    say(f"{campaign.steps} steps (inputs to cores) in {campaign.cpu_s:.1f} CPU seconds: {speed}")
    say(f"happened: {_counted(campaign.happened)}")
    say(f"faults: {_counted(campaign.faults)}")
    if settings.is_checked:
        say(f"seen: {_counted(campaign.seen)}")
    if campaign.unknown:
        mild = (
            "" if campaign.is_large else f" (no failure: only {LARGE_SEEDS} seeds and more must leave nothing unknown)"
        )
        say(f"unknown: nothing that matters was seen for {', '.join(campaign.unknown)}{mild}")
    failed = [f"{run.seed} ({run.failed})" for run in campaign.failures] + [f"{died.seed}" for died in campaign.died]
    if failed:
        say(f"failed: {', '.join(failed)}")


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {counter[name]}" for name in sorted(counter)) or "none"
