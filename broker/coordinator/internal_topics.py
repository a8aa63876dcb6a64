"""The internal topics in which coordinators store their state: their names, and the settings with which they are
created.

The first request for a coordinator (or for the topic's metadata) creates the topic. Source: Kafka's
GroupCoordinatorConfig, TransactionStateManager and ShareCoordinatorService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft.broker.serving.dynamic_configs import DynamicConfigs

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"


class NewTopicSettings(NamedTuple):
    """The settings with which a topic is created. `configs` are (key, value) pairs."""

    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


def topic_settings(name: str, configs: DynamicConfigs) -> NewTopicSettings:
    """Return the settings with which a client's request creates this topic. Internal topics do not use the broker's
    defaults."""
    if name == OFFSETS_TOPIC:
        return NewTopicSettings(
            configs.integer("offsets.topic.num.partitions"),
            configs.integer("offsets.topic.replication.factor"),
            (
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(configs.integer("offsets.topic.segment.bytes"))),
            ),
        )
    if name == TRANSACTION_TOPIC:
        return NewTopicSettings(
            configs.integer("transaction.state.log.num.partitions"),
            configs.integer("transaction.state.log.replication.factor"),
            (
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(configs.integer("transaction.state.log.min.isr"))),
                ("segment.bytes", str(configs.integer("transaction.state.log.segment.bytes"))),
                ("unclean.leader.election.enable", "false"),
            ),
        )
    if name == SHARE_TOPIC:
        return NewTopicSettings(
            configs.integer("share.coordinator.state.topic.num.partitions"),
            configs.integer("share.coordinator.state.topic.replication.factor"),
            (
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(configs.integer("share.coordinator.state.topic.min.isr"))),
                ("retention.ms", "-1"),
                ("segment.bytes", str(configs.integer("share.coordinator.state.topic.segment.bytes"))),
            ),
        )
    return NewTopicSettings(configs.integer("num.partitions"), configs.integer("default.replication.factor"))
