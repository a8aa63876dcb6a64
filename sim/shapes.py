"""Shape of a cluster for a test: number of nodes of each role, with settings that suit tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kraft.config import ConfigError, broker_key
from kraft.sim.cluster.shape import ClusterShape

ONE_NODE = ClusterShape(1, 1, combined=1)
THREE_AND_THREE = ClusterShape(3, 3)

REPLICAS_MAX = 3
GROUP_PARTITIONS = 3


Setting = str | int
"""Value of a setting: a text as in server.properties, or a number, or True or False."""


class ClusterError(Exception):
    """A cluster is impossible, or cannot do what a test requests; the text says why."""


def shape_of(
    controllers: int | None,
    brokers: int | None,
    combined: int | None,
    settings: Mapping[str, Setting] | None,
    *,
    default: ClusterShape,
) -> ClusterShape:
    """Make a shape: `combined` nodes with both roles, or `controllers` and `brokers` (if one of these is not given, it
    is 1), or the numbers of `default`. `settings` override those of all test clusters. ClusterError for an impossible
    cluster."""
    if combined is not None and (controllers is not None or brokers is not None):
        raise ClusterError("a cluster has combined nodes, or controllers and brokers: not both")
    for name, count in (("controllers", controllers), ("brokers", brokers), ("combined", combined)):
        if count is not None and type(count) is not int:
            raise ClusterError(f"{name} is a number of nodes, and not {count!r}")
    shape = default
    if combined is not None:
        shape = ClusterShape(combined, combined, combined=combined)
    elif controllers is not None or brokers is not None:
        shape = ClusterShape(1 if controllers is None else controllers, 1 if brokers is None else brokers)
    if min(shape.controllers, shape.brokers) < 1:
        raise ClusterError("a cluster has one controller and one broker at least")
    return replace(shape, overrides={**_settings(shape.brokers), **_checked(settings or {})})


def texts_of(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return the settings as in server.properties. ClusterError for a value of another type."""
    if not isinstance(settings, Mapping):
        raise ClusterError(f"settings are a dict, as {{'num.partitions': 6}}, and not {settings!r}")
    for name, value in settings.items():
        if not isinstance(value, str | int):
            raise ClusterError(f"a setting is a text or a whole number: {name!r}: '{value}', and not {value!r}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


def _checked(settings: Mapping[str, Setting]) -> Mapping[str, str]:
    """Return the known settings, as texts."""
    texts = texts_of(settings)
    for name, text in texts.items():
        try:
            broker_key(name).parse(text)
        except ConfigError as problem:
            raise ClusterError(f"settings: {problem}") from None
    return texts


def _settings(brokers: int) -> dict[str, str]:
    """Return defaults for tests: topics have as many replicas as the brokers allow, and groups do not wait for more
    members."""
    replicas = str(min(REPLICAS_MAX, brokers))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": "2" if brokers >= REPLICAS_MAX else "1",
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": str(GROUP_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
    }
