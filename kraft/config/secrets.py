"""Test whether a setting holds a secret, which is never displayed: a password, including that of a single listener."""

from __future__ import annotations

from functools import cache

from kraft.config.table import BROKER_KEYS, TOPIC_KEYS

HIDDEN = "[hidden]"


@cache
def is_secret_key(name: str) -> bool:
    """Return whether the value of this setting is a secret. An unknown setting is not."""
    known = BROKER_KEYS.get(name) or TOPIC_KEYS.get(name)
    if known is None:
        base = name.rpartition("listener.name.")[2]
        known = next((key for key in BROKER_KEYS.values() if base.endswith("." + key.name) and key.is_sensitive), None)
    return known is not None and known.is_sensitive
