"""FoundFolders: sort the folders that an earlier incarnation of this broker left in its log directories, before roles
are applied.

A log that belongs to no replica of this broker is renamed to `-stray`. If a log exists in two directories, the one in
the directory that the metadata do not name is renamed too.

A copy (`-future`) that an unfinished move left becomes the replica only in one case: no directory holds the log, the
metadata name the copy's directory, and no offline directory may have more of the log. Then the crash came between two
renames. In any other case the copy is marked for removal, and the move starts again if the replica is still on this
broker. Folders that were marked `-delete` are removed. Source: KIP-113, KIP-858.
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
    from kraft.broker.logs.folder_retirement import FolderRetirement
    from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories
    from kraft.broker.serving.loop import Loop
    from kraft.image.image import MetadataImage
    from kraft.image.partitions import PartitionState

log = structlog.get_logger("kraft.broker.logs")


class FoundFolders:
    """Sorts the found folders. `sort_out` is called once, with the first image; it does not suspend."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        directories: LogDirectories,
        retirement: FolderRetirement,
        directory_failed: Callable[[HostedDirectory, DiskError], None],
    ) -> None:
        self._disk = loop.disk
        self._node_id = node_id
        self._directories = directories
        self._retirement = retirement
        self._directory_failed = directory_failed

    def sort_out(self, image: MetadataImage) -> None:
        """Adopt, set aside or remove every folder that was found."""
        for directory in self._directories.online:
            for path in directory.found.future:
                try:
                    self._adopt_copy(image, directory, path)
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

    def _adopt_copy(self, image: MetadataImage, directory: HostedDirectory, path: str) -> None:
        """Turn a copy into the replica, or mark it for removal. Raises DiskError."""
        directories, storage = self._directories, directory.storage
        assert storage is not None
        key, assigned = self._replica_of(image, path)
        if key is not None and directories.holding(*key) is not None:
            directories.interrupted[key] = directory
        elif key is not None and assigned == directory.directory_id:
            if directories.are_all_online:  # otherwise an offline directory may have more records than the copy
                directory.forget_synced(*key)  # the checkpointed recovery point does not belong to the copy
                self._disk.rename(path, storage.partition_path(*key))
                directory.held.add(key)
                log.warning(
                    "copy of an interrupted move becomes the replica", topic=key[0], partition=key[1], path=path
                )
            return
        self._retirement.discard_copy(directory, path)

    def _replica_of(self, image: MetadataImage, path: str) -> tuple[TopicPartition | None, UUID | None]:
        """Return the replica of this broker to which a copy belongs, and the replica's directory in the metadata.
        Return (None, None) if there is no such replica. The topic id in the folder decides, because the folder's name
        truncates a long topic name. Raises DiskError."""
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
        """Return whether the directory that the metadata name is another one, and has a log of this name too."""
        if len(self._directories.online) == 1:
            return False
        state = _state_of(image, topic, index)
        assigned = None if state is None else state.directory_of(self._node_id)
        return self._directories.holding(topic, index, assigned) is not directory


def _state_of(image: MetadataImage, topic: str, index: int) -> PartitionState | None:
    known = image.topics.get(topic)
    return None if known is None else known.find(index)
