"""ConfigError: an invalid configuration of a node or a topic."""

from __future__ import annotations


class ConfigError(Exception):
    """A configuration key has an invalid value. The text names the key, its value, what was expected and, where that
    helps, what to write instead.

    `key` is the key's name, or "" if the error lies in a combination of keys."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key
