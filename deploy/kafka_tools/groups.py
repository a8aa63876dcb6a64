"""Translate command lines of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Sequence

from kraft.deploy.kafka_tools.connection import connection_words, single_action
from kraft.deploy.kafka_tools.options import Options, ToolError, parse

_ACTIONS = ("--list", "--describe", "--delete", "--delete-offsets", "--reset-offsets")
_TARGETS = ("--to-earliest", "--to-latest", "--to-current")
_VALUED_TARGETS = ("--to-datetime", "--by-duration", "--shift-by", "--to-offset", "--from-file")
_FLAGS = (
    *_ACTIONS,
    *_TARGETS,
    "--all-groups",
    "--all-topics",
    "--members",
    "--offsets",
    "--verbose",
    "--export",
    "--execute",
    "--dry-run",
)


def groups_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `kraft groups` for a command line of kafka-consumer-groups."""
    options = parse("groups", arguments, flags=_FLAGS, optional=("--state", "--type"))
    action = single_action(options, *_ACTIONS)
    timeout = options.value("--timeout")
    words = ["groups", *_of_action(action, options), *connection_words(options)]
    if timeout is not None:
        words += ["--timeout", str(int(timeout) / 1000)]
    options.refuse_rest()
    return words


def _of_action(action: str, options: Options) -> list[str]:
    if action == "--list":
        return ["list", *options.words({"--state": "--state", "--type": "--type"}), *_left_empty(options)]
    if action == "--reset-offsets":
        return _reset(options)
    groups = options.values("--group")
    everything = options.flag("--all-groups")
    if action == "--describe":
        return _describe(groups, everything, options)
    if not groups:
        raise ToolError("--group is missing")
    if action == "--delete":
        return ["delete", *groups]
    return ["delete-offsets", *groups, *options.words({"--topic": "--topic"})]


def _left_empty(options: Options) -> list[str]:
    """Drop `--state` and `--type` without a value, and return no arguments: in Kafka's tool they add columns, which
    kraft always shows."""
    options.values("--state", "--type")
    return []


def _describe(groups: list[str], everything: bool, options: Options) -> list[str]:
    if not groups and not everything:
        raise ToolError("--describe needs --group or --all-groups")
    if options.has("--state"):
        raise ToolError("--describe --state: use --list --state, which shows the state of each group")
    options.flag("--verbose")
    options.flag("--offsets")
    if options.flag("--members"):
        if len(groups) != 1:
            raise ToolError("--members needs exactly one --group")
        return ["members", *groups]
    return ["describe", *groups]


def _reset(options: Options) -> list[str]:
    words = ["reset-offsets", *options.values("--group")]
    words += options.flags({name: name for name in ("--all-groups", "--all-topics", *_TARGETS)})
    words += options.words({name: name for name in ("--topic", *_VALUED_TARGETS)})
    if options.flag("--export"):
        words += ["--export", "/dev/stdout"]
    options.flag("--dry-run")
    return [*words, *options.flags({"--execute": "--execute"})]
