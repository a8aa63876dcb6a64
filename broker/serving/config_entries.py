"""What DescribeConfigs tells of one key: its value, where that comes from, and its synonyms.

Layers, strongest first: the topic's own setting, this broker's dynamic one, the cluster's dynamic one, the node's file,
the built-in default. The value is reported as it is parsed, synonyms as they were set, each in its own unit. Synonyms
before the key's own name are left out: `log.retention.hours` in a file alone is no synonym of `retention.ms`. The value
of a secret is never reported. Source: DescribeConfigsResponse, KIP-226, KIP-524, Kafka's ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from types import MappingProxyType

from kraft.config import BROKER_KEYS, TOPIC_KEYS, ConfigError, ConfigKey, NodeConfig, UpdateMode, topic_value
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
    """One key as it is told, `layers` being its synonyms from the strongest; `key` is None for one that Kafka does not
    define: it may be anything, so it is treated as a secret."""

    key: ConfigKey | None
    name: str
    value: str | None
    layers: tuple[Layer, ...]
    read_only: bool

    @property
    def source(self) -> ConfigSource:
        return self.layers[0].source if self.layers else ConfigSource.DEFAULT

    @property
    def is_sensitive(self) -> bool:
        return self.key is None or self.key.is_sensitive


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The layers that hold at one broker, as text."""

    own: Mapping[str, str]
    cluster: Mapping[str, str]
    node: NodeConfig

    def of(self, name: str, synonyms: Sequence[str]) -> list[Layer]:
        """The layers of these broker keys that have a value, from the first one of `name` on."""
        layers = [
            Layer(synonym, values[synonym], source)
            for values, source in (
                (self.own, ConfigSource.DYNAMIC_BROKER),
                (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
                (self.node.properties, ConfigSource.STATIC_BROKER),
                (_DEFAULTS, ConfigSource.DEFAULT),
            )
            for synonym in synonyms
            if synonym in values
        ]
        return [*dropwhile(lambda layer: layer.name != name, layers)]


def topic_entries(overrides: Mapping[str, str], broker: BrokerLayers) -> Iterator[ConfigEntry]:
    """Every topic key, for a topic with these overrides; internal ones only if they are set."""
    dynamic = {**broker.cluster, **broker.own}
    for key in TOPIC_KEYS.values():
        if key.is_internal and key.name not in overrides:
            continue
        if key.name in overrides:
            value = _parsed(key, overrides[key.name])
        else:
            value = key.text_of(topic_value(key.name, {}, dynamic, broker.node))
        synonyms = [name for name, _ in TOPIC_SYNONYMS.get(key.name, ())]
        layers = broker.of(synonyms[0], synonyms) if synonyms else []
        if key.name in overrides:
            layers.insert(0, Layer(key.name, value, ConfigSource.DYNAMIC_TOPIC))
        yield _entry(key, key.name, value, layers, read_only=False)


def broker_entries(broker: BrokerLayers) -> Iterator[ConfigEntry]:
    """Every broker key, and what else is set here: keys of single listeners, and keys that Kafka does not define."""
    named = {*broker.own, *broker.cluster, *broker.node.properties} - set(BROKER_KEYS)
    for name in [*BROKER_KEYS, *sorted(named)]:
        key = _key(name)
        if key is not None and key.is_internal and not broker.node.is_set(name):
            continue
        layers = broker.of(name, _broker_synonyms(name))
        strongest = next((layer for layer in layers if layer.name == name), None)
        value = None if strongest is None else strongest.value
        if key is not None and value is not None:
            value = _parsed(key, value)
        yield _entry(key, name, value, layers, read_only=_is_read_only(key))


def cluster_entries(cluster: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """What is set for all brokers, as it was set; nothing else."""
    for name in sorted(cluster):
        key = _key(name)
        layers = [Layer(name, cluster[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)]
        yield _entry(key, name, cluster[name], layers, read_only=_is_read_only(key))


def _key(name: str) -> ConfigKey | None:
    return BROKER_KEYS.get(name) or BROKER_KEYS.get(strip_listener_prefix(name))


def _parsed(key: ConfigKey, text: str) -> str | None:
    """As Kafka writes the value. What does not parse here (another release set it) is reported as it is."""
    try:
        return key.text_of(key.parse(text))
    except ConfigError:
        return text


def _is_read_only(key: ConfigKey | None) -> bool:
    return key is None or key.update_mode is UpdateMode.READ_ONLY


def _broker_synonyms(name: str) -> Sequence[str]:
    """The broker keys that say the same, the strongest first; for the key of one listener the key of all of them."""
    base = strip_listener_prefix(name)
    return _SYNONYMS.get(name, (name,) if base == name else (name, base))


def _entry(
    key: ConfigKey | None, name: str, value: str | None, layers: Sequence[Layer], *, read_only: bool
) -> ConfigEntry:
    if key is None or key.is_sensitive:
        value, layers = None, [Layer(layer.name, None, layer.source) for layer in layers]
    return ConfigEntry(key, name, value, tuple(layers), read_only)


_DEFAULTS = MappingProxyType({name: key.default for name, key in BROKER_KEYS.items() if key.default is not None})
_SYNONYMS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        name: [synonym for synonym, _ in synonyms]
        for synonyms in TOPIC_SYNONYMS.values()
        for name, _ in synonyms
        if len(synonyms) > 1 and name != "log.flush.scheduler.interval.ms"
    }
)
"""`log.flush.scheduler.interval.ms` gives `log.flush.interval.ms` its default; it has no synonym itself."""
