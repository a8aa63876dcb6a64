"""The replicas that a broker hosts, of one topic or in one directory, stored in small leaves.

There may be a hundred thousand replicas. A dict is copied in one piece when it grows. A list takes long to build, and
longer if a garbage collection runs meanwhile. Either one would block the event loop for too long. So replicas with
neighboring partition numbers are stored in leaves, and an iteration over all replicas copies one leaf at a time.

Invariant: an iteration that spans several turns yields each replica exactly once if the replica is hosted during the
whole iteration. Replicas added or removed meanwhile may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition

LEAF_SHIFT = 10
"""Number of low bits of a partition number that select the place within a leaf: a leaf has at most 1,024 replicas."""


class HostedTopic:
    """The replicas of one topic, by partition number."""

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
        """Return the replica of this partition number, or None."""
        leaf = self._leaves.get(index >> LEAF_SHIFT)
        return None if leaf is None else leaf.get(index)

    def add(self, partition: Partition) -> None:
        self._leaves.setdefault(partition.index >> LEAF_SHIFT, {})[partition.index] = partition

    def discard(self, partition: Partition) -> None:
        """Remove the replica. No effect if it is not in the collection."""
        number = partition.index >> LEAF_SHIFT
        leaf = self._leaves.get(number)
        if leaf is not None and leaf.get(partition.index) is partition:
            del leaf[partition.index]
            if not leaf:
                del self._leaves[number]


class HostedReplicas:
    """Replicas of any topics, grouped by topic."""

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
        """Return the replicas of one topic, or None if there are none."""
        return self._topics.get(topic_id)

    def add(self, partition: Partition) -> HostedTopic:
        """Add a replica that is not in the collection yet. Return the replicas of its topic."""
        topic = self._topics.get(partition.topic_id)
        if topic is None:
            topic = self._topics[partition.topic_id] = HostedTopic(partition.topic_id)
        topic.add(partition)
        self._count += 1
        return topic

    def discard(self, partition: Partition) -> None:
        """Remove the replica. No effect if it is not in the collection."""
        topic = self._topics.get(partition.topic_id)
        if topic is None or topic.get(partition.index) is not partition:
            return
        topic.discard(partition)
        self._count -= 1
        if not topic:
            del self._topics[partition.topic_id]
