"""The replicas that a broker hosts, of one topic or in one directory, in leaves.

There may be a hundred thousand. A dict of so many is copied in one piece when it grows, and a list of them all is slow
to make, and slower for a collection of garbage that comes upon it: both hold the loop for longer than others should
wait. So they stand in leaves of neighbours, and whoever looks at all of them takes a leaf at a time.

Invariant: whoever takes them over several turns meets each replica that was there all the time once; what comes and
goes meanwhile may be met or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition

LEAF_SHIFT = 10
"""A leaf has 1,024 neighbours at most."""


class HostedTopic:
    """The replicas of one topic, by number."""

    __slots__ = ("_leaves", "topic_id")

    def __init__(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self._leaves: dict[int, dict[int, Partition]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._leaves.values()))

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def __iter__(self) -> Iterator[Partition]:
        for number in list(self._leaves):
            yield from list(self._leaves.get(number, {}).values())

    def get(self, index: int) -> Partition | None:
        """The replica of this number, or None."""
        leaf = self._leaves.get(index >> LEAF_SHIFT)
        return None if leaf is None else leaf.get(index)

    def add(self, partition: Partition) -> None:
        self._leaves.setdefault(partition.index >> LEAF_SHIFT, {})[partition.index] = partition

    def discard(self, partition: Partition) -> None:
        """Take it out. No effect if it is not there."""
        number = partition.index >> LEAF_SHIFT
        leaf = self._leaves.get(number)
        if leaf is not None and leaf.get(partition.index) is partition:
            del leaf[partition.index]
            if not leaf:
                del self._leaves[number]


class HostedReplicas:
    """Replicas of any topics, topic by topic."""

    __slots__ = ("_count", "_topics")

    def __init__(self) -> None:
        self._topics: dict[UUID, HostedTopic] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Partition]:
        for topic_id in list(self._topics):
            yield from self._topics.get(topic_id, ())

    def topic(self, topic_id: UUID) -> HostedTopic | None:
        """Those of one topic, or None if there is none."""
        return self._topics.get(topic_id)

    def add(self, partition: Partition) -> HostedTopic:
        """A replica that is not there yet; the topic's, with it."""
        topic = self._topics.get(partition.topic_id)
        if topic is None:
            topic = self._topics[partition.topic_id] = HostedTopic(partition.topic_id)
        topic.add(partition)
        self._count += 1
        return topic

    def discard(self, partition: Partition) -> None:
        """Take it out. No effect if it is not there."""
        topic = self._topics.get(partition.topic_id)
        if topic is None or topic.get(partition.index) is not partition:
            return
        topic.discard(partition)
        self._count -= 1
        if not topic:
            del self._topics[partition.topic_id]
