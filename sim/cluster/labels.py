"""What the checks call a topic: its name, and for a later topic of the same name its name and a number.

A topic that is deleted and created again is another one: its logs, epochs and offsets begin anew, and nothing of the
first may show up in it (M10). So logs are told apart by topic id, wherever they are seen.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from kraft.sim.world.filesystem import Directory, Inode
from kraft.storage.log_names import PARTITION_METADATA
from kraft.storage.partition_metadata import decode_uuid


class TopicLabels:
    """Labels by topic id, given at first sight."""

    def __init__(self) -> None:
        self._labels: dict[UUID, str] = {}
        self._known: Counter[str] = Counter()

    def of(self, topic_id: UUID, name: str) -> str:
        """The label of this topic."""
        label = self._labels.get(topic_id)
        if label is None:
            self._known[name] += 1
            label = self._labels[topic_id] = name if self._known[name] == 1 else f"{name}@{self._known[name]}"
        return label

    def of_directory(self, directory: Directory, name: str) -> str | None:
        """The label of the topic that a partition's folder belongs to; None if the folder does not say yet."""
        inode = directory.entries.get(PARTITION_METADATA)
        if not isinstance(inode, Inode):
            return None
        topic_id = decode_uuid(inode.data.decode(errors="replace").strip().rpartition("topic_id: ")[2])
        return None if topic_id is None else self.of(topic_id, name)
