"""Translate command lines of kafka-configs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from kraft.deploy.kafka_tools.connection import connection_words, single_action
from kraft.deploy.kafka_tools.options import Options, ToolError, parse

_KINDS = MappingProxyType(
    {"topics": "--topic", "brokers": "--broker", "groups": "--group", "broker-loggers": "--loggers"}
)
_SHORT = MappingProxyType(
    {"--topic": "--topic", "--broker": "--broker", "--group": "--group", "--broker-logger": "--loggers"}
)
_SEPARATOR = re.compile(r",(?![^\[]*\])")
"""Pattern of a comma that is not within brackets: in `a=1,b=[2,3]`, only the first one."""


def configs_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `kraft configs` for a command line of kafka-configs."""
    options = parse(
        "configs",
        arguments,
        flags=("--alter", "--describe", "--all", "--entity-default", "--broker-defaults", "--force"),
    )
    action = single_action(options, "--alter", "--describe")
    entity = _entity(options)
    if action == "--describe":
        words = ["configs", "describe", *entity, *([] if options.flag("--all") else ["--changed"])]
    else:
        options.flag("--force")
        words = ["configs", "alter", *entity, *_changes(options)]
    words += connection_words(options, may_be_controllers=True)
    options.refuse_rest()
    return words


def _entity(options: Options) -> list[str]:
    if options.flag("--broker-defaults"):
        return ["--broker", "all"]
    for short, ours in _SHORT.items():
        if options.has(short):
            return [ours, options.required(short)]
    kind = options.required("--entity-type")
    if kind not in _KINDS:
        raise ToolError(f"--entity-type {kind}: only {', '.join(_KINDS)} have settings here")
    if options.flag("--entity-default"):
        if kind != "brokers":
            raise ToolError("--entity-default is only for brokers")
        return ["--broker", "all"]
    name = options.value("--entity-name")
    if name is None:
        raise ToolError("--entity-name is missing; kraft configs list shows everything that has settings")
    return [_KINDS[kind], name]


def _changes(options: Options) -> list[str]:
    pairs = [pair for text in options.values("--add-config") for pair in _SEPARATOR.split(text)]
    for file in options.values("--add-config-file"):
        lines = (line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines())
        pairs += [line for line in lines if line and not line.startswith("#")]
    words = [word for pair in pairs for word in ("--set", _without_brackets(pair))]
    for text in options.values("--delete-config"):
        words += [word for key in text.split(",") for word in ("--delete", key.strip())]
    if not words:
        raise ToolError("--alter needs --add-config, --add-config-file or --delete-config")
    return words


def _without_brackets(pair: str) -> str:
    key, _, value = pair.strip().partition("=")
    return f"{key}={value[1:-1] if value.startswith('[') and value.endswith(']') else value}"
