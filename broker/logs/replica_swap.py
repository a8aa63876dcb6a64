"""ReplicaSwap: replace the log of a replica with its copy.

Invariant: no checkpoint is written between the renames of both folders and the replacement of the replica's log. At
that moment both logs are equal and the copy is on the device, so nothing acknowledged depends on the old folder. A
cancellation has no effect between the renames and the sync of the directories. Source: KIP-113.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from kraft.broker.logs.replica_copy import CHUNK_BYTES, MoveAbandoned, source_of
from kraft.seam import DiskError
from kraft.storage.log_names import DELETE_DIRECTORY_SUFFIX, marked_directory_name

if TYPE_CHECKING:
    from kraft.broker.logs.file_removal import FileRemoval
    from kraft.broker.logs.replica_copy import Move, ReplicaCopier
    from kraft.broker.partition.log_directories import HostedDirectory
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.storage.log import Log


class ReplicaSwap:
    """The last phase of a move, in which the copy becomes the replica's log."""

    def __init__(
        self,
        loop: Loop,
        copier: ReplicaCopier,
        removal: FileRemoval,
        *,
        stop_fetching: Callable[[Partition], None],
        begin_fetching: Callable[[Partition], None],
        disk_failed_at: Callable[[DiskError], None],
    ) -> None:
        self._loop = loop
        self._copier = copier
        self._removal = removal
        self._stop_fetching = stop_fetching
        self._begin_fetching = begin_fetching
        self._disk_failed_at = disk_failed_at

    async def swap(self, move: Move, future: Log) -> bool:
        """Replace the log with the copy. Return False if the copy is so far behind that appends would be held back for
        too long."""
        partition = move.partition
        await self._copier.save_start(move)
        async with partition.blocking:
            if not await self._is_equal(move, future):
                self.resume_appends(partition)
                return False
            # no cancellation takes effect until the sync has ended
            await trio.lowlevel.checkpoint_if_cancelled()
            with trio.CancelScope(shield=True):
                old_path, directory = self._rename_folders(move, source_of(move), future)
                await self._sync_directories(move.target, directory)
        partition.synced()
        self.resume_appends(partition)
        self._removal.remove_later(partition.config.file_delete_delay_ms, [old_path])
        return True

    async def _is_equal(self, move: Move, future: Log) -> bool:
        """Hold appends back while the last piece is copied and synced. Return False if more than one piece is missing
        or the log was truncated. The caller holds the log's lock."""
        copier, partition = self._copier, move.partition
        copied = 0
        while True:
            source = source_of(move)
            partition.hold_appends()
            self._stop_fetching(partition)
            if move.lag():
                if copied >= CHUNK_BYTES or source.truncations != move.truncations:
                    return False
                copied += await copier.copy_chunk(move, future)
            elif future.unsynced:
                await copier.sync(future)
            elif move.saved_start != source.log_start_offset:
                await copier.save_start(move)
            else:
                return True

    async def _sync_directories(self, *directories: HostedDirectory) -> None:
        """Sync the two directories. If the device of one directory fails, it goes offline, and the other directory is
        synced nevertheless."""
        disk = self._loop.disk
        for directory in directories:
            try:
                if directory.is_online:
                    await disk.offload(disk.sync_directory, directory.path)
            except DiskError as error:
                self._disk_failed_at(error)

    def _rename_folders(self, move: Move, source: Log, future: Log) -> tuple[str, HostedDirectory]:
        """Rename both folders and switch the replica to the copy. Return the path of the old folder, and the directory
        that contains it."""
        loop, partition, target = self._loop, move.partition, move.target
        directory = partition.directory
        if directory is None or directory.storage is None or target.storage is None:
            raise MoveAbandoned
        key = (partition.topic, partition.index)
        path = target.storage.partition_path(*key)
        name = marked_directory_name(*key, loop.random.uuid().hex, DELETE_DIRECTORY_SUFFIX)
        old_path = f"{directory.path}/{name}"
        loop.disk.rename(source.directory, old_path)
        try:
            loop.disk.rename(future.directory, path)
        except DiskError:
            loop.disk.rename(old_path, source.directory)
            raise
        future.moved_to(path)
        future.update_config(source.config)
        future.copy_state_of(source)
        source.release()
        directory.partitions.discard(partition)
        directory.open_logs.pop(partition, None)
        directory.forget(*key)
        directory.held.discard(key)
        target.held.add(key)
        target.partitions.add(partition)
        partition.replaced(future, target)
        return old_path, directory

    def resume_appends(self, partition: Partition) -> None:
        """Continue appends and fetching after the swap."""
        self._begin_fetching(partition)
        partition.resume_appends()
        self._loop.request_pass()
