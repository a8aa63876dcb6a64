"""Moving replicas between the log directories of this broker: AlterReplicaLogDirs (KIP-113, KIP-858).

A move copies the log into a folder marked `-future` in the other directory, without the network, while the replica
continues to lead or follow. When the copy has caught up, the broker reports the new directory to the controller. When
the metadata name that directory, appends wait for a moment, the rest is copied and synced, and the folders change
places.

Invariants:
- the two folders are renamed, and the replica's log is replaced, with no checkpoint between, at a moment when both logs
  are equal and the copy is on the device: nothing that was acknowledged depends on what is left behind;
- a log that was cut meanwhile is copied from its beginning again;
- before that the target's checkpoint holds the log start: a restart does not bring back what was deleted;
- a move that is given up, by request, by deletion or by a failing directory, leaves the replica where it was, and the
  broker reports that to the controller. Nothing gives it up between the renames and the sync of the directories;
- of several requests for a replica the last one counts.

A move that was under way when the process ended starts again at the next start, from what is in the directories. If
only the copy is there, the metadata name its directory, and no directory is offline that may have more, the copy is the
replica (a crash fell between two renames). A copy that is no longer needed is marked so at once: no directory has more
than one copy of a replica.
Source: KIP-113, KIP-858, Kafka's ReplicaAlterLogDirsThread, docs/decisions/17-moves-between-directories.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import structlog
import trio

from kraft.broker.node.log_waits import wait_open
from kraft.broker.node.replication_quota import ReplicationQuota
from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.append import AppendRefused
from kraft.storage.checkpoints import TopicPartition
from kraft.storage.handles import ColdRead
from kraft.storage.log import Log
from kraft.storage.log_names import (
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    marked_directory_name,
    parse_marked_directory,
)
from kraft.storage.log_slice import OffsetOutOfRange
from kraft.storage.partition_metadata import read_partition_metadata
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.node.log_directories import HostedDirectory
    from kraft.broker.node.partition import Partition
    from kraft.broker.node.replica_manager import ReplicaManager
    from kraft.image.image import MetadataImage

log = structlog.get_logger("kraft.broker.logs")

CHUNK_BYTES = 1_048_576
SYNC_BYTES = 32 * CHUNK_BYTES
"""The copy is synced whenever so much of it was written, so that the end of the move is short."""
IDLE_MS = 20
"""How often a copy that has caught up looks for more, and for the controller's word."""
THROTTLE_MS = 100


class _GivenUp(Exception):
    """The move is over, and the replica stays."""


class Move:
    """One replica on its way to `target`. `future` is the copy, once it is open."""

    def __init__(self, partition: Partition, target: HostedDirectory) -> None:
        self.partition = partition
        self.target = target
        self.future: Log | None = None
        self.truncations = 0 if partition.log is None else partition.log.truncations
        """Of the log, when it was last looked at."""
        self.saved_start = -1
        """The log start that the target's checkpoint says."""
        self.scope = trio.CancelScope()

    def lag(self) -> int:
        """Offsets that the copy is behind; at least 1 if the log was cut since it was looked at."""
        source = self.partition.log
        if source is None:
            return 0
        copied = source.log_start_offset if self.future is None else self.future.log_end_offset
        return max(abs(source.log_end_offset - copied), int(source.truncations != self.truncations))


class ReplicaMoves:
    """The moves under way. `alter`, `give_up` and `into` are plain calls."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._moves: dict[Partition, Move] = {}
        self._asked: dict[Partition, HostedDirectory] = {}
        """Where replicas are to go next, if their moves have not begun."""
        config = manager.config
        self._quota = ReplicationQuota(
            config,
            manager.clock,
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "alter.log.dirs.replication.quota.window.size.seconds",
            "alter.log.dirs.replication.quota.window.num",
        )
        manager.services.dynamic_configs.on_change(self._quota.configure)

    def into(self, directory: HostedDirectory) -> list[Move]:
        """The moves into this directory whose copy has begun."""
        return [move for move in self._moves.values() if move.target is directory and move.future is not None]

    # asking

    def alter(self, topic: str, index: int, path: str) -> ErrorCode:
        """Move this replica into the directory `path`; into the one where it is: give a move up. One of a known
        partition that is not here yet is made there when it comes (REPLICA_NOT_AVAILABLE tells so)."""
        manager = self._manager
        target = next((one for one in manager.directories.all if one.path == path), None)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not target.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        found = manager.locate(topic, index)
        if found is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            manager.directories.preferred[topic, index] = target
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if isinstance(found, ErrorCode):
            return found
        self._ask(found, target)
        return ErrorCode.NONE

    def _ask(self, partition: Partition, target: HostedDirectory) -> None:
        """Move the replica, when a move elsewhere is over."""
        move = self._moves.get(partition)
        bound_for = partition.directory if move is None or move.scope.cancel_called else move.target
        if self._asked.get(partition, bound_for) is target:
            return
        is_idle = move is None and partition not in self._asked
        self._asked[partition] = target
        if move is not None:
            move.scope.cancel()
        elif is_idle:
            self._manager.start_task(self._carry_out, partition)

    def give_up(self, partition: Partition) -> None:
        """The replica stays where it is, if it is being moved."""
        self._asked.pop(partition, None)
        move = self._moves.get(partition)
        if move is not None:
            move.scope.cancel()

    def directory_failed(self, directory: HostedDirectory) -> None:
        """No move into this directory goes on, nor one out of it."""
        for partition, move in self._moves.items():
            if move.target is directory or partition.directory is directory:
                move.scope.cancel()

    # at start

    def take_found(self, image: MetadataImage) -> None:
        """Deal with the copies that an earlier life left: before the roles are taken."""
        for directory in self._manager.directories.online:
            for path in directory.found.future:
                try:
                    self._take_copy(image, directory, path)
                except DiskError as error:
                    self._manager.failures.directory_failed(directory, error)
                if not directory.is_online:
                    break

    def _take_copy(self, image: MetadataImage, directory: HostedDirectory, path: str) -> None:
        """It is the replica now, or marked as one that is to be removed. DiskError."""
        directories, storage = self._manager.directories, directory.storage
        assert storage is not None
        key, assigned = self._replica_of(image, path)
        if key is not None and directories.holding(*key) is not None:
            directories.interrupted[key] = directory
        elif key is not None and assigned == directory.directory_id:
            if directories.are_all_online:  # else one of the others may have more than the copy
                directory.forget_synced(*key)  # it is not said of the copy
                self._manager.disk.rename(path, storage.partition_path(*key))
                directory.held.add(key)
                log.warning("copy of a replica takes its place", topic=key[0], partition=key[1], path=path)
            return
        self._manager.retirement.discard_copy(directory, path)

    def _replica_of(self, image: MetadataImage, path: str) -> tuple[TopicPartition | None, UUID | None]:
        """Which of this broker's replicas the copy is of, and in which directory the metadata have that; (None, None)
        if of none. A long topic's name is cut off in the name of the folder: the topic id in it counts. DiskError."""
        named = parse_marked_directory(path.rpartition("/")[2])
        try:
            topic_id = read_partition_metadata(self._manager.disk, path)
        except StorageCorrupt:
            return None, None
        topic = None if topic_id is None else image.topics.get_by_id(topic_id)
        state = None if topic is None or named is None else topic.find(named[1])
        if topic is None or named is None or state is None or self._manager.node_id not in state.replicas:
            return None, None
        return (topic.name, named[1]), state.directory_of(self._manager.node_id)

    def begin_again(self, partition: Partition) -> None:
        """A replica has come to be: a move that its last life had begun goes on, from the beginning."""
        target = self._manager.directories.interrupted.pop((partition.topic, partition.index), None)
        if target is not None:
            self._ask(partition, target)

    # moving

    async def _carry_out(self, partition: Partition) -> None:
        """Make the moves that are asked for, one after the other."""
        while (target := self._asked.pop(partition, None)) is not None:
            if partition.is_removed or partition.is_offline or not target.is_online or partition.directory is target:
                continue
            move = self._moves[partition] = Move(partition, target)
            log.info("replica moves", topic=partition.topic, partition=partition.index, target=target.path)
            is_done, goes_on_later = False, True
            try:
                with move.scope:
                    is_done = await self._move(move)
                goes_on_later = False  # else the process ends
            finally:
                del self._moves[partition]
                if not is_done:
                    self._abandon(move, goes_on_later=goes_on_later)

    async def _move(self, move: Move) -> bool:
        """True if the replica is in its new directory."""
        manager, partition = self._manager, move.partition
        await wait_open(partition)
        try:
            move.future = future = await self._open_copy(move)
            await self._copy(move, future)
            while not (self._is_assigned(move) and await self._is_swapped(move, future)):
                await manager.clock.sleep_ms(IDLE_MS)
                await self._copy(move, future)
        except _GivenUp:
            return False
        except DiskError as error:
            manager.failures.disk_failed_at(error, move.target)
            return False
        except (StorageCorrupt, AppendRefused) as problem:
            log.error("replica cannot be moved", topic=partition.topic, partition=partition.index, error=str(problem))
            return False
        log.info("replica has moved", topic=partition.topic, partition=partition.index, directory=move.target.path)
        return True

    async def _open_copy(self, move: Move) -> Log:
        manager, partition = self._manager, move.partition
        move.target.forget(partition.topic, partition.index)  # what an earlier log of this name may have left
        await manager.checkpoints.drop_forgotten(move.target, partition.topic, partition.index)
        storage = move.target.storage
        if storage is None:
            raise _GivenUp
        name = marked_directory_name(
            partition.topic, partition.index, manager.random.uuid().hex, FUTURE_DIRECTORY_SUFFIX
        )
        config = manager.log_context.config_of(partition)

        def open_it() -> Log:
            path = f"{storage.path}/{name}"
            future = Log.open_log(
                manager.disk,
                path,
                config,
                clean=True,
                recovery_point=0,
                log_start=0,
                now_ms=manager.clock.wall_ms(),
                cache=manager.file_cache,
            )
            plan = future.ready_plan(partition.topic_id)
            if plan is not None:
                plan.run()
                future.mark_synced(plan)
            manager.disk.sync_directory(storage.path)
            return future

        return await manager.disk.offload(open_it)

    async def _copy(self, move: Move, future: Log) -> None:
        """Copy until the end is reached, and sync that."""
        unsynced = 0
        while move.lag():
            while self._quota.is_exceeded:
                await self._manager.clock.sleep_ms(THROTTLE_MS)
            await self._manager.disk.wait_dirty_budget()
            copied = await self._copy_chunk(move, future)
            self._quota.record(copied)
            unsynced += copied
            if unsynced >= SYNC_BYTES:
                await self._sync(future)
                unsynced = 0
        await self._sync(future)

    async def _copy_chunk(self, move: Move, future: Log) -> int:
        """Copy the next piece; the bytes of it. A log that was cut since it was looked at last is begun anew."""
        source = _source(move)
        clock, disk = self._manager.clock, self._manager.disk
        is_cut, move.truncations = source.truncations != move.truncations, source.truncations
        if is_cut or future.log_end_offset < source.log_start_offset:
            await disk.offload(future.truncate_fully, source.log_start_offset, clock.wall_ms())
        try:
            piece = source.read(future.log_end_offset, CHUNK_BYTES, source.log_end_offset)
        except ColdRead as cold:
            await disk.offload(cold.warm)
            cold.adopt()
            return 0
        except OffsetOutOfRange:
            return 0
        data = await disk.offload(piece.read)
        if source is not move.partition.log or source.truncations != move.truncations:
            return 0
        await disk.offload(_append, future, data, clock.wall_ms())
        return len(data)

    async def _sync(self, future: Log) -> None:
        plan = future.files_to_sync()
        if plan is not None:
            await self._manager.disk.offload(plan.run)
            future.mark_synced(plan)

    # changing places

    def _is_assigned(self, move: Move) -> bool:
        """Whether the metadata name the target; the controller is told so if not."""
        _source(move)
        assignments, target_id = self._manager.assignments, move.target.directory_id
        assignments.report(move.partition, target_id)
        return assignments.is_known(move.partition, target_id)

    async def _is_swapped(self, move: Move, future: Log) -> bool:
        """Put the copy in the log's place; not if it lacks too much to have appends wait for that."""
        manager, partition = self._manager, move.partition
        await self._save_start(move)
        async with partition.blocking:
            if not await self._is_equal(move, future):
                self._go_on(partition)
                return False
            await trio.lowlevel.checkpoint_if_cancelled()  # no cancel lands between here and the end of the sync
            with trio.CancelScope(shield=True):
                old_path, directory = self._change_places(move, _source(move), future)
                await self._sync_directories(move.target, directory)
        partition.synced()
        self._go_on(partition)
        manager.removal.remove_later(partition.config.file_delete_delay_ms, [old_path])
        return True

    async def _is_equal(self, move: Move, future: Log) -> bool:
        """Hold appends back while the last piece is copied and synced; False if more than that is missing, or the log
        was cut. With the log's lock."""
        manager, partition = self._manager, move.partition
        copied = 0
        while True:
            source = _source(move)
            partition.appendable = False
            manager.fetchers.stop(partition)
            if move.lag():
                if copied >= CHUNK_BYTES or source.truncations != move.truncations:
                    return False
                copied += await self._copy_chunk(move, future)
            elif future.unsynced:
                await self._sync(future)
            elif move.saved_start != source.log_start_offset:
                await self._save_start(move)
            else:
                return True

    async def _save_start(self, move: Move) -> None:
        """Write the log start, and with it the high watermark, into the target's checkpoints."""
        checkpoints, partition, target = self._manager.checkpoints, move.partition, move.target
        key, start = (partition.topic, partition.index), _source(move).log_start_offset
        if move.saved_start != start:
            target.log_starts[key], target.high_watermarks[key] = start, partition.high_watermark
            await checkpoints.write_log_starts_of(target)
            await checkpoints.write_high_watermarks_of(target)
            move.saved_start = start

    async def _sync_directories(self, *directories: HostedDirectory) -> None:
        """One that fails goes offline, and the other is synced all the same."""
        disk = self._manager.disk
        for directory in directories:
            try:
                if directory.is_online:
                    await disk.offload(disk.sync_directory, directory.path)
            except DiskError as error:
                self._manager.failures.disk_failed_at(error)

    def _change_places(self, move: Move, source: Log, future: Log) -> tuple[str, HostedDirectory]:
        """All at once: where the old folder is now, and the directory that it is in."""
        manager, partition, target = self._manager, move.partition, move.target
        directory = partition.directory
        if directory is None or directory.storage is None or target.storage is None:
            raise _GivenUp
        key = (partition.topic, partition.index)
        path = target.storage.partition_path(*key)
        name = marked_directory_name(*key, manager.random.uuid().hex, DELETE_DIRECTORY_SUFFIX)
        old_path = f"{directory.path}/{name}"
        manager.disk.rename(source.directory, old_path)
        try:
            manager.disk.rename(future.directory, path)
        except DiskError:
            manager.disk.rename(old_path, source.directory)
            raise
        future.moved_to(path)
        future.update_config(source.config)
        future.take_marks_of(source)
        source.release()
        directory.partitions.discard(partition)
        directory.open_logs.pop(partition, None)
        directory.forget(*key)
        directory.held.discard(key)
        target.held.add(key)
        target.partitions.add(partition)
        partition.directory = target
        partition.replaced(future)
        return old_path, directory

    def _abandon(self, move: Move, *, goes_on_later: bool) -> None:
        """Take the copy away, and tell the controller where the replica is, if it may think otherwise. `goes_on_later`:
        the next start begins anew by the copy that it finds."""
        manager, partition, future = self._manager, move.partition, move.future
        if future is not None and future is not partition.log:
            future.release()
            move.target.forget(partition.topic, partition.index)
            if move.target.is_online and not goes_on_later:
                manager.retirement.discard_copy(move.target, future.directory)
        if not partition.is_removed and not partition.is_offline and partition.directory is not None:
            manager.assignments.report(partition, partition.directory.directory_id)
            self._go_on(partition)

    def _go_on(self, partition: Partition) -> None:
        """Appends and fetching were held back."""
        self._manager.fetchers.begin(partition)
        partition.go_on()
        self._manager.request_pass()


def _source(move: Move) -> Log:
    """The log that is copied. _GivenUp if there is none any more."""
    partition = move.partition
    if partition.log is None or partition.is_removed or partition.is_offline or not move.target.is_online:
        raise _GivenUp
    return partition.log


def _append(future: Log, data: bytes, now_ms: int) -> None:
    """*Blocking*: the copy is not published yet."""
    while True:
        try:
            future.append_as_follower(data, now_ms=now_ms)
            return
        except ColdRead as cold:
            cold.warm()
            cold.adopt()
