"""A group's settings, resolved from the group's own overrides, dynamic broker settings, the node's file, the default.

Invariants: a broker's bounds contain the values that the broker provides as defaults, and an override lies within the
bounds when it is set. A session is longer than the interval between two heartbeats.
Source: Kafka's GroupConfig, GroupConfigManager, GroupCoordinatorConfig, ShareGroupConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraft.config.errors import ConfigError
from kraft.config.key import ConfigValue
from kraft.config.table import GROUP_KEYS, group_key
from kraft.config.tables.group import BOUNDS, SESSIONS

if TYPE_CHECKING:
    from kraft.config.node import NodeConfig


def group_value(name: str, overrides: Mapping[str, str], node: NodeConfig) -> ConfigValue:
    """Return the value of one group key. `node` includes the dynamic broker settings. An override that this release
    cannot parse (another release set it) is ignored."""
    key = GROUP_KEYS[name]
    if name in overrides:
        try:
            return key.parse(overrides[name])
        except ConfigError:
            pass
    return key.default_value() if key.broker_key is None else node.values[key.broker_key]


def group_integer(name: str, overrides: Mapping[str, str], node: NodeConfig) -> int:
    """Return the value of a group key with whole numbers."""
    value = group_value(name, overrides, node)
    assert isinstance(value, int)
    return value


def validate_group_configs(overrides: Mapping[str, str], node: NodeConfig) -> None:
    """Check the overrides of one group, each alone and then all together with what the group inherits. Raises
    ConfigError for the first invalid one, with Kafka's text."""
    for name, text in overrides.items():
        group_key(name).check(text)
    for name, bounds in BOUNDS.items():
        if name in overrides:
            value = group_integer(name, overrides, node)
            if value < node.integer(bounds.least):
                raise ConfigError(
                    "", f"{name} must be greater than or equal to {bounds.least}={node.integer(bounds.least)}"
                )
            if value > node.integer(bounds.most):
                raise ConfigError("", f"{name} must be less than or equal to {bounds.most}={node.integer(bounds.most)}")
    for session, interval in SESSIONS:
        if session in overrides or interval in overrides:
            timeout_ms, interval_ms = (group_integer(name, overrides, node) for name in (session, interval))
            if timeout_ms <= interval_ms:
                raise ConfigError(
                    "", f"{session} must be greater than {interval}: {timeout_ms} is not above {interval_ms}"
                )


def check_group_bounds(node: NodeConfig) -> None:
    """Raise ConfigError unless each default of groups lies within the bounds that this node sets for it."""
    for name, bounds in BOUNDS.items():
        default = GROUP_KEYS[name].broker_key
        assert default is not None
        value, least, most = (node.integer(key) for key in (default, *bounds))
        if most < least:
            raise ConfigError(bounds.most, f"{most} must be greater than or equal to {bounds.least}={least}")
        if value < least:
            raise ConfigError(default, f"{value} must be greater than or equal to {bounds.least}={least}")
        if value > most:
            raise ConfigError(default, f"{value} must be less than or equal to {bounds.most}={most}")
    for session, interval in SESSIONS:
        longer, shorter = GROUP_KEYS[session].broker_key, GROUP_KEYS[interval].broker_key
        assert longer is not None
        assert shorter is not None
        if node.integer(shorter) >= node.integer(longer):
            raise ConfigError(shorter, f"{node.integer(shorter)} must be less than {longer}={node.integer(longer)}")
