"""ReplicaCopier: copying a replica's log into a folder of another log directory, while the replica goes on.

Invariants: a log that was cut meanwhile is copied from its beginning again; before the copy is the replica, the
target's checkpoint says where the log starts, so that a restart does not bring back what was deleted. Source: KIP-113.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kraft.storage.handles import ColdRead
from kraft.storage.log import Log
from kraft.storage.log_names import FUTURE_DIRECTORY_SUFFIX, marked_directory_name
from kraft.storage.log_slice import OffsetOutOfRange

if TYPE_CHECKING:
    from kraft.broker.logs.checkpoint_writing import CheckpointWriter
    from kraft.broker.logs.opening_queue import LogContext
    from kraft.broker.partition.log_directories import HostedDirectory
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.replication_quota import ReplicationQuota
    from kraft.broker.serving.loop import Loop

CHUNK_BYTES = 1_048_576
SYNC_BYTES = 32 * CHUNK_BYTES
"""The copy is synced whenever so much of it was written, so that the end of the move is short."""
THROTTLE_MS = 100


class MoveGivenUp(Exception):
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


class ReplicaCopier:
    """Copies the logs of any number of moves, each in its own task."""

    def __init__(self, loop: Loop, context: LogContext, quota: ReplicationQuota, checkpoints: CheckpointWriter) -> None:
        """`quota` is the rate of copying, for all moves together."""
        self._loop = loop
        self._context = context
        self._quota = quota
        self._checkpoints = checkpoints

    async def open_copy(self, move: Move) -> Log:
        """Make the folder of the copy, empty. MoveGivenUp, DiskError."""
        loop, context, partition = self._loop, self._context, move.partition
        move.target.forget(partition.topic, partition.index)  # what an earlier log of this name may have left
        await self._checkpoints.drop_forgotten(move.target, partition.topic, partition.index)
        storage = move.target.storage
        if storage is None:
            raise MoveGivenUp
        name = marked_directory_name(partition.topic, partition.index, loop.random.uuid().hex, FUTURE_DIRECTORY_SUFFIX)
        config = context.config_of(partition)

        def open_it() -> Log:
            path = f"{storage.path}/{name}"
            future = Log.open_log(
                loop.disk,
                path,
                config,
                clean=True,
                recovery_point=0,
                log_start=0,
                now_ms=loop.clock.wall_ms(),
                cache=context.file_cache,
            )
            plan = future.ready_plan(partition.topic_id)
            if plan is not None:
                plan.run()
                future.mark_synced(plan)
            loop.disk.sync_directory(storage.path)
            return future

        return await loop.disk.offload(open_it)

    async def copy(self, move: Move, future: Log) -> None:
        """Copy to the end of the log, and sync the copy."""
        unsynced = 0
        while move.lag():
            while self._quota.is_exceeded:
                await self._loop.clock.sleep_ms(THROTTLE_MS)
            await self._loop.disk.wait_dirty_budget()
            copied = await self.copy_chunk(move, future)
            self._quota.record(copied)
            unsynced += copied
            if unsynced >= SYNC_BYTES:
                await self.sync(future)
                unsynced = 0
        await self.sync(future)

    async def copy_chunk(self, move: Move, future: Log) -> int:
        """Copy the next piece and return its size in bytes. After a truncation the log is copied from its start."""
        source = source_of(move)
        clock, disk = self._loop.clock, self._loop.disk
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

    async def sync(self, future: Log) -> None:
        """Put all of the copy on the device."""
        plan = future.files_to_sync()
        if plan is not None:
            await self._loop.disk.offload(plan.run)
            future.mark_synced(plan)

    async def save_start(self, move: Move) -> None:
        """Write the log start, and with it the high watermark, into the target's checkpoints."""
        checkpoints, partition, target = self._checkpoints, move.partition, move.target
        key, start = (partition.topic, partition.index), source_of(move).log_start_offset
        if move.saved_start != start:
            target.log_starts[key], target.high_watermarks[key] = start, partition.high_watermark
            await checkpoints.write_log_starts_of(target)
            await checkpoints.write_high_watermarks_of(target)
            move.saved_start = start


def source_of(move: Move) -> Log:
    """The log that is copied. MoveGivenUp if there is none any more."""
    partition = move.partition
    if partition.log is None or partition.is_removed or partition.is_offline or not move.target.is_online:
        raise MoveGivenUp
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
