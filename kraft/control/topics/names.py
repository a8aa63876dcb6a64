"""Valid topic names: 1 to 249 of `[A-Za-z0-9._-]`, and neither `.` nor `..`. Error texts are Kafka's, which its tools
print. Source: Kafka's Topic.
"""

from __future__ import annotations

import re

NAME_LENGTH_MAX = 249
METADATA_TOPIC = "__cluster_metadata"
"""Name of the topic that is the cluster's metadata log; no client may create it."""
KEYED_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Internal topics that do not grow: the partition of a key depends on the number of partitions."""
_LEGAL = re.compile(r"[A-Za-z0-9._-]+\Z")


def topic_name_problem(name: str) -> str | None:
    """Return what is wrong with the name, or None."""
    problem = _problem(name)
    return None if problem is None else f"Topic name is invalid: {problem}"


def _problem(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.match(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
