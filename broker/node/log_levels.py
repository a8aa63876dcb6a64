"""The levels of this process's loggers, as the BROKER_LOGGER resource of DescribeConfigs and IncrementalAlterConfigs
shows and sets them. Names and inheritance are the standard library's; Kafka's levels are mapped onto its. Source:
KIP-412.
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
_OWN = ("kraft", "kraft.broker", "kraft.controller", "kraft.quorum", "kraft.storage")


def logger_levels() -> dict[str, str]:
    """Name → effective level in Kafka's words, for the root and all of our loggers."""
    names = {*_OWN, *(name for name in logging.root.manager.loggerDict if name.split(".")[0] == "kraft")}
    levels = {ROOT: _word(logging.root.getEffectiveLevel())}
    levels.update((name, _word(logging.getLogger(name).getEffectiveLevel())) for name in sorted(names))
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
