"""What DescribeConfigs tells of one key: its value, where that comes from, and every layer below it.

Layers, strongest first: the topic's own setting, this broker's dynamic one, the cluster's dynamic one, the node's file,
the built-in default. A secret's value is never told. Source: DescribeConfigsResponse, KIP-226, KIP-524.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kraft.config import BROKER_KEYS, TOPIC_KEYS, ConfigKey, NodeConfig, UpdateMode
from kraft.config.table import TOPIC_SYNONYMS, strip_listener_prefix


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes on the wire."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer that has a value: the key's name there (a topic key's broker key has another), the text, the source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key as it is told: the strongest layer first; none is secret any more."""

    key: ConfigKey
    name: str
    layers: tuple[Layer, ...]
    read_only: bool

    @property
    def value(self) -> str | None:
        return self.layers[0].value if self.layers else None

    @property
    def source(self) -> ConfigSource:
        return self.layers[0].source if self.layers else ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The layers that hold at one broker, as text."""

    own: Mapping[str, str]
    cluster: Mapping[str, str]
    node: NodeConfig

    def of(self, name: str, *, factor: int = 1) -> Iterator[Layer]:
        """The layers of a broker key that have a value, but for the default; `factor` turns it into a topic key's
        unit."""
        if name in self.own:
            yield Layer(name, _scaled(self.own[name], factor), ConfigSource.DYNAMIC_BROKER)
        if name in self.cluster:
            yield Layer(name, _scaled(self.cluster[name], factor), ConfigSource.DYNAMIC_DEFAULT_BROKER)
        if self.node.is_set(name):
            yield Layer(name, _scaled(self.node.properties[name], factor), ConfigSource.STATIC_BROKER)


def topic_entries(overrides: Mapping[str, str], broker: BrokerLayers) -> Iterator[ConfigEntry]:
    """Every topic key, for a topic with these overrides; internal ones only if they are set."""
    for key in TOPIC_KEYS.values():
        if key.is_internal and key.name not in overrides:
            continue
        layers: list[Layer] = []
        if key.name in overrides:
            layers.append(Layer(key.name, overrides[key.name], ConfigSource.DYNAMIC_TOPIC))
        synonyms = TOPIC_SYNONYMS.get(key.name, ())
        found = [layer for name, factor in synonyms for layer in broker.of(name, factor=factor)]
        layers += sorted(found, key=lambda layer: layer.source)
        layers.append(Layer(synonyms[0][0] if synonyms else key.name, key.default, ConfigSource.DEFAULT))
        yield _entry(key, key.name, layers, read_only=False)


def broker_entries(broker: BrokerLayers) -> Iterator[ConfigEntry]:
    """Every broker key, and the keys for single listeners that are set."""
    named = {*broker.own, *broker.cluster, *broker.node.properties} - set(BROKER_KEYS)
    for name in [*BROKER_KEYS, *sorted(named)]:
        key = BROKER_KEYS.get(name) or BROKER_KEYS.get(strip_listener_prefix(name))
        if key is None or (key.is_internal and not broker.node.is_set(name)):
            continue
        layers = [*broker.of(name), Layer(name, key.default, ConfigSource.DEFAULT)]
        yield _entry(key, name, layers, read_only=key.update_mode is UpdateMode.READ_ONLY)


def cluster_entries(cluster: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """What is set for all brokers; nothing else."""
    for name in sorted(cluster):
        key = BROKER_KEYS.get(strip_listener_prefix(name))
        if key is not None:
            yield _entry(key, name, [Layer(name, cluster[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)], read_only=False)


def _entry(key: ConfigKey, name: str, layers: list[Layer], *, read_only: bool) -> ConfigEntry:
    if key.is_sensitive:
        layers = [Layer(layer.name, None, layer.source) for layer in layers]
    while len(layers) > 1 and layers[-1].value is None and layers[-1].source is ConfigSource.DEFAULT:
        layers.pop()
    return ConfigEntry(key, name, tuple(layers), read_only)


def _scaled(text: str, factor: int) -> str:
    """A time in a larger unit, as ms; -1 (no limit) stays."""
    return text if factor == 1 else str(int(text) * factor if int(text) >= 0 else -1)
