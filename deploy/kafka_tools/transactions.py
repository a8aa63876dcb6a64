"""Translate command lines of kafka-transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kraft.deploy.kafka_tools.connection import connection_words
from kraft.deploy.kafka_tools.options import Options, ToolError, parse


def transactions_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `kraft transactions` for a command line of kafka-transactions. Its action is a word, not
    an option, and may stand behind options."""
    rest = list(arguments)
    action = next((word for word in rest if word in _ACTIONS), None)
    if action is None:
        raise ToolError(f"expected exactly one of {', '.join(_ACTIONS)}")
    rest.remove(action)
    options = parse("transactions", rest, flags=())
    words = ["transactions", *_ACTIONS[action](options), *connection_words(options)]
    options.refuse_rest()
    return words


def _list(options: Options) -> list[str]:
    words = ["list", *options.words({"--transactional-id-pattern": "--pattern"})]
    duration_ms = options.value("--duration-filter")
    is_filtered = duration_ms is not None and not duration_ms.startswith("-")
    return [*words, "--longer-than", f"{duration_ms}ms"] if is_filtered else words


def _describe(options: Options) -> list[str]:
    return ["describe", options.required("--transactional-id")]


def _describe_producers(options: Options) -> list[str]:
    return ["describe-producers", _partition(options), *options.words({"--broker-id": "--broker"})]


def _find_hanging(options: Options) -> list[str]:
    words = ["find-hanging", *options.words({"--broker-id": "--broker"})]
    topic, partition = options.value("--topic"), options.value("--partition")
    if partition is not None and topic is None:
        raise ToolError("--partition needs --topic")
    if topic is not None:
        words.append(topic if partition is None else f"{topic}:{partition}")
    minutes = options.value("--max-transaction-timeout")
    return words if minutes is None else [*words, "--older-than", f"{minutes}m"]


def _abort(options: Options) -> list[str]:
    partition, offset = _partition(options), options.value("--start-offset")
    epochs = options.values("--producer-id", "--producer-epoch", "--coordinator-epoch")  # not used with an offset
    if offset is None and epochs:
        raise ToolError(
            "--start-offset is missing; find-hanging shows it. The producer's id and epochs are obtained from the "
            "partition's leader"
        )
    if offset is None:
        raise ToolError("--start-offset is missing; find-hanging shows it")
    return ["abort", partition, "--start-offset", offset, "--yes"]


def _force_terminate(options: Options) -> list[str]:
    return ["force-terminate", options.required("--transactionalId"), "--yes"]


def _partition(options: Options) -> str:
    return f"{options.required('--topic')}:{options.required('--partition')}"


_ACTIONS: Mapping[str, Callable[[Options], list[str]]] = MappingProxyType(
    {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "find-hanging": _find_hanging,
        "abort": _abort,
        "forceTerminateTransaction": _force_terminate,
    }
)
