"""The table of all keys: look-up, topic keys and their broker synonyms, and the nearest key to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from kraft.config.errors import ConfigError
from kraft.config.key import ConfigKey
from kraft.config.tables import (
    coordinators,
    group,
    log,
    metrics,
    network,
    own,
    process,
    remote,
    replication,
    security,
    shares,
    topic,
)
from kraft.config.tables.removed import REMOVED

CHAPTERS = (process, network, log, replication, coordinators, shares, security, remote, metrics, own)

BROKER_KEYS: Mapping[str, ConfigKey] = MappingProxyType({key.name: key for chapter in CHAPTERS for key in chapter.KEYS})
TOPIC_KEYS: Mapping[str, ConfigKey] = MappingProxyType({key.name: key for key in topic.KEYS})
GROUP_KEYS: Mapping[str, ConfigKey] = MappingProxyType({key.name: key for key in group.KEYS})

_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000

TOPIC_SYNONYMS: Mapping[str, tuple[tuple[str, int], ...]] = MappingProxyType(
    {key.name: ((key.broker_key, 1),) for key in topic.KEYS if key.broker_key is not None}
    | {
        "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
        "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
        "retention.ms": (
            ("log.retention.ms", 1),
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
        ),
        "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    }
)
"""Topic key → the broker keys that give its default, each with its factor to ms. The first key that is set applies."""


PER_LISTENER_KEYS = frozenset(
    f"ssl.{name}"
    for name in (
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "keystore.key",
        "keystore.certificate.chain",
        "key.password",
        "truststore.type",
        "truststore.location",
        "truststore.password",
        "truststore.certificates",
    )
)
"""Keys that can change while nodes run only in the form with a listener's prefix (`listener.name.<listener>.<key>`)."""


def broker_key(name: str) -> ConfigKey:
    """Return the definition of a broker key. For `listener.name.<listener>.<key>`, return the definition of `<key>`.
    Raises ConfigError if the key is unknown."""
    return _look_up(BROKER_KEYS, strip_listener_prefix(name), "broker")


def topic_key(name: str) -> ConfigKey:
    """Return the definition of a topic key. Raises ConfigError if unknown."""
    return _look_up(TOPIC_KEYS, name, "topic")


def group_key(name: str) -> ConfigKey:
    """Return the definition of a group key. Raises ConfigError if unknown."""
    return _look_up(GROUP_KEYS, name, "group")


def broker_synonym(topic_key_name: str) -> str | None:
    """Return the broker key that provides a topic key's default, or None if there is none."""
    synonyms = TOPIC_SYNONYMS.get(topic_key_name)
    return synonyms[0][0] if synonyms else None


def validate_topic_config(name: str, value: str) -> None:
    """Raise ConfigError if `name` is not a topic key or cannot have this value."""
    topic_key(name).check(value)


def validate_broker_config(name: str, value: str, *, per_broker: bool) -> None:
    """Raise ConfigError if a broker key cannot be set to this value while nodes run, at this level: for one broker or
    for the cluster.

    A key that Kafka does not define is accepted: brokers ignore it."""
    key = BROKER_KEYS.get(strip_listener_prefix(name))
    if key is None:
        return
    if name in PER_LISTENER_KEYS:
        raise ConfigError(name, f"can change for one listener only: name it listener.name.<listener>.{name}")
    key.require_dynamic(per_broker=per_broker)
    key.check(value)


def strip_listener_prefix(name: str) -> str:
    """Return a key's name without the prefix of a listener: `ssl.keystore.location` for
    `listener.name.internal.ssl.keystore.location`. Other names are returned unchanged."""
    if not name.startswith("listener.name."):
        return name
    rest = name.removeprefix("listener.name.").partition(".")[2]
    while rest and rest not in BROKER_KEYS and "." in rest:
        rest = rest.partition(".")[2]
    return rest if rest in BROKER_KEYS else name


def _look_up(keys: Mapping[str, ConfigKey], name: str, kind: str) -> ConfigKey:
    key = keys.get(name)
    if key is not None:
        return key
    if name in REMOVED:
        raise ConfigError(name, f"this key is gone: {REMOVED[name]}")
    raise ConfigError(name, f"there is no such {kind} key{_hint(keys, name, kind)}")


def _hint(keys: Iterable[str], name: str, kind: str) -> str:
    for other, others in (("topic", TOPIC_KEYS), ("broker", BROKER_KEYS), ("group", GROUP_KEYS)):
        if other != kind and name in others:
            return f"; it is a {other} key"
    nearest = get_close_matches(name, [*keys], n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]}?" if nearest else "; `kraft configs keys` lists all keys"
