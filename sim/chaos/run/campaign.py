"""A campaign: several runs, one at a time, each in a separate folder, and a page that summarizes them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.judge import INVALID, UNKNOWN, RunVerdict
from kraft.sim.chaos.report import render_summary, summary_table_markdown, text_summary
from kraft.sim.chaos.run.run_folder import RunFolder, RunInfo
from kraft.sim.chaos.run.runner import ChaosRunSettings, Run, RunProgress
from kraft.sim.chaos.run.terminal import QuietProgress, TerminalProgress
from kraft.sim.chaos.scenarios.scenario import Scenario
from kraft.sim.chaos.targets import ChaosTarget
from kraft.sim.shapes import ClusterError

SUMMARY_PAGE, SUMMARY_TABLE = "summary.html", "summary.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """A kind of cluster. `make` creates the target of one run from its scenario, its folder and the cleanup process
    (warden)."""

    name: str
    make: Callable[[Scenario, Path, Warden], ChaosTarget]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosCampaignSettings:
    """Settings of a campaign. Each of `runs` (scenario, seed) is run on each of `clusters`, alternating between
    clusters. `command` returns the command line that repeats one run, from its scenario's name, seed and cluster."""

    runs: Sequence[tuple[Scenario, int]]
    clusters: Sequence[ClusterChoice]
    out: Path
    command: Callable[[Scenario, int, str], str]
    client: str = "kraft"
    is_quiet: bool = False
    keeps_data: bool = False
    application: tuple[str, ...] = ()
    raise_if_interrupted: Callable[[], None] = lambda: None
    """Callback that is called repeatedly and raises KeyboardInterrupt to end the campaign."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is over. `info` None: the run has no verdict, because the cluster did not start or the run itself
    failed; `verdict` says which."""

    scenario: str
    cluster: str
    seed: int
    folder: Path
    verdict: RunVerdict
    info: RunInfo | None


class ChaosCampaign:
    """Runs a campaign; see the module."""

    def __init__(self, settings: ChaosCampaignSettings) -> None:
        self._settings = settings
        self.finished: list[FinishedRun] = []

    @property
    def verdict(self) -> str:
        """Verdict of all runs: invalid if any run is invalid, otherwise unknown if any is unknown, otherwise valid."""
        verdicts = [one.verdict.verdict for one in self.finished]
        return next((kind for kind in (INVALID, UNKNOWN) if kind in verdicts), "valid" if verdicts else UNKNOWN)

    def run(self) -> None:
        """Run all runs. If one raises, a summary of the finished runs is written before the exception propagates."""
        settings = self._settings
        try:
            for scenario, seed in settings.runs:
                for cluster in settings.clusters:
                    self._run_one(scenario, seed, cluster)
        finally:
            if len(self.finished) > 1:
                self._sum_up()

    def _run_one(self, scenario: Scenario, seed: int, cluster: ClusterChoice) -> None:
        settings = self._settings
        folder = _new_folder(settings.out, f"{scenario.name}-{cluster.name}-{seed}")
        self._say(f"{scenario.name}: {scenario.title} ({cluster.name}, seed {seed})")
        progress: RunProgress = QuietProgress() if settings.is_quiet else TerminalProgress(float(scenario.duration_ms))
        run_settings = ChaosRunSettings(
            scenario=scenario,
            client=settings.client,
            seed=seed,
            command=settings.command(scenario, seed, cluster.name),
            application=settings.application,
            echo=not settings.is_quiet,
            keeps_data=settings.keeps_data,
            raise_if_interrupted=settings.raise_if_interrupted,
        )
        run = Run(run_settings, folder, lambda warden: cluster.make(scenario, folder, warden), progress)
        info: RunInfo | None = None
        try:
            verdict = run.run()
            info = RunFolder(folder).read_info()
        except KeyboardInterrupt:
            self._say(f"interrupted: nothing was judged, and {folder} is incomplete")
            raise
        except ClusterError as problem:
            verdict = RunVerdict(verdict=UNKNOWN, reasons=(str(problem),))
        except Exception as problem:  # noqa: BLE001 - our own error, not the cluster's; the next run starts
            verdict = RunVerdict(verdict=UNKNOWN, reasons=(_noted(problem, folder),))
        finally:
            progress.done()
        self.finished.append(FinishedRun(scenario.name, cluster.name, seed, folder, verdict, info))
        if info is None:
            self._say(f"unknown: {'; '.join(verdict.reasons)}")
            return
        for line in text_summary(info, verdict, RunFolder(folder).read_faults(), RunFolder(folder)):
            self._say(line)
        self._say("")

    def _sum_up(self) -> None:
        settings = self._settings
        known = [
            (one.info, one.verdict, str(RunFolder(one.folder).report.relative_to(settings.out)))
            for one in self.finished
            if one.info is not None
        ]
        if not known:
            return
        (settings.out / SUMMARY_PAGE).write_text(render_summary(known))
        (settings.out / SUMMARY_TABLE).write_text(summary_table_markdown(known))
        counts = {
            kind: sum(one.verdict.verdict == kind for one in self.finished) for kind in ("valid", INVALID, UNKNOWN)
        }
        self._say(", ".join(f"{count} {kind}" for kind, count in counts.items()))
        self._say(f"summary: {settings.out / SUMMARY_PAGE}")

    def _say(self, text: str) -> None:
        if not self._settings.is_quiet:
            print(text, flush=True)


def _noted(problem: Exception, folder: Path) -> str:
    """Return a sentence about a run that failed because of an error in the run itself; the details are in its
    folder."""
    text = f"the run itself failed: {type(problem).__name__}: {problem}"
    with suppress(OSError):
        path = RunFolder(folder).error
        path.write_text("".join(traceback.format_exception(problem)))
        return f"{text}; {path} says where"
    return text


def _new_folder(parent: Path, name: str) -> Path:
    """Return the path of a new folder, named after the run and the time."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder, number = parent / f"{name}-{stamp}", 1
    while folder.exists():
        number += 1
        folder = parent / f"{name}-{stamp}-{number}"
    return folder
