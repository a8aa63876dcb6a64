"""The internal topics that coordinators keep: their names, and the settings that they are created with.

The first request for a coordinator (or for the topic's metadata) creates the topic. Source: Kafka's
GroupCoordinatorConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft.broker.serving.dynamic_configs import DynamicConfigs

OFFSETS_TOPIC = "__consumer_offsets"


class TopicSettings(NamedTuple):
    """What a topic is created with. `configs`: (key, value)."""

    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


def topic_settings(name: str, configs: DynamicConfigs) -> TopicSettings:
    """For a topic that is created because somebody asked for it: an internal one has settings of its own."""
    if name == OFFSETS_TOPIC:
        return TopicSettings(
            configs.integer("offsets.topic.num.partitions"),
            configs.integer("offsets.topic.replication.factor"),
            (
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(configs.integer("offsets.topic.segment.bytes"))),
            ),
        )
    return TopicSettings(configs.integer("num.partitions"), configs.integer("default.replication.factor"))
