"""Error texts for rejected configurations: first Kafka's text, which its tools print and scripts parse, then details of
this project.

Source: Kafka's ConfigException and LogConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft.config import BROKER_KEYS, TOPIC_KEYS, ConfigError


def config_refusal(problem: ConfigError, values: Mapping[str, str], *, of_topic: bool) -> str:
    """Return the error text. `values` are the requested values by key; secrets among them are hidden."""
    if problem.key not in values:
        return str(problem)
    key = (TOPIC_KEYS if of_topic else BROKER_KEYS).get(problem.key)
    if key is None:
        return f"Unknown {'topic' if of_topic else 'broker'} config name: {problem}"
    value = "[hidden]" if key.is_sensitive else values[problem.key]
    return f"Invalid value {value} for configuration {problem}"
