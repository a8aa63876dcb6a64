"""Pure: every configuration key of Kafka, with type, default, validator, effect and description. May import kraft.seam.

`NodeConfig.parse` reads a node's properties. `TopicConfig.resolve` applies a topic's overrides on top of its node's
settings. Each key is defined in one place, the tables in `kraft.config.tables`; docs/configuration.md is generated from
them.
"""

from kraft.config.errors import ConfigError
from kraft.config.group import group_integer, group_value, validate_group_configs
from kraft.config.key import ConfigKey, ConfigValue, Effect, KeyType, UpdateMode
from kraft.config.listeners import ListenerConfig, SecurityProtocol
from kraft.config.node import NodeConfig, VoterAddress
from kraft.config.properties import parse_properties
from kraft.config.table import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    broker_key,
    broker_synonym,
    group_key,
    topic_key,
    validate_broker_config,
    validate_topic_config,
)
from kraft.config.tls import TlsConfig
from kraft.config.topic import TopicConfig, topic_value, validate_topic_configs

__all__ = [
    "BROKER_KEYS",
    "GROUP_KEYS",
    "TOPIC_KEYS",
    "TOPIC_SYNONYMS",
    "ConfigError",
    "ConfigKey",
    "ConfigValue",
    "Effect",
    "KeyType",
    "ListenerConfig",
    "NodeConfig",
    "SecurityProtocol",
    "TlsConfig",
    "TopicConfig",
    "UpdateMode",
    "VoterAddress",
    "broker_key",
    "broker_synonym",
    "group_integer",
    "group_key",
    "group_value",
    "parse_properties",
    "topic_key",
    "topic_value",
    "validate_broker_config",
    "validate_group_configs",
    "validate_topic_config",
    "validate_topic_configs",
]
