"""`kraft sim`: run seeds, and use the plan file of one that failed.

    kraft sim --seed 42                  one run
    kraft sim --seed 42 --keep           the same, and its plan is kept in sim-failures
    kraft sim --seeds 300 --fresh        seeds 1 to 300, and a random new one
    kraft sim replay FILE                the run in a file, again
    kraft sim shrink FILE                the smallest plan that fails in the same way
    kraft sim report FILE                what happened, as text and as a page
    kraft sim determinism                whether a seed gives the same run twice
    kraft sim cores --seeds 1000         cores alone (raft, replicas), thousands of schedules in minutes
    kraft sim scenario broker-crash      a scenario of `kraft chaos` in virtual time
    kraft sim scenarios                  their names

Exit code 0 if all passed (of replay and report: if nothing is found), 1 if not, 2 for a file without a valid plan. Of a
scenario: 0 valid, 1 invalid, 3 unknown.
"""

from __future__ import annotations

import json
import math
import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from kraft.sim.run.kept_runs import KeptRuns
    from kraft.sim.run.plan_file import RecordedPlan
    from kraft.sim.run.run import RunSettings

FRESH_SEEDS = 1 << 31
CORES_SEEDS = 100
TRACE_LINES = 40
UNKNOWN_EXIT = 3
"""Exit code of a scenario whose verdict is unknown."""
SECONDS_MAX = 86_400
"""Maximum time in a plan (PLAN_MS_MAX, one day) in seconds. A longer run is rejected, because its plan file could not
be read again."""


class CoresKind(Enum):
    """Kinds of cores that `kraft sim cores` runs."""

    RAFT = "raft"
    REPLICAS = "replicas"
    BOTH = "both"


class Verbs(TyperGroup):
    """A command group in which a number instead of a command means a seed."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0].isdecimal() and not ctx.resilient_parsing:
            ctx.fail(f"There is no verb {args[0]}. A seed is given as --seed {args[0]}, so many of them as --seeds.")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Verbs,
    help="The in-memory cluster under faults: run seeds; replay, shrink and tell what failed.",
    pretty_exceptions_enable=False,
)


def _number(seconds: float) -> float:
    if math.isnan(seconds):
        raise typer.BadParameter("nan is no number of seconds")
    return seconds


Seconds = Annotated[float, typer.Option(help="Virtual seconds of faults.", min=0.1, max=SECONDS_MAX, callback=_number)]
PlanFile = Annotated[Path, typer.Argument(metavar="FILE", help="A plan, as a failing run leaves one.")]
Jobs = Annotated[int | None, typer.Option(help="Processes; default: one per processor.", min=1)]


@app.callback(invoke_without_command=True)
def sim(
    context: typer.Context,
    seed: Annotated[int | None, typer.Option(help="The first seed, or the only one.", min=0)] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, from --seed or 1 on.", min=0)] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="One more seed, drawn now; its line names it.")] = False,
    seconds: Seconds = 60,
    crashes: Annotated[int, typer.Option(help="Crashes in a run, at least.", min=0)] = 4,
    jobs: Jobs = None,
    failures: Annotated[Path, typer.Option(metavar="DIR", help="Where a failing run leaves its plan.")] = Path(
        "sim-failures"
    ),
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Leave the plan of every run in the folder of --failures, not only of those that fail."
        ),
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Show the last log lines of a run that fails.")] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write down in FILE which seeds have passed, and go on from there when run again: what the same code "
            "has passed is not run twice.",
        ),
    ] = None,
) -> None:
    """Run seeds: a whole cluster each, in memory and in virtual time, under faults and under every check."""
    if context.invoked_subcommand is not None:
        return
    from kraft.sim.nemesis.faults import FaultSettings
    from kraft.sim.run.kept_runs import CodeChanged
    from kraft.sim.run.run import RunSettings
    from kraft.sim.run.seed_campaign import CampaignSettings, SeedCampaign

    if keep and resume is not None:
        raise typer.BadParameter("--keep and --resume: of a seed that is not run again no plan can be left")
    if keep:
        _require_writable_folder(failures)
    count = seeds if seeds is not None else 0 if seed is None else 1
    if seeds == 0 and not fresh:
        raise typer.BadParameter("--seeds 0 runs no seed; add --fresh for one that is drawn now")
    first = 1 if seed is None else seed
    chosen = [*range(first, first + count)]
    if fresh or not chosen:
        chosen.append(int.from_bytes(os.urandom(8), "big") % FRESH_SEEDS)
    faults = FaultSettings(duration_ms=int(seconds * 1000), crashes=crashes)
    processes = min(_processes(jobs), len(chosen))
    run = RunSettings(faults=faults)
    kept = None if resume is None else _kept_runs(resume, run)
    settings = CampaignSettings(chosen, run, processes, failures, log, keep, kept)
    try:
        is_good = SeedCampaign(settings).run()
    except CodeChanged as problem:
        print(f"kraft: {problem}", file=sys.stderr)
        is_good = False
    raise typer.Exit(0 if is_good else 1)


@app.command()
def replay(file: PlanFile) -> None:
    """Run the plan in a file again, and report whether it is the same run and fails in the same way."""
    from kraft.sim.run.run import RunSettings, Signature
    from kraft.sim.run.seed_campaign import failure_lines, line_of, timed_run

    recorded = _read(file)
    result, took_s = timed_run(RunSettings(plan=recorded.plan), recorded.plan.seed)
    print(line_of(result, took_s))
    for line in failure_lines(result):
        print(line)
    if recorded.trace_hash:  # a plan that was written by hand, or is being shrunk, has none
        same = "the trace is the same" if result.trace_hash == recorded.trace_hash else "the trace is not the same"
        print(f"{same} as pykraft {recorded.pykraft or '(version unknown)'} recorded")
    if recorded.failure is not None:
        fails = any(Signature.of(finding) == recorded.failure for finding in result.findings)
        print(f"{recorded.failure.check} {'fails again' if fails else 'does not fail'}: {recorded.failure.text}")
    raise typer.Exit(1 if result.findings else 0)


@app.command()
def shrink(
    file: PlanFile,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: FILE with .small before its end.")] = None,
    runs: Annotated[int, typer.Option(help="Try at most so many plans.", min=1)] = 300,
) -> None:
    """Remove faults, clients, nodes, settings, operations and time while the same check fails."""
    from kraft.sim.run.plan_file import RecordedPlan, write_plan
    from kraft.sim.run.run import run_plan
    from kraft.sim.run.shrink import NotFailing, Shrinker, describe

    recorded = _read(file)
    if recorded.failure is None:
        raise typer.BadParameter(
            f"{file} does not say which check fails: there is nothing to shrink in a run that passed", param_hint="FILE"
        )
    target = out or file.with_suffix(".small.json")
    _require_writable(target)
    shrinker = Shrinker(recorded.plan, recorded.failure, runs_max=runs)
    print(f"{recorded.failure.check}: {recorded.failure.text}")
    print(f"from {describe(recorded.plan)}")
    try:
        for progress in shrinker.steps():
            print(f"  run {progress.runs}: {progress.what}", flush=True)
            write_plan(target, RecordedPlan(progress.plan, "", recorded.failure, recorded.finding, recorded.pykraft))
    except NotFailing as problem:
        print(problem)
        raise typer.Exit(1) from None
    write_plan(target, RecordedPlan.of(run_plan(shrinker.smallest), recorded.failure))
    print(f"to   {describe(shrinker.smallest)}, in {shrinker.runs} runs")
    print(f"  kraft sim report {target}")


@app.command()
def report(
    file: PlanFile,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page; default: FILE with .html.")] = None,
    lines: Annotated[int, typer.Option(help="Show at most so many lines of the story, the last ones.", min=1)] = 80,
) -> None:
    """Report what happened: in the terminal, and as one self-contained page with pictures."""
    from kraft.sim.story.page import render_page
    from kraft.sim.story.story import make_story
    from kraft.sim.story.text import render_text

    recorded = _read(file)
    target = out or file.with_suffix(".html")
    _require_writable(target)
    story = make_story(recorded, str(file))
    for line in render_text(story, lines_max=lines):
        print(line)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render_page(story))
    print(f"the page: {target}")
    raise typer.Exit(1 if story.finding else 0)


@app.command("cold-starts")
def cold_starts(
    starts: Annotated[int, typer.Option(help="So many of each size.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1,
    jobs: Jobs = None,
) -> None:
    """Start fresh quorums of three and of five voters, and count the rounds until they have a leader."""
    from kraft.sim.run.seed_campaign import run_cold_starts

    raise typer.Exit(0 if run_cold_starts(range(seed, seed + starts), _processes(jobs)) else 1)


@app.command()
def cores(
    seed: Annotated[int | None, typer.Option(help="The first seed, or the only one.", min=0)] = None,
    seeds: Annotated[int | None, typer.Option(help="How many, from --seed or 1 on; default: 100.", min=1)] = None,
    what: Annotated[CoresKind, typer.Option(help="Quorums of raft cores, the replicas of partitions, or both.")] = (
        CoresKind.BOTH
    ),
    seconds: Seconds = 10,
    no_checks: Annotated[bool, typer.Option("--no-checks", help="Only drive the cores: how fast are they?")] = False,
    jobs: Jobs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Show the last steps of a run that fails.")] = False,
) -> None:
    """Run cores alone on a heap of events: quorums of raft cores under crashes and partitions, and the replicas of a
    partition against the controller's decisions."""
    from kraft.sim.cores.campaign import CoresCampaign, run_campaign
    from kraft.sim.cores.runs import STAGES, CoresSettings

    count = seeds if seeds is not None else CORES_SEEDS if seed is None else 1
    first = 1 if seed is None else seed
    campaigns: dict[str, CoresCampaign] = {}
    for kind in STAGES if what is CoresKind.BOTH else (what.value,):
        settings = CoresSettings(int(seconds * 1000), not no_checks, TRACE_LINES if log else 0, kind)
        campaigns[kind] = run_campaign(
            range(first, first + count), settings, min(_processes(jobs), count), _say_nothing if as_json else print
        )
    if as_json:
        print(json.dumps({kind: campaign.as_json() for kind, campaign in campaigns.items()}))
    raise typer.Exit(0 if all(campaign.is_good for campaign in campaigns.values()) else 1)


@app.command()
def determinism(
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1,
    seconds: Seconds = 60,
) -> None:
    """Run each seed twice, in fresh processes with different hash seeds, and report where two runs diverge, if
    they do."""
    from kraft.sim.run.determinism import run_twice

    parted = 0
    for number in range(seed, seed + seeds):
        where = run_twice(number, int(seconds * 1000))
        parted += bool(where)
        if where:
            print(f"seed {number} {where}", flush=True)
    print(f"{seeds - parted} of {seeds} seeds are one run")
    raise typer.Exit(1 if parted else 0)


@app.command()
def scenario(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="One of `kraft sim scenarios`, or a .toml file.")],
    seed: Annotated[int, typer.Option(help="It decides everything.", min=0)] = 1,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Leave history, faults, samples, verdict and report in DIR.")
    ] = None,
) -> None:
    """Run a scenario of `kraft chaos` in virtual time: the same clients, faults and checks on a simulated cluster."""
    from kraft.sim.chaos.judge import INVALID, VALID
    from kraft.sim.chaos.run.simulated_run import run_simulated, summary_lines
    from kraft.sim.chaos.scenarios.scenario import ScenarioError
    from kraft.sim.chaos.scenarios.scenario_file import read_scenario
    from kraft.sim.shapes import ClusterError

    if keep is not None:
        if keep.exists():
            raise typer.BadParameter(f"--keep {keep}: it exists already")
        _require_writable_folder(keep)
    try:
        run = run_simulated(read_scenario(name), seed, command=f"kraft sim scenario {name} --seed {seed}")
    except ScenarioError as problem:
        raise typer.BadParameter(str(problem), param_hint="NAME|FILE") from problem
    except ClusterError as problem:
        print(f"kraft: {problem}", file=sys.stderr)
        raise typer.Exit(1) from None
    if keep is not None:
        run.write_to(keep)
    for line in summary_lines(run):
        print(line)
    if keep is not None:
        print(f"kept in {keep}")
    raise typer.Exit({VALID: 0, INVALID: 1}.get(run.verdict.verdict, UNKNOWN_EXIT))


@app.command()
def scenarios() -> None:
    """List the scenarios that come with the package."""
    from kraft.sim.chaos.run.simulated_run import why_not_simulated
    from kraft.sim.chaos.scenarios.scenario_file import builtin_scenarios

    for each in builtin_scenarios():
        print(f"{each.name:<22} {each.title}{' (kraft chaos run only)' if why_not_simulated(each) else ''}")


def _say_nothing(line: str) -> None:
    """Print nothing: the figures are printed in another form."""


def _processes(jobs: int | None) -> int:
    return jobs or os.cpu_count() or 1


def _read(file: Path) -> RecordedPlan:
    from kraft.sim.run.plan_file import PlanFileError, read_plan

    try:
        return read_plan(file)
    except OSError as problem:
        raise typer.BadParameter(f"{file}: {problem.strerror}", param_hint="FILE") from problem
    except PlanFileError as problem:
        raise typer.BadParameter(str(problem), param_hint="FILE") from problem


def _require_writable(file: Path) -> None:
    """Report before a run, not after it, that its file cannot be written."""
    if file.is_dir() or (file.exists() and not os.access(file, os.W_OK)):
        raise typer.BadParameter(f"{file} {'is a folder' if file.is_dir() else 'may not be written'}")
    _require_writable_folder(file.parent)


def _kept_runs(file: Path, run: RunSettings) -> KeptRuns:
    from kraft.sim.run.kept_runs import KeptRuns

    try:
        return KeptRuns(file, run)
    except (OSError, UnicodeDecodeError) as problem:
        raise typer.BadParameter(f"--resume {file}: no runs can be kept in it ({problem})") from problem


def _require_writable_folder(folder: Path) -> None:
    """Report before a run that a folder for its files cannot be written. The folder is created when it is needed, so
    its nearest existing parent must be writable."""
    nearest = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"nothing can be written to {folder}: {nearest} is no folder, or does not allow it")
