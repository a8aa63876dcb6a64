"""`kraft chaos`: Jepsen-like scenarios on real processes behind a real toxiproxy.

    kraft chaos list                              the scenarios
    kraft chaos show broker-crash > mine.toml     one of them, to copy and edit
    kraft chaos run broker-crash                  run it, and judge it
    kraft chaos run mine.toml --seed 7 --repeat 3
    kraft chaos run broker-crash -- ./my-tests    the same, with a program of your own as the workload
    kraft chaos run broker-crash --kafka DIR      against Apache Kafka, started from the files in DIR
    kraft chaos run clients-cut --against HOST:PORT   against a cluster that is already running
    kraft chaos campaign --repeat 3               every scenario three times, with a summary page
    kraft chaos judge FOLDER                      judge a finished run again

Exit code: 0 if every run is valid, 1 if one is invalid, 2 for wrong arguments, 3 if one is unknown and none is invalid;
128+N if signal N ended it.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, print_json, print_table

if TYPE_CHECKING:
    from kraft.sim.chaos.run.campaign import ChaosCampaignSettings, ClusterChoice
    from kraft.sim.chaos.scenarios.scenario import Scenario

EXIT_INVALID, EXIT_UNKNOWN = 1, 3
EXTRA_MODULES = ("toxiproxy", "requests", "future")
"""Modules that the extra [chaos] installs. A run checks before it starts that they are there."""
SIGNAL_BASE = 128
SECONDS_MAX = 86_400
RUNS_FOLDER = Path("chaos-runs")

app = typer.Typer(
    help="Jepsen-like scenarios on real processes behind a real toxiproxy, with a verdict.",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

ScenarioName = Annotated[str, typer.Argument(metavar="SCENARIO", help="A name of kraft chaos list, or a file.")]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", min=0)]
Client = Annotated[str, typer.Option(help="The client library: kraft, confluent-kafka or kafka-python.")]
Kafka = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Run against Apache Kafka, started from the files in DIR.")
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder in which the folder of each run is created.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the nodes' data too, beside their logs.")]
Duration = Annotated[
    float | None,
    typer.Option(help="Duration; faults are repeated in each period.", min=5, max=SECONDS_MAX),
]
Nodes = Annotated[
    str | None, typer.Option(metavar="3+3", help="Number of controllers + brokers, or of nodes with both roles.")
]


@app.command("list")
def list_scenarios(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the scenarios that come with the command."""
    from kraft.sim.chaos.scenarios.scenario_file import builtin_scenarios

    found = builtin_scenarios()
    if as_json:
        print_json(
            [{"name": one.name, "title": one.title, "about": one.about, "is_core": one.is_core} for one in found]
        )
        return
    print_table(
        ("scenario", "what happens", "seconds"),
        [(one.name, one.title, round(one.duration_ms / 1000)) for one in found],
    )


@app.command()
def show(scenario: ScenarioName) -> None:
    """Print a scenario's file, to copy and edit."""
    print(_read(scenario).text, end="")


@app.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": True})
def run(
    scenario: ScenarioName,
    application: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- CMD ARG…]", help="A program of your own, as the workload."),
    ] = None,
    seed: Seed = 1,
    duration: Duration = None,
    repeat: Annotated[int, typer.Option(help="Number of runs, each with the next seed.", min=1)] = 1,
    nodes: Nodes = None,
    client: Client = "kraft",
    kafka: Kafka = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,…", help="Run against this cluster, with only the faults that are possible from here."
        ),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --against: commands that kill, stop, start and pause its nodes."),
    ] = None,
    namespaces: Annotated[
        bool, typer.Option("--namespaces", help="Links by network namespaces and tc netem instead of toxiproxy.")
    ] = False,
    out: Out = RUNS_FOLDER,
    keep: Keep = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON, and nothing else.")] = False,
) -> None:
    """Run a scenario, and judge it: valid, invalid or unknown."""
    from kraft.sim.chaos.run.campaign import ChaosCampaignSettings

    chosen = _adapted(_read(scenario), duration, nodes)
    if as_json and application:
        raise CommandFailed("--json: the output of an application would be mixed with it", code=EXIT_USAGE)
    settings = ChaosCampaignSettings(
        runs=[(chosen, seed + number) for number in range(repeat)],
        clusters=[_cluster(kafka, against, control, namespaces)],
        out=out,
        command=lambda one, number, _: _again(scenario, number),
        client=client,
        is_quiet=as_json,
        keeps_data=keep,
        application=tuple(application or ()),
    )
    _carry_out(settings, as_json=as_json)


@app.command()
def campaign(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCENARIO…]", help="Names or files; default: all scenarios of kraft chaos list."),
    ] = None,
    seed: Seed = 1,
    repeat: Annotated[int, typer.Option(help="Number of runs of each scenario, each with the next seed.", min=1)] = 1,
    core_repeat: Annotated[
        int | None,
        typer.Option("--core-repeat", help="Number of runs of the core scenarios; default: as --repeat.", min=1),
    ] = None,
    client: Client = "kraft",
    kafka: Kafka = None,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="With --kafka: run each on pykraft too, in turn.")
    ] = False,
    out: Out = RUNS_FOLDER,
    keep: Keep = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON, and nothing else.")] = False,
) -> None:
    """Run several scenarios several times, and write a summary page."""
    from kraft.sim.chaos.run.campaign import ChaosCampaignSettings
    from kraft.sim.chaos.scenarios.scenario_file import builtin_scenarios

    names = scenarios or [one.name for one in builtin_scenarios()]
    chosen = [_read(name) for name in names]
    given = {id(one): name for one, name in zip(chosen, names, strict=True)}
    clusters = [_cluster(kafka, None, None, False)]
    if kafka is not None and side_by_side:
        clusters.insert(0, _cluster(None, None, None, False))
    settings = ChaosCampaignSettings(
        runs=[
            (one, seed + number)
            for one in chosen
            for number in range(core_repeat if one.is_core and core_repeat else repeat)
        ],
        clusters=clusters,
        out=out,
        command=lambda one, number, cluster: _run_command(
            given[id(one)], number, client, kafka if cluster == "kafka" else None
        ),
        client=client,
        is_quiet=as_json,
        keeps_data=keep,
    )
    _carry_out(settings, as_json=as_json)


@app.command()
def judge(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run's folder.", exists=True, file_okay=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON, and nothing else.")] = False,
) -> None:
    """Judge a finished run again, and rewrite its report."""
    from kraft.sim.chaos.judge.verdict import decide_verdict, verdict_to_json
    from kraft.sim.chaos.report import text_summary, write_report
    from kraft.sim.chaos.run.run_folder import RunFolder

    run_folder = RunFolder(folder)
    if not (folder / "run.json").exists():
        text = f"{folder} has no run.json: it is not the folder of a run, or the run did not finish"
        raise CommandFailed(text, code=EXIT_USAGE)
    try:
        info, history = run_folder.read_info(), run_folder.read_history()
        faults, samples, output = run_folder.read_faults(), run_folder.read_samples(), run_folder.read_output()
    except (OSError, ValueError) as problem:
        raise CommandFailed(f"the files in {folder} cannot be read: {problem}", code=EXIT_USAGE) from problem
    verdict = decide_verdict(info, history, faults, samples, output)
    run_folder.verdict.write_text(verdict_to_json(verdict))
    write_report(run_folder, verdict)
    if as_json:
        print(run_folder.verdict.read_text(), end="")
    else:
        for line in text_summary(info, verdict, faults, run_folder):
            print(line)
    raise typer.Exit(_exit_code(verdict.verdict))


def _read(scenario: str) -> Scenario:
    from kraft.sim.chaos.scenarios.scenario import ScenarioError
    from kraft.sim.chaos.scenarios.scenario_file import read_scenario

    try:
        return read_scenario(scenario)
    except ScenarioError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from problem


def _adapted(scenario: Scenario, duration: float | None, nodes: str | None) -> Scenario:
    """Return the scenario with the duration and the numbers of nodes that the options give."""
    from kraft.sim.chaos.scenarios.scenario import ScenarioError
    from kraft.sim.chaos.scenarios.scenario_file import with_duration, with_nodes

    option = ""
    try:
        if nodes is not None:
            option = f"--nodes {nodes}"
            scenario = with_nodes(scenario, _counts(nodes))
        if duration is not None:
            option = "--duration"
            scenario = with_duration(scenario, round(duration * 1000))
    except ScenarioError as problem:
        raise CommandFailed(f"{option}: {problem}", code=EXIT_USAGE) from problem
    return scenario


def _counts(nodes: str) -> dict[str, int]:
    """Number of nodes per role, under the keys that a scenario has in its section [cluster]."""
    counts = nodes.split("+")
    if len(counts) > 2 or not all(count.isdecimal() and int(count) for count in counts):
        raise CommandFailed(
            f"--nodes {nodes}: expected CONTROLLERS+BROKERS, as 3+3, or nodes of both roles, as 3", code=2
        )
    if len(counts) == 1:
        return {"combined": int(counts[0])}
    return {"controllers": int(counts[0]), "brokers": int(counts[1])}


def _cluster(kafka: Path | None, against: str | None, control: Path | None, namespaces: bool) -> ClusterChoice:
    """Return the kind of cluster that the options select."""
    if against is not None and kafka is not None:
        raise CommandFailed("--against and --kafka exclude each other", code=EXIT_USAGE)
    if control is not None and against is None:
        raise CommandFailed("--control gives the commands for the nodes of --against: give both", code=EXIT_USAGE)
    if namespaces and (against or kafka):
        raise CommandFailed("--namespaces is for clusters of pykraft that the run starts", code=EXIT_USAGE)
    from kraft.sim.chaos.targets.choices import kafka_choice, own_choice, user_choice
    from kraft.sim.shapes import ClusterError

    try:
        if against is not None:
            return user_choice(against, control)
        return own_choice(namespaces=namespaces) if kafka is None else kafka_choice(kafka)
    except ClusterError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from problem
    except ModuleNotFoundError as problem:
        if problem.name not in EXTRA_MODULES:
            raise
        text = f"kraft chaos needs {problem.name}, which is not installed: pip install 'pykraft[chaos]', or '.[chaos]'"
        raise CommandFailed(f"{text} in a checkout", code=EXIT_USAGE) from problem


def _again(scenario: str, seed: int) -> str:
    """Return the command line that repeats the run with this seed."""
    words = ["kraft", *sys.argv[1:]]
    end = words.index("--") if "--" in words else len(words)
    options, rest = words[:end], words[end:]
    for name in ("--seed", "--repeat"):
        options = _without(options, name)
    return shlex.join([*options, "--seed", str(seed), *rest])


def _without(words: list[str], option: str) -> list[str]:
    found: list[str] = []
    skips = False
    for word in words:
        if skips or word.startswith(f"{option}="):
            skips = False
        elif word == option:
            skips = True
        else:
            found.append(word)
    return found


def _run_command(scenario: str, seed: int, client: str, kafka: Path | None) -> str:
    """Return the command line of a run; `scenario` is the name or file as the user gave it."""
    options = [] if kafka is None else ["--kafka", str(kafka)]
    return shlex.join(["kraft", "chaos", "run", scenario, "--seed", str(seed), "--client", client, *options])


def _carry_out(settings: ChaosCampaignSettings, *, as_json: bool) -> None:
    """Do all runs, then exit with the exit code for their verdicts."""
    from kraft.sim.chaos.application.program import ProgramNotFound, require_program
    from kraft.sim.chaos.clients.libraries import UnknownLibrary, library_of
    from kraft.sim.chaos.run.campaign import ChaosCampaign

    try:
        library_of(settings.client)
    except UnknownLibrary as problem:
        raise CommandFailed(f"--client: {problem}", code=EXIT_USAGE) from problem
    if settings.application:
        try:
            require_program(settings.application)
        except ProgramNotFound as problem:
            raise CommandFailed(str(problem), code=problem.code) from problem
    with ending_on_signals() as raise_if_interrupted:
        runs = ChaosCampaign(replace(settings, raise_if_interrupted=raise_if_interrupted))
        runs.run()
    if as_json:
        print_json(
            [
                {
                    "scenario": one.scenario,
                    "cluster": one.cluster,
                    "seed": one.seed,
                    "folder": str(one.folder),
                    "verdict": one.verdict,
                }
                for one in runs.finished
            ]
        )
    raise typer.Exit(_exit_code(runs.verdict))


@contextmanager
def ending_on_signals() -> Iterator[Callable[[], None]]:
    """Make SIGINT, SIGTERM and SIGHUP end the run, with a shell's exit code for that signal. SIGINT ends it also if it
    is ignored, as in a background job of a shell.

    The yielded function raises KeyboardInterrupt if a signal has arrived. It must be called repeatedly, because the
    interpreter ignores a KeyboardInterrupt that a signal handler raises in some places, for example in a finalizer.
    While trio runs, the handler raises nothing at the first signal: an exception at an arbitrary point of the event
    loop could break it."""
    import trio

    ended_by: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        ended_by.append(number)
        if len(ended_by) > 1 or not trio.lowlevel.in_trio_run():
            raise KeyboardInterrupt

    def raise_if_interrupted() -> None:
        if ended_by:
            raise KeyboardInterrupt

    before = [(number, signal.signal(number, interrupt)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    try:
        yield raise_if_interrupted
        raise_if_interrupted()
    except KeyboardInterrupt:
        raise typer.Exit(SIGNAL_BASE + (ended_by or [signal.SIGINT])[0]) from None
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _exit_code(verdict: str) -> int:
    return {"valid": 0, "invalid": EXIT_INVALID}.get(verdict, EXIT_UNKNOWN)
