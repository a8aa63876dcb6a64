"""Labels of topics in the checks: a topic's name, with a number if an earlier topic had the same name.

A topic that is deleted and created again is a different topic: its logs, epochs and offsets restart, and nothing of the
deleted topic may appear in it (M10). So logs are always identified by topic id.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from kraft.sim.world.filesystem import Directory, Inode
from kraft.storage.log_names import PARTITION_METADATA
from kraft.storage.partition_metadata import decode_uuid


class TopicLabels:
    """Labels by topic id, assigned when an id is first observed."""

    def __init__(self) -> None:
        self._labels: dict[UUID, str] = {}
        self._known: Counter[str] = Counter()

    def of(self, topic_id: UUID, name: str) -> str:
        """Return the label of this topic."""
        label = self._labels.get(topic_id)
        if label is None:
            self._known[name] += 1
            label = self._labels[topic_id] = name if self._known[name] == 1 else f"{name}@{self._known[name]}"
        return label

    def of_directory(self, directory: Directory, name: str) -> str | None:
        """Return the label of the topic that a partition's folder belongs to; None if the folder has no topic
        id yet."""
        inode = directory.entries.get(PARTITION_METADATA)
        if not isinstance(inode, Inode):
            return None
        topic_id = decode_uuid(inode.data.decode(errors="replace").strip().rpartition("topic_id: ")[2])
        return None if topic_id is None else self.of(topic_id, name)
