"""The generated pages and their contents."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kraft.client.spark.options.document import render_options
from kraft.config.document import render_table
from kraft.deploy.cli.app import command_line
from kraft.deploy.cli.connection import SHARED_OPTIONS
from tests.docs.chaos import render_chaos
from tests.docs.invariants import render_invariants
from tests.docs.metrics import render_metrics
from tests.docs.partition_states import render_partition_states
from tests.docs.protocol import render_protocol
from tests.docs.spark_tables import render_spark_tables

ROOT = Path(__file__).resolve().parents[2]

_COMMANDS_HEAD = """# Commands

`kraft COMMAND --help` says the same. `--json` prints one JSON value instead of text (`consume`, `metadata events` and
`log dump`: one per line). Without `--data` or `--bootstrap-server`, a command acts on your running local cluster, or on
the one started last if several are running. If none is running, a command that connects to a cluster tries
127.0.0.1:9092, Kafka's usual address, and other commands act on the cluster started last.

Exit codes: 0 done · 1 refused or failed · 2 wrong arguments or configuration · 3 no cluster responded · 4 the named
thing does not exist · 70 a bug in kraft. If a command on several things fails for one of them, it still shows the
others. The error is on standard error, and with `--json` in the field `error` or `result` of its row.

`eval "$(kraft completion bash)"` in your shell's start file completes commands, options, names and values.

This page is generated: `make docs`.

## Options of every command that connects to a cluster

"""


def render_commands() -> str:
    """Render the page of the kraft command, with one chapter per command, from the definitions of the command line."""
    kraft = command_line()
    shared = [item for item in kraft.commands["brokers"].params if item.name in SHARED_OPTIONS]
    return "\n".join([_COMMANDS_HEAD + "\n".join(_table(shared)) + "\n", *_chapters("kraft", kraft)])


PAGES: dict[str, Callable[[], str]] = {
    "docs/configuration.md": render_table,
    "docs/commands.md": render_commands,
    "docs/protocol.md": render_protocol,
    "docs/metrics.md": render_metrics,
    "docs/invariants.md": render_invariants,
    "docs/partition-states.md": render_partition_states,
    "docs/chaos.md": render_chaos,
    "docs/spark-options.md": render_options,
    "docs/spark-tables.md": render_spark_tables,
}


def write_pages() -> list[str]:
    """Write every page that is not up to date; return their names."""
    stale = list(stale_pages())
    for name in stale:
        (ROOT / name).write_text(PAGES[name]())
    return stale


def stale_pages() -> Iterator[str]:
    """Return the names of the pages that are missing or differ from the code."""
    for name, render in PAGES.items():
        path = ROOT / name
        if not path.exists() or path.read_text() != render():
            yield name


def _chapters(path: str, group: Any) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield _chapter(f"{path} {name}", command)
            yield from _chapters(f"{path} {name}", command)
        else:
            yield _chapter(f"{path} {name}", command)


def _chapter(path: str, command: Any) -> str:
    arguments = [item.metavar or item.name for item in command.params if item.param_type_name == "argument"]
    lines = [
        f"## {path}",
        "",
        inspect.cleandoc(command.help or ""),
        "",
        f"    {' '.join([path, *arguments])} [OPTIONS]",
        "",
    ]
    options = [item for item in command.params if item.param_type_name == "option" and not item.hidden]
    own = [item for item in options if item.name not in SHARED_OPTIONS]
    lines += _table(own) if own else []
    return "\n".join(lines) + "\n"


def _table(options: list[Any]) -> list[str]:
    rows = [f"| {_names(item)} | {_about(item)} |" for item in options]
    return ["| option | what it is |", "|---|---|", *rows]


def _names(option: Any) -> str:
    metavar = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
    return ", ".join(f"`{name}{metavar}`" for name in (*option.opts, *option.secondary_opts))


def _about(option: Any) -> str:
    return " ".join(part for part in (_cell(option.help), _default(option), _variable(option)) if part)


def _default(option: Any) -> str:
    """Return the default of an option as `--help` shows it. Return the default of a flag only if a second flag turns it
    off."""
    value = option.show_default if isinstance(option.show_default, str) else option.default
    if option.is_flag:
        value = option.opts[0].removeprefix("--") if value and option.secondary_opts else None
    return f"[{getattr(value, 'value', value)}]" if option.show_default and value is not None else ""


def _variable(option: Any) -> str:
    return f"Environment variable: `{option.envvar}`." if option.envvar else ""


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")
