"""Moving replicas between the log directories of this broker: AlterReplicaLogDirs (KIP-113, KIP-858).

A move copies the log into a folder marked `-future` in the other directory, without the network, while the replica goes
on leading or following. When the copy has caught up the controller is told the new directory; when the metadata say so,
appends wait for a moment, the rest is copied and synced, and the folders change places.

Invariants:
- the two folders are renamed, and the replica's log is replaced, with no checkpoint between, at a moment when both logs
  are equal and the copy is on the device: nothing that was acknowledged depends on what is left behind;
- a log that was cut meanwhile is copied from its beginning again;
- a move that is given up, by request, by deletion or by a failing directory, leaves the replica where it was, and the
  controller is told so.
A move that was under way when the process ended begins anew at the next start, by what is in the directories: if only
the copy is there and the metadata name its directory, the copy is the replica (a crash fell between two renames).
Source: broker-spec 2.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from kraft.broker.node.replication_quota import ReplicationQuota
from kraft.broker.node.topic_rules import log_config
from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.append import AppendRefused
from kraft.storage.handles import ColdRead
from kraft.storage.log import Log
from kraft.storage.log_names import (
    DELETE_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    marked_directory_name,
    parse_marked_directory,
)
from kraft.storage.log_slice import OffsetOutOfRange
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
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

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
        """Move this replica into the directory `path`; into the one where it is: give a move up. A replica that is not
        here yet is made there when it comes (REPLICA_NOT_AVAILABLE tells so)."""
        manager = self._manager
        target = next((one for one in manager.directories.all if one.path == path), None)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not target.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = manager.partition(topic, index)
        if partition is None:
            manager.directories.preferred[topic, index] = target
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if partition.is_offline or partition.directory is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        move = self._moves.get(partition)
        if partition.directory is target:
            if move is not None:
                self.give_up(partition)
        elif move is None or move.target is not target:
            manager.start_task(self._replace, partition, move, target)
        return ErrorCode.NONE

    def give_up(self, partition: Partition) -> None:
        """The replica stays where it is, if it is being moved."""
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
            storage = directory.storage
            for path in directory.found.future if storage is not None else ():
                key = parse_marked_directory(path.rpartition("/")[2])
                topic = None if key is None else image.topics.get(key[0])
                state = None if topic is None or key is None else topic.find(key[1])
                if key is None or state is None or self._manager.node_id not in state.replicas:
                    self._manager.retirement.remove_later([path])
                elif self._manager.directories.holding(*key) is not None:
                    self._manager.retirement.remove_later([path])
                    self._manager.directories.interrupted[key] = directory
                elif state.directory_of(self._manager.node_id) == directory.directory_id and storage is not None:
                    self._manager.disk.rename(path, storage.partition_path(*key))
                    directory.held.add(key)
                    log.warning("copy of a replica takes its place", topic=key[0], partition=key[1], path=path)
                else:
                    self._manager.retirement.remove_later([path])

    def begin_again(self, partition: Partition) -> None:
        """A replica has come to be: a move that its last life had begun goes on, from the beginning."""
        target = self._manager.directories.interrupted.pop((partition.topic, partition.index), None)
        if target is not None and target.is_online and partition.directory is not target:
            self._manager.start_task(self._replace, partition, None, target)

    # moving

    async def _replace(self, partition: Partition, older: Move | None, target: HostedDirectory) -> None:
        """Begin a move when an older one is over."""
        if older is not None:
            older.scope.cancel()
            await older.ended.wait()
        if partition in self._moves or partition.is_removed or partition.is_offline or not target.is_online:
            return
        move = self._moves[partition] = Move(partition, target)
        log.info("replica moves", topic=partition.topic, partition=partition.index, target=target.path)
        is_done = False
        try:
            with move.scope:
                is_done = await self._move(move)
        finally:
            del self._moves[partition]
            move.ended.set()
            if not is_done:
                self._abandon(move)

    async def _move(self, move: Move) -> bool:
        """True if the replica is in its new directory."""
        manager, partition = self._manager, move.partition
        await manager.wait_open(partition)
        try:
            move.future = future = await self._open_copy(move)
            while not await self._is_swapped(move, future):
                await self._copy(move, future)
        except _GivenUp:
            return False
        except DiskError as error:
            if error.path.startswith(move.target.path + "/"):
                manager.directory_failed(move.target, error)
            elif partition.directory is not None:
                manager.directory_failed(partition.directory, error)
            return False
        except (StorageCorrupt, AppendRefused) as problem:
            log.error("replica cannot be moved", topic=partition.topic, partition=partition.index, error=str(problem))
            return False
        log.info("replica has moved", topic=partition.topic, partition=partition.index, directory=move.target.path)
        return True

    async def _open_copy(self, move: Move) -> Log:
        manager, partition, storage = self._manager, move.partition, move.target.storage
        if storage is None:
            raise _GivenUp
        name = marked_directory_name(
            partition.topic, partition.index, manager.random.uuid().hex, FUTURE_DIRECTORY_SUFFIX
        )
        config = log_config(partition.config, manager.producer_id_expiration_ms)

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
        """Copy until the end is reached, then wait a little for more."""
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
        await self._manager.clock.sleep_ms(IDLE_MS)

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

    async def _is_swapped(self, move: Move, future: Log) -> bool:
        """If the copy has caught up, have the controller say so too; then put it in the log's place."""
        manager, partition = self._manager, move.partition
        _source(move)
        if move.lag():
            return False
        state = partition.state
        if state is None or state.directory_of(manager.node_id) != move.target.directory_id:
            manager.assignments.report(partition, move.target.directory_id)
            return False
        async with partition.blocking:
            while True:
                source = _source(move)
                partition.appendable = False
                manager.roles.stop_fetching(partition)
                if move.lag():
                    await self._copy_chunk(move, future)
                elif future.unsynced:
                    await self._sync(future)
                else:
                    break
            old_path, directory = self._change_places(move, source, future)
            await manager.disk.offload(_sync_directories, manager, directory, move.target)
        partition.synced()
        manager.roles.begin_to_follow(partition)
        manager.request_pass()
        manager.start_task(manager.maintenance.remove_later, partition.config.file_delete_delay_ms, [old_path], None)
        return True

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
        directory.partitions.pop(partition, None)
        directory.forget(*key)
        directory.held.discard(key)
        target.held.add(key)
        target.partitions[partition] = None
        partition.directory = target
        partition.replaced(future)
        return old_path, directory

    def _abandon(self, move: Move) -> None:
        """Take the copy away, and tell the controller where the replica is, if it may think otherwise."""
        manager, partition, future = self._manager, move.partition, move.future
        if future is not None and future is not partition.log:
            future.release()
            if move.target.is_online:
                manager.retirement.remove_later([future.directory])
        if not partition.is_removed and not partition.is_offline and partition.directory is not None:
            manager.assignments.report(partition, partition.directory.directory_id)
            manager.roles.begin_to_follow(partition)
            partition.go_on()
            manager.request_pass()


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


def _sync_directories(manager: ReplicaManager, *directories: HostedDirectory) -> None:
    """*Blocking.*"""
    for directory in directories:
        if directory.is_online:
            manager.disk.sync_directory(directory.path)
