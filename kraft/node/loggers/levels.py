"""The levels of this process's loggers, for the BROKER_LOGGER resource of DescribeConfigs and IncrementalAlterConfigs.
Names, levels and inheritance are those of the standard library's logging, which every log line passes; Kafka's levels
are mapped onto them. Source: KIP-412.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from kraft.control.configs.incremental import DELETE, SET
from kraft.wire.error_codes import ErrorCode

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
        "kraft.broker.coordinators",
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
        "kraft.broker.shares",
        "kraft.broker.transactions",
        "kraft.controller",
        "kraft.deploy.launch",
        "kraft.faults",
        "kraft.node",
        "kraft.peers",
        "kraft.quorum",
        "kraft.runtime",
    }
)
"""All loggers of the project, and their parent. Loggers of parts that this node does not run log nothing."""


def logger_levels() -> dict[str, str]:
    """Return logger name → effective level in Kafka's terms, for the root and all loggers of the project."""
    levels = {ROOT: _word(logging.root.getEffectiveLevel())}
    levels.update((name, _word(logging.getLogger(name).getEffectiveLevel())) for name in sorted(LOGGERS))
    return levels


class RefusedLevels(Exception):
    """Error with a code and a text: the loggers cannot be described, or no logger was changed."""

    def __init__(self, error: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.error = error


def logger_levels_of(node_id: int, name: str) -> dict[str, str]:
    """Return the levels of the node `name`. Raises RefusedLevels if that is not this node."""
    if name != str(node_id):
        text = f"Unexpected broker id, expected {node_id} but received {name}"
        raise RefusedLevels(ErrorCode.INVALID_REQUEST, text)
    return logger_levels()


def alter_loggers(node_id: int, resource: Any, *, validate_only: bool) -> None:
    """Apply one resource of IncrementalAlterConfigs to this node's loggers. Raises RefusedLevels, and changes nothing,
    if any part of it is invalid."""
    known = logger_levels_of(node_id, resource.resource_name)
    times = Counter(config.name for config in resource.configs)
    for config in resource.configs:
        if times[config.name] > 1:
            text = f"Error due to duplicate config keys: name {config.name!r} once."
            raise RefusedLevels(ErrorCode.INVALID_REQUEST, text)
        if config.value is None and config.config_operation != DELETE:
            raise RefusedLevels(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    for config in resource.configs:
        _check_change(config, known)
    if not validate_only:
        for config in resource.configs:
            set_level(config.name, config.value if config.config_operation == SET else None)


def _check_change(config: Any, known: Mapping[str, str]) -> None:
    if config.name not in known:
        raise RefusedLevels(ErrorCode.INVALID_CONFIG, _unknown(config.name))
    if config.config_operation == SET:
        if config.value not in LEVELS:
            text = f"{config.value!r} is not a level of logger {config.name}: expected one of {', '.join(LEVELS)}"
            raise RefusedLevels(ErrorCode.INVALID_CONFIG, text)
    elif config.config_operation != DELETE:
        raise RefusedLevels(ErrorCode.INVALID_REQUEST, "a logger's level can be set and deleted only")
    elif config.name == ROOT:
        raise RefusedLevels(ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be deleted")


def _unknown(name: str) -> str:
    near = get_close_matches(name, LOGGERS, 1)
    return f"there is no logger {name}; " + (f"did you mean {near[0]}?" if near else "the description names all")


def set_level(name: str, word: str | None) -> None:
    """Set a logger's level; None makes it inherit its parent's level again."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if word is None else LEVELS[word])


def _word(level: int) -> str:
    return next((word for word, number in LEVELS.items() if level >= number), "TRACE")
