"""FetchesAwaitingRoles: fetches of partitions whose role in the newest image this broker has not applied yet.

When very many partitions are new, all brokers apply their roles in turns, and a follower may fetch before the leader
leads. An error response, and the retries after it, would cost both brokers more than applying the roles. So such a
partition is omitted from responses until its role is applied, as if it had not changed. Invariant: every waiting entry
is notified at the latest when all roles have been applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from kraft.broker.api.fetch.sessions import CachedPartition
    from kraft.broker.partition.partition import Partition
    from kraft.image.image import MetadataImage


class FetchesAwaitingRoles:
    """The waiting entries of fetch sessions, by topic id and partition. No method is a coroutine."""

    def __init__(self, node_id: int, image: Callable[[], MetadataImage], roles_are_taken: Callable[[], bool]) -> None:
        """`image` is the newest image whose roles are applied, or are being applied."""
        self._node_id = node_id
        self._image = image
        self._roles_are_taken = roles_are_taken
        self._entries: dict[tuple[UUID, int], dict[CachedPartition, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def wait(self, entry: CachedPartition) -> bool:
        """Return whether this broker is about to lead the partition. If so, the entry waits until the role is applied,
        and is not in `dirty`."""
        topic_id = entry.topic_key
        if self._roles_are_taken() or not entry.session.is_follower or not isinstance(topic_id, UUID):
            return False
        topic = self._image().topics.get_by_id(topic_id)
        state = None if topic is None else topic.find(entry.index)
        if state is None or state.leader != self._node_id:
            return False
        entry.awaits_role = True
        entry.session.dirty.pop(entry, None)
        self._entries.setdefault((topic_id, entry.index), {})[entry] = None
        return True

    def replica_hosted(self, partition: Partition) -> None:
        """Wake the entries that wait for a replica that is now hosted; its role is being applied."""
        waiting = self._entries.pop(partition.key, None) if self._entries else None
        for entry in waiting or ():
            _wake(entry)

    def roles_applied(self) -> None:
        """Wake the entries that still wait, once every role has been applied."""
        if self._entries and self._roles_are_taken():
            waiting, self._entries = self._entries, {}
            for entries in waiting.values():
                for entry in entries:
                    _wake(entry)


def _wake(entry: CachedPartition) -> None:
    """Add the entry to its session's `dirty` partitions, unless the session dropped the entry meanwhile."""
    session = entry.session
    if session.partitions.get((entry.topic_key, entry.index)) is entry:
        session.note(entry)
