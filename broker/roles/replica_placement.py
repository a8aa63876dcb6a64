"""ReplicaPlacement: choose the log directory of a replica that is new on this broker, and whether its log must be
opened now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from kraft.image.partitions import NO_LEADER, PartitionState
from kraft.image.registrations import UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from kraft.broker.logs.directory_assignments import DirectoryAssignments
    from kraft.broker.logs.lost_replicas import LostReplicas
    from kraft.broker.partition.log_directories import LogDirectories
    from kraft.broker.partition.partition import Partition

log = structlog.get_logger("kraft.broker.replicas")


class ReplicaPlacement:
    """Places replicas in log directories and opens their logs. No method is a coroutine."""

    def __init__(
        self,
        node_id: int,
        directories: LogDirectories,
        assignments: DirectoryAssignments,
        lost: LostReplicas,
        open_soon: Callable[[Partition], None],
    ) -> None:
        self._node_id = node_id
        self._directories = directories
        self._assignments = assignments
        self._lost = lost
        self._open_soon = open_soon

    def place(self, partition: Partition, state: PartitionState, *, is_new: bool) -> None:
        """Assign a log directory to a replica that this broker did not host yet. The replica goes offline if it may be
        in an offline directory. `is_new`: it was assigned to this broker just now, so no directory has data of it."""
        topic, index = partition.topic, partition.index
        assigned = state.directory_of(self._node_id)
        directory = self._directories.place(topic, index, assigned, is_new=is_new)
        if directory is None:
            log.error("replica may be in a log directory that is offline", topic=topic, partition=index)
            partition.not_placed()
            if assigned in (None, UNASSIGNED_DIRECTORY, *self._directories.ids):
                # the controller does not know that the replica was in an offline directory
                self._lost.report(partition)
            return
        partition.placed(directory, is_unwritten=(topic, index) not in directory.held)
        directory.partitions.add(partition)

    def open_log_if_needed(self, partition: Partition) -> None:
        """Open the log of a replica whose role was applied, unless opening can wait.

        Opening can wait if the replica was never written. It can also wait if this broker follows no leader for the
        replica and nothing of the log must be recovered. Requests of followers and clients then open the log when they
        need it."""
        directory, state = partition.directory, partition.state
        if directory is None or state is None or partition.log is not None or partition.is_offline:
            return
        if partition.is_unwritten:
            self._assignments.report(partition, directory.directory_id)
        elif not (
            state.leader in (NO_LEADER, self._node_id)
            and directory.is_clean
            and self._assignments.is_known(partition, directory.directory_id)
            and (partition.topic, partition.index) not in self._directories.interrupted
        ):
            self._open_soon(partition)
