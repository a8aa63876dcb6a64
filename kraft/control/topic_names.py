"""What a topic may be called: 1 to 249 of `[A-Za-z0-9._-]`, and neither `.` nor `..`. Source: Kafka's Topic class."""

from __future__ import annotations

import re

NAME_LENGTH_MAX = 249
METADATA_TOPIC = "__cluster_metadata"
"""The cluster's own log: nobody creates it."""
KEYED_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Where a key lives in these is decided by how many partitions they have: they do not grow."""
_LEGAL = re.compile(r"[A-Za-z0-9._-]+\Z")


def topic_name_problem(name: str) -> str | None:
    """What is wrong with the name, or None."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return f"a topic cannot be called '{name}'"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name has at most {NAME_LENGTH_MAX} characters, not {len(name)}"
    if not _LEGAL.match(name):
        return f"the topic name {name!r} has characters other than letters, digits, '.', '_' and '-' of ASCII"
    return None
