"""Find the kraft command for a command line of one of Kafka's tools.
Source: Kafka's TopicCommand, ConfigCommand, ConsumerGroupCommand, TransactionsCommand (their help texts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kraft.deploy.kafka_tools.configs import configs_words
from kraft.deploy.kafka_tools.groups import groups_words
from kraft.deploy.kafka_tools.options import ToolError
from kraft.deploy.kafka_tools.records import consumer_words, producer_words
from kraft.deploy.kafka_tools.topics import topics_words
from kraft.deploy.kafka_tools.transactions import transactions_words

_TOOLS: Mapping[str, Callable[[Sequence[str]], list[str]]] = MappingProxyType(
    {
        "kafka-topics": topics_words,
        "kafka-configs": configs_words,
        "kafka-consumer-groups": groups_words,
        "kafka-transactions": transactions_words,
        "kafka-console-producer": producer_words,
        "kafka-console-consumer": consumer_words,
    }
)
_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "kafka-features": "features",
        "kafka-dump-log": "log",
        "kafka-metadata-quorum": "quorum",
        "kafka-reassign-partitions": "partitions reassign",
    }
)
"""Tools whose options are not translated, and the kraft command that the error message names for each."""


def kraft_words(tool: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `kraft` for a command line of one of Kafka's tools. Raise ToolError if it has no
    counterpart."""
    tool = tool.removesuffix(".sh")
    if tool in _OTHERS:
        raise ToolError(f"this image has no such tool; use: kraft {_OTHERS[tool]} --help")
    if tool not in _TOOLS:
        raise ToolError(f"unknown tool; known are {', '.join(sorted((*_TOOLS, *_OTHERS)))}")
    return _TOOLS[tool](arguments)
