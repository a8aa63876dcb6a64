"""The topics of the cluster, as consumer groups see them.

The driver passes the newest topics to the coordinator's `topics_changed`, before the first request and whenever a
topic is created, deleted or grown. The value is immutable; `kraft.image.TopicsImage` is one. A group notices the change
with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from uuid import UUID


class TopicView(Protocol):
    """One topic. Immutable."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partition_count(self) -> int: ...


class TopicsView(Protocol):
    """All topics of the cluster. Immutable."""

    def get(self, name: str, /) -> TopicView | None: ...
    def name_of(self, topic_id: UUID, /) -> str | None: ...
    def __iter__(self) -> Iterator[TopicView]:
        """Iterate over the topics in order of their names."""
        ...


class NoTopics:
    """The topics of a cluster that has none."""

    def get(self, name: str, /) -> TopicView | None:
        return None

    def name_of(self, topic_id: UUID, /) -> str | None:
        return None

    def __iter__(self) -> Iterator[TopicView]:
        return iter(())
