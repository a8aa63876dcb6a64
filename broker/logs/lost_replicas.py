"""LostReplicas: take a replica offline when its log can no longer be used, and report it to the controller as lost.

Invariant: a partition is removed from its fetcher before it goes offline, so a late fetch response has no effect on it.
Source: KIP-858.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.image.registrations import LOST_DIRECTORY

if TYPE_CHECKING:
    from kraft.broker.logs.directory_assignments import DirectoryAssignments
    from kraft.broker.partition.log_directories import HostedDirectory
    from kraft.broker.partition.partition import Partition


class LostReplicas:
    """Takes replicas offline and reports them as lost. No method is a coroutine."""

    def __init__(self, assignments: DirectoryAssignments, stop_fetching: Callable[[Partition], None]) -> None:
        self._assignments = assignments
        self._stop_fetching = stop_fetching

    def lose(self, partition: Partition) -> None:
        """Take the replica offline and report it as lost."""
        self._take_offline(partition)
        self.report(partition)

    def lose_all(self, directory: HostedDirectory) -> None:
        """Take every replica of a directory offline. The controller is notified of the offline directory as a whole.
        Replicas that were being moved are also reported one by one, because the controller has assigned them to another
        directory, or soon will."""
        for partition in list(directory.partitions):
            if not self._assignments.is_known(partition, directory.directory_id):
                self.report(partition)
            self._take_offline(partition)

    def report(self, partition: Partition) -> None:
        """Report to the controller that the replica is in no online directory."""
        self._assignments.report(partition, LOST_DIRECTORY)

    def _take_offline(self, partition: Partition) -> None:
        self._stop_fetching(partition)
        opened = partition.log
        partition.failed()
        if opened is not None:
            opened.release()
