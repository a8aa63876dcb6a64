"""The levels of this process's loggers, as the BROKER_LOGGER resource of DescribeConfigs and IncrementalAlterConfigs
shows and sets them. Names, levels and inheritance are the standard library's, which the log of a process asks about
each line; Kafka's levels are mapped onto its. Source: KIP-412.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

ROOT = "root"
LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "FATAL": logging.CRITICAL,
        "ERROR": logging.ERROR,
        "WARN": logging.WARNING,
        "INFO": logging.INFO,
        "DEBUG": logging.DEBUG,
        "TRACE": logging.DEBUG - 5,
    }
)
LOGGERS = frozenset(
    {
        "kraft",
        "kraft.broker",
        "kraft.broker.absent_features",
        "kraft.broker.auto_topics",
        "kraft.broker.cleaner",
        "kraft.broker.configs",
        "kraft.broker.connections",
        "kraft.broker.controller_channel",
        "kraft.broker.dispatch",
        "kraft.broker.fetch",
        "kraft.broker.fetcher",
        "kraft.broker.groups",
        "kraft.broker.isr",
        "kraft.broker.lifecycle",
        "kraft.broker.logs",
        "kraft.broker.produce",
        "kraft.broker.producer_ids",
        "kraft.broker.replicas",
        "kraft.controller",
        "kraft.deploy.launch",
        "kraft.faults",
        "kraft.node",
        "kraft.peers",
        "kraft.quorum",
        "kraft.runtime",
    }
)
"""All of ours, and their parent; those of the parts that this node does not run say nothing."""


def logger_levels() -> dict[str, str]:
    """Name → effective level in Kafka's words, for the root and all of our loggers."""
    levels = {ROOT: _word(logging.root.getEffectiveLevel())}
    levels.update((name, _word(logging.getLogger(name).getEffectiveLevel())) for name in sorted(LOGGERS))
    return levels


def is_level(word: str | None) -> bool:
    """Is this one of Kafka's level names?"""
    return word in LEVELS


def set_level(name: str, word: str | None) -> None:
    """Set a logger's level; None gives it back to its parent."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if word is None else LEVELS[word])


def _word(level: int) -> str:
    return next((word for word, number in LEVELS.items() if level >= number), "TRACE")
