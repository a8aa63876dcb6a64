"""ConfigError: a configuration that a node or a topic cannot have."""

from __future__ import annotations


class ConfigError(Exception):
    """One key is wrong. The text names the key, what it was, what was expected and, where it helps, what to write.

    `key` is the key's name, or "" if the fault lies in a combination of keys.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key
