"""Which cluster a test asks for: how many nodes of which roles, with settings that suit tests."""

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
"""The value of a setting: a text as in server.properties, or a number, or True or False."""


class ClusterError(Exception):
    """A cluster cannot be, or cannot do, what a test asks of it; the text says why."""


def shape_of(
    controllers: int | None,
    brokers: int | None,
    combined: int | None,
    settings: Mapping[str, Setting] | None,
    *,
    default: ClusterShape,
) -> ClusterShape:
    """`combined` nodes of both roles, or controllers and brokers (one, where only the other count is given), or as many
    as `default`; `settings` come before those of all test clusters. ClusterError if there can be no such cluster."""
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
    """The settings as server.properties would have them. ClusterError for a value of another type."""
    if not isinstance(settings, Mapping):
        raise ClusterError(f"settings are a dict, as {{'num.partitions': 6}}, and not {settings!r}")
    for name, value in settings.items():
        if not isinstance(value, str | int):
            raise ClusterError(f"a setting is a text or a whole number: {name!r}: '{value}', and not {value!r}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


def _checked(settings: Mapping[str, Setting]) -> Mapping[str, str]:
    """Known settings, as texts."""
    texts = texts_of(settings)
    for name, text in texts.items():
        try:
            broker_key(name).parse(text)
        except ConfigError as problem:
            raise ClusterError(f"settings: {problem}") from None
    return texts


def _settings(brokers: int) -> dict[str, str]:
    """Topics have as many replicas as the brokers allow, and groups do not wait for more members."""
    replicas = str(min(REPLICAS_MAX, brokers))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": "2" if brokers >= REPLICAS_MAX else "1",
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": str(GROUP_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
    }
