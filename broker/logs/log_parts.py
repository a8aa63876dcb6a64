"""LogParts: create and connect the objects that open, sync, clean, move and remove the logs of a broker.

LogParts makes no decisions itself. `start` starts the tasks of these objects.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

import trio

from kraft.broker.logs.append_budget import AppendBudget
from kraft.broker.logs.checkpoint_writing import CheckpointWriter
from kraft.broker.logs.cleaning.cleaning_round import RoundRunner
from kraft.broker.logs.cleaning.log_cleaner import LogCleaner
from kraft.broker.logs.damaged_logs import DamagedLogs
from kraft.broker.logs.device_sync import LogSyncer
from kraft.broker.logs.disk_failures import DiskFailures
from kraft.broker.logs.file_removal import FileRemoval
from kraft.broker.logs.flushing import LogFlusher
from kraft.broker.logs.folder_retirement import FolderRetirement
from kraft.broker.logs.found_folders import FoundFolders
from kraft.broker.logs.maintenance import LogMaintenance
from kraft.broker.logs.moves import ReplicaMoves
from kraft.broker.logs.opened_logs import OpenedLogs
from kraft.broker.logs.opening_queue import LogContext, LogMaker, LogOpener
from kraft.broker.logs.repeated_read_checks import RepeatedReadChecks
from kraft.broker.logs.replica_copy import ReplicaCopier
from kraft.broker.logs.replica_swap import ReplicaSwap
from kraft.broker.partition.replication_quota import ReplicationQuota
from kraft.storage.handles import FileCache

if TYPE_CHECKING:
    from uuid import UUID

    from kraft.broker.logs.directory_assignments import DirectoryAssignments
    from kraft.broker.logs.lost_replicas import LostReplicas
    from kraft.broker.partition.log_directories import LogDirectories
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.replica_index import ReplicaIndex
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.loop import Loop
    from kraft.config import NodeConfig


class LogParts:
    """Container for the objects that work on logs."""

    def __init__(
        self,
        loop: Loop,
        config: NodeConfig,
        directories: LogDirectories,
        hosted: ReplicaIndex,
        assignments: DirectoryAssignments,
        lost: LostReplicas,
        *,
        stop_fetching: Callable[[Partition], None],
        begin_fetching: Callable[[Partition], None],
        dynamic_configs: DynamicConfigs,
        gates: Gates,
        active_brokers: Callable[[], Container[int]],
        log_directory_failed: Callable[[str, UUID, str], None],
    ) -> None:
        self._config = config
        self._directories = directories
        self.failures = failures = DiskFailures(
            loop,
            directories,
            lost,
            stop_moves=lambda directory: self.moves.directory_failed(directory),
            report=lambda directory, error: log_directory_failed(directory.path, directory.directory_id, str(error)),
        )
        self.damaged_logs = DamagedLogs(loop, config.node_id, active_brokers, lost.lose)
        self.repeated_read_checks = RepeatedReadChecks(loop, self.damaged_logs, failures)
        self.file_cache = FileCache(config.integer("kraft.log.open.files.max"))
        self.context = LogContext(self.file_cache, config.integer("producer.id.expiration.ms"))
        self.removal = FileRemoval(loop, failures.disk_failed)
        self.checkpoints = CheckpointWriter(loop, directories, failures.directory_failed)
        self.retirement = FolderRetirement(
            loop, config.integer("log.segment.delete.delay.ms"), failures.directory_failed, self.removal
        )
        self.found = FoundFolders(loop, config.node_id, directories, self.retirement, failures.directory_failed)
        self.opener = LogOpener(
            LogMaker(loop, self.context, self.checkpoints, self.retirement.wait_for).open,
            opened=lambda partition, opened: self._opened.take(partition, opened),
            damaged=self.damaged_logs.take_offline,
            directory_failed=failures.directory_failed,
        )
        self.syncer = LogSyncer(loop, self.file_cache, failures.disk_failed)
        self._flusher = LogFlusher(
            loop,
            config.integer("log.flush.scheduler.interval.ms"),
            hosted.with_open_logs,
            self.syncer.request_full_sync,
        )
        self.maintenance = LogMaintenance(loop, hosted, failures, self.removal, self.opener.request_soon)
        self.cleaner = LogCleaner(
            loop,
            dynamic_configs,
            RoundRunner(loop, self.removal, gates.counting),
            open_logs=hosted.with_open_logs,
            failures=failures,
            damaged_logs=self.damaged_logs,
            write_offsets=self.checkpoints.write_cleaner_offsets_of,
        )
        self.budget = AppendBudget(loop, hosted.with_open_logs)
        move_quota = ReplicationQuota(
            config,
            loop.clock,
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "alter.log.dirs.replication.quota.window.size.seconds",
            "alter.log.dirs.replication.quota.window.num",
        )
        dynamic_configs.on_change(move_quota.configure)
        copier = ReplicaCopier(loop, self.context, move_quota, self.checkpoints)
        self.moves = ReplicaMoves(
            loop,
            directories,
            copier,
            ReplicaSwap(
                loop,
                copier,
                self.removal,
                stop_fetching=stop_fetching,
                begin_fetching=begin_fetching,
                disk_failed_at=failures.disk_failed_at,
            ),
            assignments,
            locate=hosted.locate,
            disk_failed_at=failures.disk_failed_at,
            discard_copy=self.retirement.discard_copy,
        )
        self._opened = OpenedLogs(
            loop,
            self.context,
            assignments,
            begin_fetching=begin_fetching,
            resume_move=self.moves.resume_interrupted,
            request_sync=self.syncer.request_sync,
        )

    def start(self, nursery: trio.Nursery) -> None:
        """Start the tasks of all parts."""
        config = self._config
        for _ in range(config.integer("num.recovery.threads.per.data.dir") * len(self._directories.all)):
            nursery.start_soon(self.opener.serve)
        for task, interval in (
            (self.checkpoints.high_watermarks_forever, "replica.high.watermark.checkpoint.interval.ms"),
            (self.checkpoints.recovery_points_forever, "log.flush.offset.checkpoint.interval.ms"),
            (self.maintenance.retention_forever, "log.retention.check.interval.ms"),
            (self.maintenance.producers_forever, "producer.id.expiration.check.interval.ms"),
        ):
            nursery.start_soon(task, config.integer(interval))
        nursery.start_soon(self._flusher.run)
        nursery.start_soon(self.cleaner.run)
