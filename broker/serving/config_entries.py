"""The DescribeConfigs entry of one key: its value, the source of the value, and its synonyms.

Layers, in decreasing precedence: the own setting of the topic or group, this broker's dynamic setting, the cluster's
dynamic setting, the node's file, the built-in default. The value is reported as it is parsed. Synonyms are reported as
they were set, in the unit of their keys. A synonym that has precedence over the key's own broker key is omitted:
`log.retention.hours` in a file alone is not a synonym of `retention.ms`. The value of a secret is never reported.
Source: DescribeConfigsResponse, KIP-226, KIP-524, Kafka's ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from types import MappingProxyType

from kraft.config import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigError,
    ConfigKey,
    NodeConfig,
    UpdateMode,
    topic_value,
)
from kraft.config.table import TOPIC_SYNONYMS, strip_listener_prefix


class ConfigOrigin(IntEnum):
    """The source of a value; the values are the codes on the wire."""

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
    """One layer that sets a value: the key's name in this layer (a topic key has another name as a broker key), the
    value as text, and the source."""

    name: str
    value: str | None
    source: ConfigOrigin


@dataclass(frozen=True, slots=True)
class DescribedKey:
    """One key in a response. `layers` are its synonyms, in decreasing precedence. `key` is None for a key that Kafka
    does not define; its value is treated as a secret, because it may be one."""

    key: ConfigKey | None
    name: str
    value: str | None
    layers: tuple[Layer, ...]
    read_only: bool

    @property
    def source(self) -> ConfigOrigin:
        return self.layers[0].source if self.layers else ConfigOrigin.DEFAULT

    @property
    def is_sensitive(self) -> bool:
        return self.key is None or self.key.is_sensitive


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The settings of one broker as text, layer by layer."""

    own: Mapping[str, str]
    cluster: Mapping[str, str]
    node: NodeConfig

    def of(self, name: str, synonyms: Sequence[str]) -> list[Layer]:
        """Return the layers of these broker keys that have a value, starting with `name` itself."""
        layers = [
            Layer(synonym, values[synonym], source)
            for values, source in (
                (self.own, ConfigOrigin.DYNAMIC_BROKER),
                (self.cluster, ConfigOrigin.DYNAMIC_DEFAULT_BROKER),
                (self.node.properties, ConfigOrigin.STATIC_BROKER),
                (_DEFAULTS, ConfigOrigin.DEFAULT),
            )
            for synonym in synonyms
            if synonym in values
        ]
        return [*dropwhile(lambda layer: layer.name != name, layers)]


def topic_entries(overrides: Mapping[str, str], broker: BrokerLayers) -> Iterator[DescribedKey]:
    """Return the entries of every topic key, for a topic with these overrides; internal keys only if they are set."""
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
            layers.insert(0, Layer(key.name, value, ConfigOrigin.DYNAMIC_TOPIC))
        yield _entry(key, key.name, value, layers, read_only=False)


def group_entries(overrides: Mapping[str, str], broker: BrokerLayers) -> Iterator[DescribedKey]:
    """Return the entries of every group key, for a group with these overrides, and of overrides that this release does
    not know. A group has entries whether or not it exists."""
    for key in GROUP_KEYS.values():
        if key.broker_key is None:
            layers = [Layer(key.name, key.default, ConfigOrigin.DEFAULT)]
        else:
            layers = broker.of(key.broker_key, [key.broker_key])
        if key.name in overrides:
            layers.insert(0, Layer(key.name, _parsed(key, overrides[key.name]), ConfigOrigin.GROUP))
        yield _entry(key, key.name, layers[0].value, layers, read_only=False)
    for name in sorted(set(overrides) - set(GROUP_KEYS)):
        layers = [Layer(name, overrides[name], ConfigOrigin.GROUP)]
        yield _entry(None, name, overrides[name], layers, read_only=False)


def broker_entries(broker: BrokerLayers) -> Iterator[DescribedKey]:
    """Return the entries of every broker key and of the additional keys that are set on this broker: keys of single
    listeners, and keys that Kafka does not define."""
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


def cluster_entries(cluster: Mapping[str, str]) -> Iterator[DescribedKey]:
    """Return the entries of the keys that are set for all brokers, with the values as they were set."""
    for name in sorted(cluster):
        key = _key(name)
        layers = [Layer(name, cluster[name], ConfigOrigin.DYNAMIC_DEFAULT_BROKER)]
        yield _entry(key, name, cluster[name], layers, read_only=_is_read_only(key))


def _key(name: str) -> ConfigKey | None:
    return BROKER_KEYS.get(name) or BROKER_KEYS.get(strip_listener_prefix(name))


def _parsed(key: ConfigKey, text: str) -> str | None:
    """Return the value as Kafka writes it. A value that this release cannot parse (another release set it) is returned
    unchanged."""
    try:
        return key.text_of(key.parse(text))
    except ConfigError:
        return text


def _is_read_only(key: ConfigKey | None) -> bool:
    return key is None or key.update_mode is UpdateMode.READ_ONLY


def _broker_synonyms(name: str) -> Sequence[str]:
    """Return the broker keys that set the same value, in decreasing precedence. For the key of one listener, the key
    for all listeners is included."""
    base = strip_listener_prefix(name)
    return _SYNONYMS.get(name, (name,) if base == name else (name, base))


def _entry(
    key: ConfigKey | None, name: str, value: str | None, layers: Sequence[Layer], *, read_only: bool
) -> DescribedKey:
    if key is None or key.is_sensitive:
        value, layers = None, [Layer(layer.name, None, layer.source) for layer in layers]
    return DescribedKey(key, name, value, tuple(layers), read_only)


_DEFAULTS = MappingProxyType({name: key.default for name, key in BROKER_KEYS.items() if key.default is not None})
_SYNONYMS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        name: [synonym for synonym, _ in synonyms]
        for synonyms in TOPIC_SYNONYMS.values()
        for name, _ in synonyms
        if len(synonyms) > 1 and name != "log.flush.scheduler.interval.ms"
    }
)
"""Broker key → all keys that set the same value. `log.flush.scheduler.interval.ms` is excluded: it only gives
`log.flush.interval.ms` its default, and has no synonym itself."""
