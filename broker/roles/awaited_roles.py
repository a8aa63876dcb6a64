"""Partitions that followers ask for before this broker has taken the role that the newest image gives it.

When very many partitions are new, all brokers take their roles in turns, and a follower may be faster than the leader.
To answer it with an error, and its next requests again, would cost both sides more than the roles do; so nothing is
told of such a partition until its role is taken, as if nothing had happened in it.
Invariant: an entry is told of, at the latest, when no turn is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from kraft.broker.api.fetch.sessions import CachedPartition
    from kraft.broker.partition.partition import Partition
    from kraft.image.image import MetadataImage


class AwaitedRoles:
    """The entries of fetch sessions that wait, by topic id and partition. All plain calls."""

    def __init__(self, node_id: int, image: Callable[[], MetadataImage], roles_are_taken: Callable[[], bool]) -> None:
        """`image` is the newest one whose roles are taken, or are being taken."""
        self._node_id = node_id
        self._image = image
        self._roles_are_taken = roles_are_taken
        self._entries: dict[tuple[UUID, int], dict[CachedPartition, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def wait(self, entry: CachedPartition) -> bool:
        """Whether this broker is about to lead the partition; the entry then waits for that, and is not dirty."""
        topic_id = entry.topic_key
        if self._roles_are_taken() or not entry.session.is_follower or not isinstance(topic_id, UUID):
            return False
        topic = self._image().topics.get_by_id(topic_id)
        state = None if topic is None else topic.find(entry.index)
        if state is None or state.leader != self._node_id:
            return False
        entry.is_awaited = True
        entry.session.dirty.pop(entry, None)
        self._entries.setdefault((topic_id, entry.index), {})[entry] = None
        return True

    def hosted(self, partition: Partition) -> None:
        """The replica is there, and its role is being taken."""
        waiting = self._entries.pop(partition.key, None) if self._entries else None
        for entry in waiting or ():
            _tell(entry)

    def turns_over(self) -> None:
        """Have the entries that still wait looked at once every role has been taken."""
        if self._entries and self._roles_are_taken():
            waiting, self._entries = self._entries, {}
            for entries in waiting.values():
                for entry in entries:
                    _tell(entry)


def _tell(entry: CachedPartition) -> None:
    """Have it looked at, unless it was dropped from its session meanwhile."""
    session = entry.session
    if session.partitions.get((entry.topic_key, entry.index)) is entry:
        session.note(entry)
