"""A topic's settings: the order of the layers, synonyms, and refused values."""

from __future__ import annotations

import pytest

from kraft.config import (
    BROKER_KEYS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    ConfigError,
    NodeConfig,
    TopicConfig,
    broker_synonym,
    topic_value,
    validate_broker_config,
    validate_topic_config,
    validate_topic_configs,
)

BASE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@localhost:9192",
}


def node(**properties: str) -> NodeConfig:
    return NodeConfig.parse({**BASE, **{name.replace("_", "."): value for name, value in properties.items()}})


def test_without_any_setting_a_topic_has_kafkas_defaults() -> None:
    config = TopicConfig.resolve({}, {}, node())
    assert config.retention_ms == 604_800_000
    assert config.segment_bytes == 1 << 30
    assert config.cleanup_policy == {"delete"}
    assert config.max_message_bytes == 1_048_588
    assert config.unclean_leader_election_enable is False
    assert config.min_cleanable_dirty_ratio == 0.5


def test_topic_overrides_win_over_cluster_settings_and_cluster_settings_over_the_nodes_file() -> None:
    static = node(log_retention_ms="1")
    assert TopicConfig.resolve({}, {}, static).retention_ms == 1
    assert TopicConfig.resolve({}, {"log.retention.ms": "2"}, static).retention_ms == 2
    assert TopicConfig.resolve({"retention.ms": "3"}, {"log.retention.ms": "2"}, static).retention_ms == 3


def test_topic_times_set_in_hours_and_minutes_apply_and_the_finer_unit_has_precedence() -> None:
    assert TopicConfig.resolve({}, {}, node(log_retention_hours="2")).retention_ms == 7_200_000
    assert TopicConfig.resolve({}, {}, node(log_retention_hours="2", log_retention_minutes="3")).retention_ms == 180_000
    assert TopicConfig.resolve({}, {}, node(log_retention_hours="-1")).retention_ms == -1
    assert TopicConfig.resolve({}, {}, node(log_flush_scheduler_interval_ms="9")).flush_ms == 9


def test_internal_config_key_permits_segments_below_the_minimum_size() -> None:
    assert TopicConfig.resolve({"internal.segment.bytes": "1000"}, {}, node()).segment_bytes == 1000
    with pytest.raises(ConfigError, match="at least 1048576"):
        validate_topic_config("segment.bytes", "1000")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("retention.mss", "1", r"did you mean retention\.ms\?"),
        ("log.retention.ms", "1", "it is a broker key"),
        ("cleanup.policy", "shred", "must be a list of compact, delete"),
        ("compression.type", "rar", "must be one of uncompressed, zstd"),
        ("min.insync.replicas", "0", "must be at least 1"),
        ("message.format.version", "2.0", "this key is gone"),
        ("remote.storage.enable", "true", "no tiered storage"),
        ("leader.replication.throttled.replicas", "all", "partition:broker"),
    ],
)
def test_an_invalid_topic_setting_is_refused(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        validate_topic_config(name, value)


def test_contradicting_topic_settings_are_refused() -> None:
    validate_topic_configs({"min.compaction.lag.ms": "1", "max.compaction.lag.ms": "2"})
    with pytest.raises(ConfigError, match="above max"):
        validate_topic_configs({"min.compaction.lag.ms": "3", "max.compaction.lag.ms": "2"})


def test_throttled_replicas_setting_accepts_an_asterisk_or_partition_broker_pairs() -> None:
    validate_topic_config("follower.replication.throttled.replicas", "*")
    validate_topic_config("follower.replication.throttled.replicas", "0:1,1:2")


def test_only_dynamic_broker_keys_change_while_nodes_run() -> None:
    validate_broker_config("log.retention.ms", "1", per_broker=False)
    with pytest.raises(ConfigError, match="cannot change while the node runs"):
        validate_broker_config("node.id", "4", per_broker=True)
    prefixed = "listener.name.internal.ssl.keystore.location"
    validate_broker_config(prefixed, "/x.pem", per_broker=True)
    with pytest.raises(ConfigError, match="for one broker only"):
        validate_broker_config(prefixed, "/x.pem", per_broker=False)
    with pytest.raises(ConfigError, match="one listener only"):
        validate_broker_config("ssl.keystore.location", "/x.pem", per_broker=True)


def test_every_synonym_is_a_broker_key_with_the_same_default() -> None:
    assert broker_synonym("retention.ms") == "log.retention.ms"
    assert broker_synonym("remote.storage.enable") is None
    for name, synonyms in TOPIC_SYNONYMS.items():
        for synonym, factor in synonyms:
            default = BROKER_KEYS[synonym].default_value()
            if isinstance(default, int) and not isinstance(default, bool):
                assert TOPIC_KEYS[name].default_value() == default * factor, name
            elif default is not None:
                assert TOPIC_KEYS[name].default_value() == default, name


def test_every_topic_key_has_a_value_on_a_node_with_default_settings() -> None:
    for name in TOPIC_KEYS:
        assert topic_value(name, {}, {}, node()) == TOPIC_KEYS[name].default_value()
