"""Moving replicas between the log directories of this broker: AlterReplicaLogDirs (KIP-113, KIP-858).

A move copies the log into a folder marked `-future` in the other directory, without the network, while the replica
continues to lead or follow. When the copy has caught up, the broker reports the new directory to the controller. When
the metadata name that directory, appends wait for a moment, the rest is copied and synced, and the folders change
places.

Invariants:
- a move that is given up, by request, by deletion or by a failing directory, leaves the replica where it was, and the
  broker reports that to the controller;
- of several requests for a replica the last one counts.

A move that was under way when the process ended starts again at the next start, from what is in the directories
(`found_folders`). How the log is copied, and how the folders change places: `replica_copy`, `replica_swap`.
Source: KIP-113, KIP-858, Kafka's ReplicaAlterLogDirsThread, docs/decisions/17-moves-between-directories.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from kraft.broker.logs.replica_copy import Move, MoveGivenUp, source_of
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
"""How often a copy that has caught up checks for new records, and whether the metadata name the target."""


class ReplicaMoves:
    """The moves under way. `alter`, `give_up` and `into` are plain calls."""

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
        self._asked: dict[Partition, HostedDirectory] = {}
        """Where replicas are to go next, if their moves have not begun."""

    def into(self, directory: HostedDirectory) -> list[Move]:
        """The moves into this directory whose copy has begun."""
        return [move for move in self._moves.values() if move.target is directory and move.future is not None]

    # asking

    def alter(self, topic: str, index: int, path: str) -> ErrorCode:
        """Move this replica into the directory `path`. If it is there already, cancel its move elsewhere. One of a
        known partition that is not hosted yet will be created there: the answer is REPLICA_NOT_AVAILABLE."""
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
        self._ask(found, target)
        return ErrorCode.NONE

    def _ask(self, partition: Partition, target: HostedDirectory) -> None:
        """Queue the move of a replica behind the one that is under way."""
        move = self._moves.get(partition)
        bound_for = partition.directory if move is None or move.scope.cancel_called else move.target
        if self._asked.get(partition, bound_for) is target:
            return
        is_idle = move is None and partition not in self._asked
        self._asked[partition] = target
        if move is not None:
            move.scope.cancel()
        elif is_idle:
            self._loop.start_task(self._carry_out, partition)

    def give_up(self, partition: Partition) -> None:
        """Cancel the moves of a replica."""
        self._asked.pop(partition, None)
        move = self._moves.get(partition)
        if move is not None:
            move.scope.cancel()

    def directory_failed(self, directory: HostedDirectory) -> None:
        """Cancel the moves into this directory and out of it."""
        for partition, move in self._moves.items():
            if move.target is directory or partition.directory is directory:
                move.scope.cancel()

    def begin_again(self, partition: Partition) -> None:
        """Restart a move that was interrupted by the end of the last life: the replica is hosted again."""
        target = self._directories.interrupted.pop((partition.topic, partition.index), None)
        if target is not None:
            self._ask(partition, target)

    # moving

    async def _carry_out(self, partition: Partition) -> None:
        """Carry out the queued moves of a replica, one after the other."""
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
        partition, copier = move.partition, self._copier
        await wait_open(partition)
        try:
            move.future = future = await copier.open_copy(move)
            await copier.copy(move, future)
            while not (self._is_assigned(move) and await self._swap.swap(move, future)):
                await self._loop.clock.sleep_ms(IDLE_MS)
                await copier.copy(move, future)
        except MoveGivenUp:
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
        """Whether the metadata name the target; the controller is told so if not."""
        source_of(move)
        assignments, target_id = self._assignments, move.target.directory_id
        assignments.report(move.partition, target_id)
        return assignments.is_known(move.partition, target_id)

    def _abandon(self, move: Move, *, goes_on_later: bool) -> None:
        """Take the copy away, and tell the controller where the replica is, if it may think otherwise. `goes_on_later`:
        the next start begins anew by the copy that it finds."""
        partition, future = move.partition, move.future
        if future is not None and future is not partition.log:
            future.release()
            move.target.forget(partition.topic, partition.index)
            if move.target.is_online and not goes_on_later:
                self._discard_copy(move.target, future.directory)
        if not partition.is_removed and not partition.is_offline and partition.directory is not None:
            self._assignments.report(partition, partition.directory.directory_id)
            self._swap.go_on(partition)
