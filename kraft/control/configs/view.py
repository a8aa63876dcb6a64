"""A topic's configuration for a CreateTopics response: every key with its effective value and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kraft.config import TOPIC_KEYS, TOPIC_SYNONYMS, ConfigKey
from kraft.control.decision import Context
from kraft.image import ConfigResourceType, MetadataImage

DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = range(1, 6)
"""Kafka's ConfigSource codes, of the layers that the controller knows."""


Layers = tuple[tuple[Mapping[str, str], int], ...]
"""Broker settings, the strongest layer first, each with its source."""


class DescribedConfig(NamedTuple):
    """One config key of a topic with its effective value; `value` is None if the key is secret or has no value."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    is_sensitive: bool = False


def describe_topic_configs(
    image: MetadataImage, context: Context, overrides: Mapping[str, str]
) -> tuple[DescribedConfig, ...]:
    """Return the topic keys with their effective values, in the order of names, for a topic with these overrides.
    Internal keys are included only if they are overridden."""
    layers = (
        (image.configs_of(ConfigResourceType.BROKER, str(context.config.node_id)), DYNAMIC_BROKER),
        (image.configs_of(ConfigResourceType.BROKER, ""), DYNAMIC_DEFAULT_BROKER),
        (context.config.properties, STATIC_BROKER),
    )
    return tuple(
        _describe(TOPIC_KEYS[name], overrides, layers)
        for name in sorted(TOPIC_KEYS)
        if not TOPIC_KEYS[name].is_internal or name in overrides
    )


def _describe(key: ConfigKey, overrides: Mapping[str, str], layers: Layers) -> DescribedConfig:
    value, source = next(_values(key, overrides, layers), (key.default, DEFAULT))
    return DescribedConfig(key.name, None if key.is_sensitive else value, source, is_sensitive=key.is_sensitive)


def _values(key: ConfigKey, overrides: Mapping[str, str], layers: Layers) -> Iterator[tuple[str, int]]:
    if key.name in overrides:
        yield overrides[key.name], DYNAMIC_TOPIC
    synonyms = TOPIC_SYNONYMS.get(key.name, ())
    for values, source in layers:
        for name, factor in synonyms:
            if name in values:
                yield _scaled(values[name], factor), source


def _scaled(text: str, factor: int) -> str:
    if factor == 1:
        return text
    value = int(text)
    return str(value * factor if value >= 0 else -1)
