"""ReplicaIndex: find the replicas that this broker hosts by topic name or topic id.

Invariant: a replica is found by its topic id, and by a name only while its topic has that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.broker.partition.hosted import HostedReplicas, HostedTopic
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.partition.log_directories import LogDirectories
    from kraft.broker.partition.partition import Partition
    from kraft.image.image import MetadataImage

TopicKey = str | UUID


class ReplicaIndex:
    """All hosted replicas. An iteration yields each replica exactly once if the replica is hosted during the whole
    iteration. No method is a coroutine."""

    def __init__(self, directories: LogDirectories, newest_image: Callable[[], MetadataImage]) -> None:
        self._directories = directories
        self._newest_image = newest_image
        self._hosted = HostedReplicas()
        self._by_name: dict[str, HostedTopic] = {}

    def __len__(self) -> int:
        return len(self._hosted)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._hosted)

    def find(self, topic: TopicKey | None, index: int) -> Partition | None:
        """Return the hosted replica of this topic (name or id) and partition, or None."""
        hosted = self._by_name.get(topic) if isinstance(topic, str) else self._hosted.topic(topic)  # type: ignore[arg-type]
        return None if hosted is None else hosted.get(index)

    def locate(self, topic: str, index: int) -> Partition | ErrorCode:
        """Return the hosted replica or an error code: 56 if its directory is offline, 6 if another broker hosts it, 3
        if the partition does not exist."""
        found = self.find(topic, index)
        if found is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR if found.is_offline else found
        known = self._newest_image().topics.get(topic)
        if known is None or known.find(index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def of_topic(self, topic: TopicKey) -> Iterable[Partition]:
        """Return the hosted replicas of one topic, by name or id."""
        return (self._by_name.get(topic) if isinstance(topic, str) else self._hosted.topic(topic)) or ()

    def with_open_logs(self) -> list[Partition]:
        """Return every hosted replica whose log is open. Timers need no other logs, because a closed log is not
        used."""
        return [partition for directory in self._directories.all for partition in directory.open_logs]

    def host(self, partition: Partition) -> None:
        """Add a replica, so that it is found from now on."""
        self._by_name[partition.topic] = self._hosted.add(partition)

    def drop(self, partition: Partition) -> bool:
        """Remove a replica. Return whether it was the last replica found by its topic's name."""
        self._hosted.discard(partition)
        if self._hosted.topic(partition.topic_id) is not None:
            return False
        known = self._by_name.get(partition.topic)
        if known is None or known.topic_id != partition.topic_id:
            return False
        del self._by_name[partition.topic]
        return True
