"""The typer application: all commands, and the one place where an exception becomes a message and an exit code.

Only the module of the command that runs is loaded. The command's function imports what else it needs in its body. So
`kraft kill` does not pay for the imports of `kraft consume`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from kraft.deploy.cli.output import (
    EXIT_FAILED,
    EXIT_FAULT,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    warn,
)

COMPLETION_VARIABLE = "_KRAFT_COMPLETE"

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_LAUNCH_CODES = MappingProxyType(
    {
        "arguments": EXIT_USAGE,
        "folder": EXIT_USAGE,
        "no-cluster": EXIT_NOT_FOUND,
        "unknown-node": EXIT_NOT_FOUND,
        "not-running": EXIT_NOT_FOUND,
    }
)

_VERBS = MappingProxyType(
    {
        "up": "local.cluster_verbs",
        "down": "local.cluster_verbs",
        "status": "local.cluster_verbs",
        "logs": "local.cluster_verbs",
        "kill": "local.cluster_verbs",
        "stop": "local.cluster_verbs",
        "start": "local.cluster_verbs",
        "pause": "local.cluster_verbs",
        "resume": "local.cluster_verbs",
        "run": "local.run_program",
        "rolling-restart": "local.rolling",
        "node": "local.node",
        "cluster": "inspection",
        "logdirs": "inspection",
        "apis": "inspection",
        "unregister": "inspection",
        "produce": "records.produce",
        "consume": "records.consume",
        "console": "console",
        "completion": "completion",
    }
)
"""Module of each command. The function in it has the command's name, with `_` for a dash."""

_SETTINGS = MappingProxyType({"run": {"allow_interspersed_args": False}})
"""Context settings for typer, by command. `kraft run` must not parse the options of the program that it runs."""

_FAMILIES = MappingProxyType(
    {
        "topics": "topics",
        "brokers": "brokers",
        "partitions": "partitions.partition_verbs",
        "configs": "configs",
        "features": "features",
        "quorum": "quorum",
        "groups": "groups.group_verbs",
        "transactions": "transactions",
        "perf": "records.perf",
        "metadata": "metadata",
        "storage": "storage",
        "log": "log_files",
        "fault": "local.fault",
        "sim": "sim",
        "chaos": "chaos",
        "spark": "spark.spark_verbs",
    }
)
"""Module of each group of commands. The module's `app` contains the commands."""


_NUMBERS = MappingProxyType(
    {"int": "whole number", "int range": "whole number", "float": "number", "float range": "number"}
)
"""Words for typer's names of number types in error messages, so that `'x' is not a valid int range` becomes readable.
"""


def command_line(only: str | None = None) -> Any:
    """Return the command that `main` runs: `application`, with readable names of number types and with command lists
    that are not truncated."""
    found = get_command(application(only))
    _word_help(found)
    return found


def _word_help(verb: Any) -> None:
    verb.short_help = _first_sentence(verb.help or "")  # click would truncate a long text in the middle
    for parameter in verb.params:
        kind = parameter.type
        kind.name = _NUMBERS.get(kind.name, kind.name)
        if kind.name in _NUMBERS.values() and parameter.param_type_name == "option" and parameter.metavar is None:
            parameter.metavar = "N"
    for below in getattr(verb, "commands", {}).values():
        _word_help(below)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".") + "." if paragraph else ""


def application(only: str | None = None) -> typer.Typer:
    """Return the application. It has only the command named `only` if there is such a command, else all commands."""
    app = typer.Typer(
        name="kraft",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong arguments or configuration, 3 no cluster responded, "
        "4 the named thing does not exist, 70 a bug in kraft.",
    )
    app.callback(invoke_without_command=True)(options)
    is_known = only in _VERBS or only in _FAMILIES
    for verb, module in _VERBS.items():
        if verb == only or not is_known:
            app.command(verb, context_settings=_SETTINGS.get(verb))(getattr(_load(module), verb.replace("-", "_")))
    for family, module in _FAMILIES.items():
        if family == only or not is_known:
            app.add_typer(_load(module).app, name=family)
    return app


def options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Kafka clusters without ZooKeeper and without a JVM: start them, inspect them, inject faults."""
    if version:
        from importlib.metadata import version as installed_version

        from kraft.wire.records.validation import WALK_IS_COMPILED

        print(f"kraft {installed_version('pykraft')}")
        how = "compiled" if WALK_IS_COMPILED else "interpreted (faster if installed with a C compiler)"
        print(f"record walk: {how}")
        raise typer.Exit


def _load(module: str) -> Any:
    return import_module(f"kraft.deploy.cli.{module}")


def run(arguments: Sequence[str]) -> NoReturn:
    """Run one command line and end the process."""
    if COMPLETION_VARIABLE in os.environ:
        _load("completion").prepare_completion()
    if arguments and f"{arguments[0]}s" in _FAMILIES:
        arguments = [f"{arguments[0]}s", *arguments[1:]]  # the spelling of other tools: `kraft topic list`
    try:
        kraft = command_line(arguments[0] if arguments else None)
        code = kraft(list(arguments), prog_name="kraft", standalone_mode=True)
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
    if isinstance(problem, OSError) and problem.errno in _NO_ROOM:
        warn(f"kraft: cannot write: {problem.strerror}")
        _leave(EXIT_FAILED)
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
    warn("kraft: this is a bug in kraft; see the lines above")
    _leave(EXIT_FAULT)


def _leave(code: int) -> NoReturn:
    sys.exit(code)
