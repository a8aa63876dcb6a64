"""OpenedLogs: pass an opened log to its partition, and start fetching if the replica is a follower."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from kraft.broker.logs.directory_assignments import DirectoryAssignments
    from kraft.broker.logs.opening_queue import LogContext
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.storage.log import Log

log = structlog.get_logger("kraft.broker.replicas")


class OpenedLogs:
    """Receives opened logs. `take` does not suspend."""

    def __init__(
        self,
        loop: Loop,
        context: LogContext,
        assignments: DirectoryAssignments,
        *,
        begin_fetching: Callable[[Partition], None],
        resume_move: Callable[[Partition], None],
        request_sync: Callable[[Partition], None],
    ) -> None:
        """`resume_move(partition)` restarts a move that an earlier incarnation began."""
        self._loop = loop
        self._context = context
        self._assignments = assignments
        self._begin_fetching = begin_fetching
        self._begin_move_again = resume_move
        self._want_sync = request_sync

    def take(self, partition: Partition, opened: Log) -> None:
        """Pass a log to its partition, and start fetching if the partition is a follower. Close the log if the replica
        was removed or its directory went offline meanwhile."""
        directory = partition.directory
        if partition.is_removed or directory is None or not directory.is_online:
            opened.release()
            return
        report = opened.recovery_report
        if report.bytes_cut:
            log.warning(
                "log was truncated at its end", topic=partition.topic, partition=partition.index, report=str(report)
            )
        self._assignments.report(partition, directory.directory_id)
        self._begin_move_again(partition)
        # the settings may have changed while the log was being opened
        opened.update_config(self._context.config_of(partition))
        partition.opened(opened, directory.high_watermarks.get((partition.topic, partition.index), 0))
        if opened.unsynced:
            self._want_sync(partition)
        self._begin_fetching(partition)
        self._loop.request_pass()
