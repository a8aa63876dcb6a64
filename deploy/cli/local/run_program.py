"""`kraft run -- CMD ARG…`: run the user's program with a fresh cluster, for tests in any language.

The program is in our process group and inherits stdin, stdout and stderr, so the terminal's keys reach it as if it ran
alone. The cluster is attached to this process, and a warden ends the program if this process is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kraft.deploy.cli.completing import complete_broker_setting
from kraft.deploy.cli.local.cluster_verbs import parse_settings
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster

EXIT_NO_CLUSTER = 125
"""Exit code of `kraft run` if the cluster does not start. Programs seldom exit with it, and `docker run` and `timeout`
use it in the same way."""

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_EXAMPLE = "kraft run --combined 3 -- python app.py"


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- CMD ARG…", help="The program; {bootstrap} in an argument is the cluster's address."),
    ] = None,
    controllers: Annotated[int | None, typer.Option(min=1, help="Controllers, as processes of their own.")] = None,
    brokers: Annotated[int | None, typer.Option(min=1, help="Brokers, as processes of their own.")] = None,
    combined: Annotated[
        int | None, typer.Option(min=1, help="Nodes with both roles; replaces the two above. [1]")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of every node; may be repeated.",
            autocompletion=complete_broker_setting,
        ),
    ] = None,
    keep_logs: Annotated[
        Path | None, typer.Option("--keep-logs", metavar="DIR", help="Copy the nodes' logs to this folder at the end.")
    ] = None,
) -> None:
    """Run a program with a fresh cluster, and end the cluster when the program ends.

    The program finds the address in KAFKA_BOOTSTRAP_SERVERS, KAFKA_BROKERS and SPRING_KAFKA_BOOTSTRAP_SERVERS. Input,
    output and signals go to the program, and its exit code is returned: 128+N if signal N ended it, 127 if the program
    does not exist, 126 if it cannot be started, 125 if the cluster does not start. Nothing is left behind."""
    if not command:
        raise CommandFailed(f"kraft run needs a program to run, as in: {_EXAMPLE}", code=EXIT_USAGE)
    if combined and (controllers or brokers):
        raise CommandFailed("--combined replaces --controllers and --brokers: leave them out", code=EXIT_USAGE)
    from kraft.sim.chaos.application.program import ProgramNotFound, require_program

    try:
        require_program(command)
        chosen = parse_settings(settings or [])
        with _cluster(controllers, brokers, combined, chosen) as cluster:
            code = _run_program(command, cluster.bootstrap_servers)
            if keep_logs is not None:
                _copy_logs(cluster.folder, keep_logs)
    except ProgramNotFound as problem:
        raise CommandFailed(str(problem), code=problem.code) from problem
    raise typer.Exit(code)


@contextmanager
def _cluster(
    controllers: int | None, brokers: int | None, combined: int | None, settings: dict[str, str]
) -> Iterator[KafkaCluster]:
    """Start a cluster. SIGTERM and SIGHUP end it cleanly, even while it starts."""
    from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
    from kraft.sim.shapes import ClusterError

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        with KafkaCluster(controllers=controllers, brokers=brokers, combined=combined, settings=settings) as cluster:
            yield cluster
    except ClusterError as problem:
        raise CommandFailed(f"the cluster did not start: {problem}", code=EXIT_NO_CLUSTER) from problem


def _leave(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _run_program(command: Sequence[str], bootstrap: str) -> int:
    """Run the program to its end and return its exit code, as a shell would. Signals that this process receives
    meanwhile are forwarded to the program."""
    from kraft.sim.chaos.application.program import (
        bootstrap_environment,
        exit_code,
        hold_program,
        not_startable,
        with_bootstrap,
    )
    from kraft.sim.chaos.hosts.warden import Warden

    watched = {*_FORWARDED, signal.SIGCHLD}
    with Warden() as warden:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        try:
            process = subprocess.Popen(
                with_bootstrap(command, bootstrap),
                env={**os.environ, **bootstrap_environment(bootstrap)},
                # this process has a single thread
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )
        except OSError as problem:
            raise not_startable(command[0], problem) from problem
        else:
            held = hold_program(warden, process.pid, process.poll)
            _forward_signals(process, watched)
            if held is not None:
                warden.release(held)
            return exit_code(process.wait())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forward_signals(process: subprocess.Popen[bytes], watched: set[signal.Signals]) -> None:
    """Forward signals to the program until it has ended, except those from the terminal (ctrl-C). The terminal sends
    its signals to the whole process group, so the program has received them already."""
    while process.poll() is None:
        received = signal.sigwaitinfo(watched)
        is_from_process = received.si_code <= 0
        if received.si_signo != signal.SIGCHLD and is_from_process:
            process.send_signal(received.si_signo)


def _copy_logs(folder: Path, to: Path) -> None:
    """Copy the log of each node to a file NODE.log."""
    to.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*/node.log"):
        shutil.copyfile(log, to / f"{log.parent.name}.log")
