"""Error texts for rejected configurations: first Kafka's text, which its tools print and scripts parse, then details of
this project.

Source: Kafka's ConfigException, LogConfig and GroupConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kraft.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigError
from kraft.image import ConfigResourceType

_KEYS = MappingProxyType(
    {
        ConfigResourceType.TOPIC: TOPIC_KEYS,
        ConfigResourceType.BROKER: BROKER_KEYS,
        ConfigResourceType.GROUP: GROUP_KEYS,
    }
)


def config_refusal(problem: ConfigError, values: Mapping[str, str], resource_type: ConfigResourceType) -> str:
    """Return the error text. `values` are the requested values by key; secrets among them are hidden."""
    if problem.key not in values:
        return str(problem)
    key = _KEYS[resource_type].get(problem.key)
    if key is None:
        return f"Unknown {resource_type.name.lower()} config name: {problem}"
    value = "[hidden]" if key.is_sensitive else values[problem.key]
    return f"Invalid value {value} for configuration {problem}"
