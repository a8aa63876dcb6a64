"""A topic's configuration as CreateTopics tells it: every key with the value that holds and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kraft.config import TOPIC_KEYS, TOPIC_SYNONYMS, ConfigKey, NodeConfig
from kraft.control.decision import Context
from kraft.image import ConfigResourceType, MetadataImage

DYNAMIC_TOPIC, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 3, 4, 5
"""Kafka's ConfigSource codes, of the layers that the controller knows."""


class DescribedConfig(NamedTuple):
    """One key; `value` is None if it is secret or has none."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    is_sensitive: bool = False


def describe_topic_configs(
    image: MetadataImage, context: Context, overrides: Mapping[str, str]
) -> tuple[DescribedConfig, ...]:
    """All topic keys for a topic with these overrides, by name."""
    dynamic = image.configs_of(ConfigResourceType.BROKER, "")
    return tuple(
        _describe(TOPIC_KEYS[name], overrides, dynamic, context.config)
        for name in sorted(TOPIC_KEYS)
        if not TOPIC_KEYS[name].is_internal or name in overrides
    )


def _describe(
    key: ConfigKey, overrides: Mapping[str, str], dynamic: Mapping[str, str], node: NodeConfig
) -> DescribedConfig:
    value, source = next(_layers(key, overrides, dynamic, node), (key.default, DEFAULT))
    return DescribedConfig(key.name, None if key.is_sensitive else value, source, is_sensitive=key.is_sensitive)


def _layers(
    key: ConfigKey, overrides: Mapping[str, str], dynamic: Mapping[str, str], node: NodeConfig
) -> Iterator[tuple[str, int]]:
    if key.name in overrides:
        yield overrides[key.name], DYNAMIC_TOPIC
    synonyms = TOPIC_SYNONYMS.get(key.name, ())
    for name, factor in synonyms:
        if name in dynamic:
            yield _scaled(dynamic[name], factor), DYNAMIC_DEFAULT_BROKER
    for name, factor in synonyms:
        if node.is_set(name):
            yield _scaled(node.properties[name], factor), STATIC_BROKER


def _scaled(text: str, factor: int) -> str:
    if factor == 1:
        return text
    value = int(text)
    return str(value * factor if value >= 0 else -1)
