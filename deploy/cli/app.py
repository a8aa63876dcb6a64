"""The typer application: all verbs, and the one place where an exception becomes a sentence and an exit code.

What a verb needs beyond typer it imports in its own body: `kraft kill` does not pay for what `kraft consume` uses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

import typer

from kraft.deploy.cli import (
    cluster,
    completion,
    configs,
    consume,
    fault,
    groups,
    inspection,
    log_files,
    metadata,
    node,
    partitions,
    perf,
    produce,
    storage,
    topics,
)
from kraft.deploy.cli.output import (
    EXIT_FAILED,
    EXIT_FAULT,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    warn,
)

_LAUNCH_CODES = {
    "arguments": EXIT_USAGE,
    "folder": EXIT_USAGE,
    "no-cluster": EXIT_NOT_FOUND,
    "unknown-node": EXIT_NOT_FOUND,
    "not-running": EXIT_NOT_FOUND,
}

app = typer.Typer(
    name="kraft",
    help="Kafka clusters without ZooKeeper and without a JVM: start them, look inside them, break them on purpose.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong arguments or configuration, 3 no cluster answered, "
    "4 what was named is not there, 70 a fault of kraft itself.",
)

_VERBS: tuple[Callable[..., None], ...] = (
    cluster.up,
    cluster.down,
    cluster.status,
    cluster.logs,
    cluster.kill,
    cluster.stop,
    cluster.start,
    cluster.pause,
    cluster.resume,
    node.node,
    inspection.cluster,
    inspection.brokers,
    inspection.quorum,
    inspection.logdirs,
    produce.produce,
    consume.consume,
    completion.completion,
)
for verb in _VERBS:
    app.command()(verb)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Kafka clusters without ZooKeeper and without a JVM: start them, look inside them, break them on purpose."""
    if version:
        from importlib.metadata import version as installed_version

        print(f"kraft {installed_version('pykraft')}")
        raise typer.Exit


app.add_typer(topics.app, name="topics")
app.add_typer(partitions.app, name="partitions")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(perf.app, name="perf")
app.add_typer(metadata.app, name="metadata")
app.add_typer(storage.app, name="storage")
app.add_typer(log_files.app, name="log")
app.add_typer(fault.app, name="fault")


def run(arguments: Sequence[str]) -> NoReturn:
    """Run one command line and end the process."""
    completion.prepare_completion()
    try:
        code = app(list(arguments), prog_name="kraft", standalone_mode=True)
    except SystemExit as leaving:
        _leave(leaving.code if isinstance(leaving.code, int) else EXIT_FAILED)
    except KeyboardInterrupt:
        _leave(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _leave(EXIT_FAILED)
    except Exception as problem:  # noqa: BLE001 - the end of the command: explained, and turned into its exit code
        _explain(problem)
    _leave(code if isinstance(code, int) else 0)


def _explain(problem: Exception) -> NoReturn:
    from kraft.config import ConfigError
    from kraft.deploy.launch.errors import LaunchError

    if isinstance(problem, CommandFailed):
        warn(f"kraft: {problem}")
        _leave(problem.code)
    if isinstance(problem, LaunchError):
        warn(f"kraft: {problem}")
        _leave(_LAUNCH_CODES.get(problem.kind, EXIT_FAILED))
    if isinstance(problem, ConfigError):
        warn(f"kraft: {problem}")
        _leave(EXIT_USAGE)
    import traceback

    traceback.print_exception(problem)
    warn("kraft: this is a fault of kraft itself; the lines above say where")
    _leave(EXIT_FAULT)


def _leave(code: int) -> NoReturn:
    sys.exit(code)
