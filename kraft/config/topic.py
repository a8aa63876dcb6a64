"""TopicConfig: a topic's settings, resolved from four layers.

The order is Kafka's: the topic's own overrides, dynamic broker settings, the node's file, the built-in default. The
caller has already applied the broker's dynamic settings over the cluster's. Synonyms (`log.retention.hours`) are
considered in their order within each layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kraft.config.errors import ConfigError
from kraft.config.key import ConfigValue
from kraft.config.node import NodeConfig
from kraft.config.table import BROKER_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS, topic_key

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Resolved settings of a topic. Times are in ms, sizes in bytes; -1 in `retention_ms` and `retention_bytes` means
    no limit."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    cleanup_policy: frozenset[str]
    max_message_bytes: int
    min_insync_replicas: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    unclean_leader_election_enable: bool
    flush_messages: int
    flush_ms: int
    file_delete_delay_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]

    @staticmethod
    def resolve(overrides: Mapping[str, str], dynamic_broker: Mapping[str, str], node: NodeConfig) -> TopicConfig:
        """Return the settings of a topic with these overrides on this node. Raises ConfigError if a value does not
        parse."""

        def integer(name: str) -> int:
            value = topic_value(name, overrides, dynamic_broker, node)
            return int(value) if isinstance(value, int | float) else 0

        def value(name: str) -> ConfigValue:
            return topic_value(name, overrides, dynamic_broker, node)

        def words(name: str) -> tuple[str, ...]:
            found = value(name)
            return found if isinstance(found, tuple) else ()

        cleanup, ratio = value("cleanup.policy"), value("min.cleanable.dirty.ratio")
        return TopicConfig(
            segment_bytes=integer("internal.segment.bytes") or integer("segment.bytes"),
            segment_ms=integer("segment.ms"),
            segment_jitter_ms=integer("segment.jitter.ms"),
            segment_index_bytes=integer("segment.index.bytes"),
            index_interval_bytes=integer("index.interval.bytes"),
            retention_ms=integer("retention.ms"),
            retention_bytes=integer("retention.bytes"),
            cleanup_policy=frozenset(cleanup if isinstance(cleanup, tuple) else ()),
            max_message_bytes=integer("max.message.bytes"),
            min_insync_replicas=integer("min.insync.replicas"),
            compression_type=str(value("compression.type")),
            compression_gzip_level=integer("compression.gzip.level"),
            compression_lz4_level=integer("compression.lz4.level"),
            compression_zstd_level=integer("compression.zstd.level"),
            message_timestamp_type=str(value("message.timestamp.type")),
            message_timestamp_before_max_ms=integer("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=integer("message.timestamp.after.max.ms"),
            unclean_leader_election_enable=bool(value("unclean.leader.election.enable")),
            flush_messages=integer("flush.messages"),
            flush_ms=integer("flush.ms"),
            file_delete_delay_ms=integer("file.delete.delay.ms"),
            delete_retention_ms=integer("delete.retention.ms"),
            min_compaction_lag_ms=integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=integer("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=float(ratio) if isinstance(ratio, int | float) else 0.5,
            leader_replication_throttled_replicas=words("leader.replication.throttled.replicas"),
            follower_replication_throttled_replicas=words("follower.replication.throttled.replicas"),
        )


def topic_value(
    name: str, overrides: Mapping[str, str], dynamic_broker: Mapping[str, str], node: NodeConfig | None
) -> ConfigValue:
    """Return one topic key's value, from the first layer that has it. Without a node, the file layer is empty."""
    key = TOPIC_KEYS.get(name) or topic_key(name)
    if name in overrides:
        return key.parse(overrides[name])
    synonyms = TOPIC_SYNONYMS.get(name, ())
    for synonym, factor in synonyms:
        if synonym in dynamic_broker:
            return _scaled(BROKER_KEYS[synonym].parse(dynamic_broker[synonym]), factor)
    for synonym, factor in synonyms:
        if node is not None and node.is_set(synonym):
            return _scaled(node.values[synonym], factor)
    return key.default_value()


def validate_topic_configs(
    overrides: Mapping[str, str], dynamic_broker: Mapping[str, str] = _NONE, node: NodeConfig | None = None
) -> None:
    """Check each of a topic's overrides alone, then together with what the topic inherits. ConfigError names the first
    invalid one."""
    for name, text in overrides.items():
        topic_key(name).check(text)
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    lower, upper = (topic_value(name, overrides, dynamic_broker, node) for name in (low, high))
    if isinstance(lower, int) and isinstance(upper, int) and lower > upper:
        raise ConfigError(low, f"{lower} is above {high}={upper}")


def _scaled(value: ConfigValue, factor: int) -> ConfigValue:
    if factor == 1 or not isinstance(value, int):
        return value
    return value * factor if value >= 0 else -1
