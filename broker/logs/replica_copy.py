"""ReplicaCopier: copy a replica's log into a folder of another log directory while the replica stays in use.

Invariants: if the log was truncated meanwhile, it is copied again from its beginning. The log start offset is in the
target's checkpoint before the copy becomes the replica, so a restart does not bring deleted records back.
Source: KIP-113.
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
"""Number of copied bytes after which the copy is synced, so that the last sync of the move is short."""
THROTTLE_MS = 100


class MoveAbandoned(Exception):
    """Raised when the move was cancelled or failed. The replica stays in its directory."""


class Move:
    """The move of one replica to the directory `target`. `future` is the log of the copy, once it is open."""

    def __init__(self, partition: Partition, target: HostedDirectory) -> None:
        self.partition = partition
        self.target = target
        self.future: Log | None = None
        self.truncations = 0 if partition.log is None else partition.log.truncations
        """Truncation count of the source log at the time of the last copied piece."""
        self.saved_start = -1
        """Log start offset in the target's checkpoint."""
        self.scope = trio.CancelScope()

    def lag(self) -> int:
        """Number of offsets by which the copy is behind the log; at least 1 if the log was truncated after the last
        copied piece."""
        source = self.partition.log
        if source is None:
            return 0
        copied = source.log_start_offset if self.future is None else self.future.log_end_offset
        return max(abs(source.log_end_offset - copied), int(source.truncations != self.truncations))


class ReplicaCopier:
    """Copies the logs of any number of moves, each in its own task."""

    def __init__(self, loop: Loop, context: LogContext, quota: ReplicationQuota, checkpoints: CheckpointWriter) -> None:
        """`quota` limits the rate of copying, for all moves together."""
        self._loop = loop
        self._context = context
        self._quota = quota
        self._checkpoints = checkpoints

    async def open_copy(self, move: Move) -> Log:
        """Create the folder of the copy, empty. Raises MoveAbandoned, DiskError."""
        loop, context, partition = self._loop, self._context, move.partition
        move.target.forget(partition.topic, partition.index)  # offsets that an earlier log of this name may have left
        await self._checkpoints.drop_forgotten(move.target, partition.topic, partition.index)
        storage = move.target.storage
        if storage is None:
            raise MoveAbandoned
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
        """Copy up to the end of the log, then sync the copy."""
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
        """Copy the next piece and return its size in bytes. After a truncation, start again at the beginning of the
        log."""
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
        """Sync the whole copy to the device."""
        plan = future.files_to_sync()
        if plan is not None:
            await self._loop.disk.offload(plan.run)
            future.mark_synced(plan)

    async def save_start(self, move: Move) -> None:
        """Write the log start offset and the high watermark into the target's checkpoints."""
        checkpoints, partition, target = self._checkpoints, move.partition, move.target
        key, start = (partition.topic, partition.index), source_of(move).log_start_offset
        if move.saved_start != start:
            target.log_starts[key], target.high_watermarks[key] = start, partition.high_watermark
            await checkpoints.write_log_starts_of(target)
            await checkpoints.write_high_watermarks_of(target)
            move.saved_start = start


def source_of(move: Move) -> Log:
    """Return the log to copy. Raises MoveAbandoned if it is no longer open."""
    partition = move.partition
    if partition.log is None or partition.is_removed or partition.is_offline or not move.target.is_online:
        raise MoveAbandoned
    return partition.log


def _append(future: Log, data: bytes, now_ms: int) -> None:
    """Append to the copy. *Blocking*; no other code uses the copy yet."""
    while True:
        try:
            future.append_as_follower(data, now_ms=now_ms)
            return
        except ColdRead as cold:
            cold.warm()
            cold.adopt()
