"""The generated pages: which they are, and what stands in them."""

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

`kraft COMMAND --help` says the same. `--json` prints one JSON value in place of text (`consume`, `metadata events` and
`log dump`: one per line). Without `--data` or `--bootstrap-server` a verb acts on a cluster of this user: of those that
run, the one started last. If none runs, a verb that talks to a cluster asks 127.0.0.1:9092, Kafka's usual address, and
the others act on the one started last.

Exit codes: 0 done · 1 refused or failed · 2 wrong arguments or configuration · 3 no cluster answered · 4 what was named
is not there · 70 a fault of kraft itself. Where one of several things cannot be had or done, the others are shown; why
it could not is told on standard error, and with `--json` by a field of its row, `error` or `result`.

`eval "$(kraft completion bash)"` in your shell's start file completes verbs, options, names and values.

This page is generated: `make docs`.

## Options of every verb that talks to a cluster

"""


def render_commands() -> str:
    """One chapter per command, from the command line's own definitions."""
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
    """Write every page that is not up to date; gives their names."""
    stale = list(stale_pages())
    for name in stale:
        (ROOT / name).write_text(PAGES[name]())
    return stale


def stale_pages() -> Iterator[str]:
    """Names of the pages that are missing or say something else than the code."""
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
    """As `--help` tells it; of a flag only where there is another one that turns it off."""
    value = option.show_default if isinstance(option.show_default, str) else option.default
    if option.is_flag:
        value = option.opts[0].removeprefix("--") if value and option.secondary_opts else None
    return f"[{getattr(value, 'value', value)}]" if option.show_default and value is not None else ""


def _variable(option: Any) -> str:
    return f"Environment variable: `{option.envvar}`." if option.envvar else ""


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")
