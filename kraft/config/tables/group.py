"""Settings of a group: consumer groups and share groups."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft.config.key import ConfigKey
from kraft.config.tables.row import BOOLEAN, INT, STRING, key
from kraft.config.validators import at_least, one_of, share_offset_reset

KEYS: tuple[ConfigKey, ...] = (
    key(
        "consumer.session.timeout.ms",
        INT,
        "45000",
        "How long a consumer group keeps a member that sends no heartbeat.",
        at_least(1),
        broker="group.consumer.session.timeout.ms",
    ),
    key(
        "consumer.heartbeat.interval.ms",
        INT,
        "5000",
        "How often the members of a consumer group send a heartbeat.",
        at_least(1),
        broker="group.consumer.heartbeat.interval.ms",
    ),
    key(
        "consumer.assignment.interval.ms",
        INT,
        "0",
        "Shortest time between two assignments of a consumer group (Kafka's default: 1000).",
        at_least(0),
        broker="group.consumer.assignment.interval.ms",
    ),
    key(
        "share.session.timeout.ms",
        INT,
        "45000",
        "How long a share group keeps a member that sends no heartbeat.",
        at_least(1),
        broker="group.share.session.timeout.ms",
    ),
    key(
        "share.heartbeat.interval.ms",
        INT,
        "5000",
        "How often the members of a share group send a heartbeat.",
        at_least(1),
        broker="group.share.heartbeat.interval.ms",
    ),
    key(
        "share.assignment.interval.ms",
        INT,
        "0",
        "Shortest time between two assignments of a share group (Kafka's default: 1000).",
        at_least(0),
        broker="group.share.assignment.interval.ms",
    ),
    key(
        "share.record.lock.duration.ms",
        INT,
        "30000",
        "How long a delivered record is locked for its member.",
        at_least(1000),
        broker="group.share.record.lock.duration.ms",
    ),
    key(
        "share.delivery.count.limit",
        INT,
        "5",
        "How often a record is delivered before it is archived.",
        at_least(2),
        broker="group.share.delivery.count.limit",
    ),
    key(
        "share.partition.max.record.locks",
        INT,
        "2000",
        "Most records locked in one partition of the group.",
        at_least(100),
        broker="group.share.partition.max.record.locks",
    ),
    key(
        "share.auto.offset.reset",
        STRING,
        "latest",
        "Where a share group begins to read a partition.",
        share_offset_reset,
    ),
    key(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        "Whether a share group reads records of open and aborted transactions.",
        one_of("read_committed", "read_uncommitted"),
    ),
    key(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        "true",
        "Whether members of a share group may renew the lock of a record.",
    ),
)


class SettingBounds(NamedTuple):
    """The broker keys that limit a value."""

    least: str
    most: str


BOUNDS: Mapping[str, SettingBounds] = MappingProxyType(
    {
        f"{kind}.{name}": SettingBounds(f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
        for kind, names in (
            ("consumer", ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")),
            (
                "share",
                (
                    *("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
                    *("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"),
                ),
            ),
        )
        for name in names
    }
)
"""Group key → the broker keys that limit its value. They limit the broker key that provides its default, too."""

SESSIONS = (
    ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
)
"""Pairs of group keys: the first value must be greater than the second."""
