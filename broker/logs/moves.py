"""ReplicaMoves: move replicas between the log directories of this broker, as AlterReplicaLogDirs requests (KIP-113,
KIP-858).

A move copies the log into a folder marked `-future` in the other directory, without the network, while the replica
continues to lead or follow. When the copy has caught up, the broker reports the new directory to the controller. When
the metadata name that directory, appends wait for a moment while the last records are copied and synced. Then the
folders are swapped.

Invariants:
- when a move is cancelled, by request, by deletion or by a failing directory, the replica stays in its directory, and
  the broker reports this directory to the controller;
- of several requests for a replica, the last one counts.

A move that the end of the process interrupted starts again at the next start, from the folders in the directories
(`found_folders`). `replica_copy` copies the log, `replica_swap` swaps the folders.
Source: KIP-113, KIP-858, Kafka's ReplicaAlterLogDirsThread, docs/decisions/17-moves-between-directories.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from kraft.broker.logs.replica_copy import Move, MoveAbandoned, source_of
from kraft.broker.partition.log_waits import wait_open
from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.append import AppendRefused
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.logs.directory_assignments import DirectoryAssignments
    from kraft.broker.logs.replica_copy import ReplicaCopier
    from kraft.broker.logs.replica_swap import ReplicaSwap
    from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop

log = structlog.get_logger("kraft.broker.logs")

IDLE_MS = 20
"""Milliseconds between two checks of a copy that has caught up. A check looks for new records, and whether the metadata
name the target directory."""


class ReplicaMoves:
    """The current and queued moves. `alter`, `give_up` and `into` do not suspend."""

    def __init__(
        self,
        loop: Loop,
        directories: LogDirectories,
        copier: ReplicaCopier,
        swap: ReplicaSwap,
        assignments: DirectoryAssignments,
        *,
        locate: Callable[[str, int], Partition | ErrorCode],
        disk_failed_at: Callable[[DiskError, HostedDirectory], None],
        discard_copy: Callable[[HostedDirectory, str], None],
    ) -> None:
        """`discard_copy(directory, path)` marks the folder of a copy for removal."""
        self._loop = loop
        self._directories = directories
        self._copier = copier
        self._swap = swap
        self._assignments = assignments
        self._locate = locate
        self._disk_failed_at = disk_failed_at
        self._discard_copy = discard_copy
        self._moves: dict[Partition, Move] = {}
        self._targets: dict[Partition, HostedDirectory] = {}
        """Replica → target directory of its queued move."""

    def into(self, directory: HostedDirectory) -> list[Move]:
        """Return the moves into this directory whose copying has begun."""
        return [move for move in self._moves.values() if move.target is directory and move.future is not None]

    # requesting and cancelling moves

    def alter(self, topic: str, index: int, path: str) -> ErrorCode:
        """Move this replica into the directory `path`. If the replica is in that directory already, cancel its move to
        another directory. If this broker does not host the partition yet, it will be created in `path`; for such a
        partition, return REPLICA_NOT_AVAILABLE."""
        directories = self._directories
        target = next((one for one in directories.all if one.path == path), None)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not target.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        found = self._locate(topic, index)
        if found is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            directories.preferred[topic, index] = target
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if isinstance(found, ErrorCode):
            return found
        self._queue_move(found, target)
        return ErrorCode.NONE

    def _queue_move(self, partition: Partition, target: HostedDirectory) -> None:
        """Queue the move of a replica, to run after the replica's current move."""
        move = self._moves.get(partition)
        bound_for = partition.directory if move is None or move.scope.cancel_called else move.target
        if self._targets.get(partition, bound_for) is target:
            return
        is_idle = move is None and partition not in self._targets
        self._targets[partition] = target
        if move is not None:
            move.scope.cancel()
        elif is_idle:
            self._loop.start_task(self._carry_out, partition)

    def give_up(self, partition: Partition) -> None:
        """Cancel the moves of a replica."""
        self._targets.pop(partition, None)
        move = self._moves.get(partition)
        if move is not None:
            move.scope.cancel()

    def directory_failed(self, directory: HostedDirectory) -> None:
        """Cancel the moves into this directory and the moves out of it."""
        for partition, move in self._moves.items():
            if move.target is directory or partition.directory is directory:
                move.scope.cancel()

    def resume_interrupted(self, partition: Partition) -> None:
        """Restart a replica's move that the end of the last incarnation interrupted, now that the replica is hosted
        again."""
        target = self._directories.interrupted.pop((partition.topic, partition.index), None)
        if target is not None:
            self._queue_move(partition, target)

    # carrying out moves

    async def _carry_out(self, partition: Partition) -> None:
        """Carry out the queued moves of a replica, one after the other."""
        while (target := self._targets.pop(partition, None)) is not None:
            if partition.is_removed or partition.is_offline or not target.is_online or partition.directory is target:
                continue
            move = self._moves[partition] = Move(partition, target)
            log.info("moving replica", topic=partition.topic, partition=partition.index, target=target.path)
            is_done, goes_on_later = False, True
            try:
                with move.scope:
                    is_done = await self._move(move)
                goes_on_later = False  # in any other case the process is stopping
            finally:
                del self._moves[partition]
                if not is_done:
                    self._abandon(move, goes_on_later=goes_on_later)

    async def _move(self, move: Move) -> bool:
        """Carry out one move. Return True if the replica is then in its new directory."""
        partition, copier = move.partition, self._copier
        await wait_open(partition)
        try:
            move.future = future = await copier.open_copy(move)
            await copier.copy(move, future)
            while not (self._is_assigned(move) and await self._swap.swap(move, future)):
                await self._loop.clock.sleep_ms(IDLE_MS)
                await copier.copy(move, future)
        except MoveAbandoned:
            return False
        except DiskError as error:
            self._disk_failed_at(error, move.target)
            return False
        except (StorageCorrupt, AppendRefused) as problem:
            log.error("replica cannot be moved", topic=partition.topic, partition=partition.index, error=str(problem))
            return False
        log.info("replica has moved", topic=partition.topic, partition=partition.index, directory=move.target.path)
        return True

    def _is_assigned(self, move: Move) -> bool:
        """Return whether the metadata name the target directory. If they do not, report the target to the
        controller."""
        source_of(move)
        assignments, target_id = self._assignments, move.target.directory_id
        assignments.report(move.partition, target_id)
        return assignments.is_known(move.partition, target_id)

    def _abandon(self, move: Move, *, goes_on_later: bool) -> None:
        """Remove the copy. Report the replica's directory to the controller if the controller may assume that the
        replica is in the target. With `goes_on_later`, keep the copy: the next start continues the move from it."""
        partition, future = move.partition, move.future
        if future is not None and future is not partition.log:
            future.release()
            move.target.forget(partition.topic, partition.index)
            if move.target.is_online and not goes_on_later:
                self._discard_copy(move.target, future.directory)
        if not partition.is_removed and not partition.is_offline and partition.directory is not None:
            self._assignments.report(partition, partition.directory.directory_id)
            self._swap.resume_appends(partition)
