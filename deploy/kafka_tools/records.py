"""Translate command lines of kafka-console-producer and kafka-console-consumer.
Source: Kafka's ConsoleProducer, LineMessageReader, ConsoleConsumer, DefaultMessageFormatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kraft.deploy.kafka_tools.connection import connection_words
from kraft.deploy.kafka_tools.options import Options, ToolError, parse, properties


def producer_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `kraft produce` for a command line of kafka-console-producer."""
    options = parse("produce", arguments, flags=("--sync",), optional=("--compression-codec",))
    words = ["produce", options.required("--topic")]
    options.flag("--sync")
    if options.has("--compression-codec"):
        words += ["--compression", options.value("--compression-codec") or "gzip"]
    words += options.words({"--request-required-acks": "--acks"})
    words += _reader(properties(options.values("--property", "--reader-property")))
    words += connection_words(options)
    options.refuse_rest()
    return words


def _reader(given: dict[str, str]) -> list[str]:
    words = []
    separator = given.pop("key.separator", "\t")
    if given.pop("parse.key", "false").lower() == "true":
        words += ["--key-separator", separator]
    if "null.marker" in given:
        words += ["--null", given.pop("null.marker")]
    _refuse(given, "produce")
    return words


def consumer_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `kraft consume` for a command line of kafka-console-consumer. As in Kafka's tool, reading
    never ends by itself without --max-messages or --timeout-ms."""
    options = parse("consume", arguments, flags=("--from-beginning", "--skip-message-on-error"))
    words = ["consume", options.required("--topic"), *_start_and_end(options)]
    words += options.words({"--partition": "--partition", "--group": "--group", "--max-messages": "--count"})
    words += options.words({"--isolation-level": "--isolation"})
    words += ["--format", _format(properties(options.values("--property", "--formatter-property")))]
    words += connection_words(options)
    options.refuse_rest()
    return words


def _start_and_end(options: Options) -> list[str]:
    begins_first, offset = options.flag("--from-beginning"), options.value("--offset")
    if begins_first and offset is not None:
        raise ToolError("give either --from-beginning or --offset")
    start = "earliest" if begins_first else offset or "latest"
    words = ["--offset", start]
    if options.value("--timeout-ms") is None:
        return words if options.has("--group") else [*words, "--follow"]
    if start == "latest" or options.has("--group"):
        raise ToolError(
            "--timeout-ms is only possible with --from-beginning or --offset N and without --group: kraft ends at "
            "the end of the partitions; see: kraft consume --help"
        )
    return words


_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "print.timestamp": "CreateTime:%T",
        "print.partition": "Partition:%p",
        "print.offset": "Offset:%o",
        "print.headers": "%h",
        "print.key": "%k",
        "print.value": "%s",
    }
)
"""Fields that can be printed, in the order in which Kafka's tool prints them."""


def _format(given: dict[str, str]) -> str:
    separator = _escaped(given.pop("key.separator", "\t"))
    end = _escaped(given.pop("line.separator", "\n"))
    chosen = [text for name, text in _FIELDS.items() if _is_printed(name, given.pop(name, None))]
    _refuse(given, "consume")
    return separator.join(chosen) + end


def _is_printed(name: str, value: str | None) -> bool:
    return name == "print.value" if value is None else value.lower() == "true"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "%%").replace("\t", "\\t").replace("\n", "\\n")


def _refuse(given: Mapping[str, str], verb: str) -> None:
    if given:
        raise ToolError(f"--property {', '.join(given)}: no counterpart here; see: kraft {verb} --help")
