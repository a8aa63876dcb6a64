"""Folders that an earlier life of this broker left in its log directories, dealt with before the roles are taken.

A log of none of this broker's replicas is set aside as stray; so is one that another directory has too, if the metadata
name that one. A copy (`-future`) that a move left is the replica only if no directory holds the log, the metadata name
the copy's directory, and no directory is offline that may have more: then a crash fell between two renames. Otherwise
it is marked for removal, and the move starts again if the replica is still here. Folders that were marked `-delete` are
removed. Source: KIP-113, KIP-858.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.checkpoints import TopicPartition
from kraft.storage.log_names import parse_marked_directory
from kraft.storage.partition_metadata import read_partition_metadata

if TYPE_CHECKING:
    from kraft.broker.logs.retiring import Retirement
    from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories
    from kraft.broker.serving.loop import Loop
    from kraft.image.image import MetadataImage
    from kraft.image.partitions import PartitionState

log = structlog.get_logger("kraft.broker.logs")


class FoundFolders:
    """`sort_out` is called once, with the first image. A plain call."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        directories: LogDirectories,
        retirement: Retirement,
        directory_failed: Callable[[HostedDirectory, DiskError], None],
    ) -> None:
        self._disk = loop.disk
        self._node_id = node_id
        self._directories = directories
        self._retirement = retirement
        self._directory_failed = directory_failed

    def sort_out(self, image: MetadataImage) -> None:
        """Deal with all that was found."""
        for directory in self._directories.online:
            for path in directory.found.future:
                try:
                    self._take_copy(image, directory, path)
                except DiskError as error:
                    self._directory_failed(directory, error)
                if not directory.is_online:
                    break
        for directory in self._directories.online:
            for topic, index in directory.found.partitions:
                if not self._is_assigned_here(image, topic, index) or self._is_elsewhere(
                    image, directory, topic, index
                ):
                    self._retirement.set_aside(directory, topic, index)
            self._retirement.remove_later(list(directory.found.to_delete))

    def _take_copy(self, image: MetadataImage, directory: HostedDirectory, path: str) -> None:
        """Make a copy the replica, or mark it for removal. DiskError."""
        directories, storage = self._directories, directory.storage
        assert storage is not None
        key, assigned = self._replica_of(image, path)
        if key is not None and directories.holding(*key) is not None:
            directories.interrupted[key] = directory
        elif key is not None and assigned == directory.directory_id:
            if directories.are_all_online:  # else one of the others may have more than the copy
                directory.forget_synced(*key)  # it is not said of the copy
                self._disk.rename(path, storage.partition_path(*key))
                directory.held.add(key)
                log.warning("copy of a replica takes its place", topic=key[0], partition=key[1], path=path)
            return
        self._retirement.discard_copy(directory, path)

    def _replica_of(self, image: MetadataImage, path: str) -> tuple[TopicPartition | None, UUID | None]:
        """Which of this broker's replicas a copy is of, and in which directory the metadata have that; (None, None) if
        of none. A long topic's name is cut off in the name of the folder: the topic id in it counts. DiskError."""
        named = parse_marked_directory(path.rpartition("/")[2])
        try:
            topic_id = read_partition_metadata(self._disk, path)
        except StorageCorrupt:
            return None, None
        topic = None if topic_id is None else image.topics.get_by_id(topic_id)
        state = None if topic is None or named is None else topic.find(named[1])
        if topic is None or named is None or state is None or self._node_id not in state.replicas:
            return None, None
        return (topic.name, named[1]), state.directory_of(self._node_id)

    def _is_assigned_here(self, image: MetadataImage, topic: str, index: int) -> bool:
        state = _state_of(image, topic, index)
        return state is not None and self._node_id in state.replicas

    def _is_elsewhere(self, image: MetadataImage, directory: HostedDirectory, topic: str, index: int) -> bool:
        """Another directory has a log of this name too, and is the one that the metadata name."""
        if len(self._directories.online) == 1:
            return False
        state = _state_of(image, topic, index)
        assigned = None if state is None else state.directory_of(self._node_id)
        return self._directories.holding(topic, index, assigned) is not directory


def _state_of(image: MetadataImage, topic: str, index: int) -> PartitionState | None:
    known = image.topics.get(topic)
    return None if known is None else known.find(index)
