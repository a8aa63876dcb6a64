"""Translate command lines of kafka-topics."""

from __future__ import annotations

from collections.abc import Sequence

from kraft.deploy.kafka_tools.connection import connection_words, single_action
from kraft.deploy.kafka_tools.options import Options, ToolError, parse

_ACTIONS = ("--create", "--list", "--describe", "--alter", "--delete")
_FLAGS = (
    *_ACTIONS,
    "--if-exists",
    "--if-not-exists",
    "--exclude-internal",
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
    "--topics-with-overrides",
)
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


def topics_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `kraft topics` for a command line of kafka-topics."""
    options = parse("topics", arguments, flags=_FLAGS)
    action = single_action(options, *_ACTIONS)
    words = ["topics", action.removeprefix("--"), *_of_action(action, options), *connection_words(options)]
    options.refuse_rest()
    return words


def _of_action(action: str, options: Options) -> list[str]:
    topic = options.required("--topic") if action not in ("--list", "--describe") else options.value("--topic")
    if action == "--list":
        return [*([f"^(?:{topic})$"] if topic else []), *options.flags({"--exclude-internal": "--no-internal"})]
    words = [] if topic is None else [_name(topic)]
    if action == "--create":
        words += options.words({name: name for name in ("--partitions", "--replication-factor", "--config")})
        words += options.words({"--replica-assignment": "--replica-assignment"})
        words += options.flags({"--if-not-exists": "--if-not-exists"})
    elif action == "--alter":
        words += ["--partitions", options.required("--partitions")]
    elif action == "--delete":
        words += ["--yes", *options.flags({"--if-exists": "--if-exists"})]
    else:
        words += options.flags(
            {
                "--under-replicated-partitions": "--under-replicated",
                "--unavailable-partitions": "--unavailable",
                "--under-min-isr-partitions": "--under-min-isr",
                "--at-min-isr-partitions": "--at-min-isr",
            }
        )
    return words


def _name(topic: str) -> str:
    if not set(topic) <= _PLAIN:
        raise ToolError(f"--topic {topic}: a regular expression is only possible with --list; name one topic")
    return topic
