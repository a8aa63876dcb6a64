"""ReplicaManager: all replicas that this broker hosts, where their parts meet, and the work at the end of a pass.

Order of a node's life: `open_directories` (locks, meta.properties, clean-shutdown files) → registration → `run` in the
background → `load(image)` at the first publish → `apply_delta` at every later one → `shutdown` after `run` has ended.
Source: kraft-spec C.2, C.3; broker-spec 2.5, 2.8, 2.11.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
import trio

from kraft.broker.node.alter_partition import AlterPartitionQueue
from kraft.broker.node.append_budget import AppendBudget
from kraft.broker.node.awaited_roles import AwaitedRoles
from kraft.broker.node.checkpoint_writing import CheckpointWriter
from kraft.broker.node.cleaning import LogCleaner
from kraft.broker.node.cleaning_run import RoundRunner
from kraft.broker.node.damaged_logs import DamagedLogs
from kraft.broker.node.directory_assignments import DirectoryAssignments
from kraft.broker.node.directory_closing import close_directory
from kraft.broker.node.disk_failures import DiskFailures
from kraft.broker.node.fetch_sessions import FetchSessionCache
from kraft.broker.node.fetcher import FetcherSettings, LeaderFetcher
from kraft.broker.node.fetchers import Fetchers
from kraft.broker.node.file_removal import FileRemoval
from kraft.broker.node.followed_partition import Following
from kraft.broker.node.found_folders import FoundFolders
from kraft.broker.node.leaders import Leaders
from kraft.broker.node.log_cutting import LogCutter
from kraft.broker.node.log_directories import NO_BROKER_EPOCH, LogDirectories
from kraft.broker.node.log_flushing import LogFlusher
from kraft.broker.node.log_maintenance import LogMaintenance
from kraft.broker.node.log_opening import LogContext, LogMaker, LogOpener
from kraft.broker.node.log_syncing import LogSyncer
from kraft.broker.node.loop import Loop
from kraft.broker.node.lost_replicas import LostReplicas
from kraft.broker.node.opened_logs import OpenedLogs
from kraft.broker.node.partition import Partition
from kraft.broker.node.partition_host import PartitionHost, Woken
from kraft.broker.node.purgatory import Deadlines
from kraft.broker.node.refused_reads import RefusedReads
from kraft.broker.node.replica_copy import ReplicaCopier
from kraft.broker.node.replica_index import ReplicaIndex
from kraft.broker.node.replica_moves import ReplicaMoves
from kraft.broker.node.replica_placement import ReplicaPlacement
from kraft.broker.node.replica_removal import ReplicaRemoval
from kraft.broker.node.replica_roles import ReplicaRoles
from kraft.broker.node.replica_swap import ReplicaSwap
from kraft.broker.node.replication_quota import ReplicationQuota
from kraft.broker.node.retiring import Retirement
from kraft.broker.node.role_turns import RoleTurns
from kraft.broker.serving.metrics.cleaner import register_cleaner_metrics
from kraft.broker.serving.metrics.logs import register_log_metrics
from kraft.broker.serving.metrics.replicas import register_fetcher_metrics, register_replica_metrics
from kraft.broker.serving.metrics.topics import TopicMetrics
from kraft.storage.handles import FileCache

if TYPE_CHECKING:
    from kraft.broker.node.dynamic_configs import DynamicConfigs
    from kraft.broker.node.gates import Gates
    from kraft.broker.node.metrics import Metrics
    from kraft.config import NodeConfig
    from kraft.image.delta import ImageDelta
    from kraft.image.image import MetadataImage
    from kraft.image.partitions import TopicImage
    from kraft.seam import Seam
    from kraft.wire.rpc import RpcMessage

log = structlog.get_logger("kraft.broker.replicas")

OPENINGS_AT_ONCE_MAX = 1
"""Produced batches that are opened off the loop at the same time: the largest may hold 150 MB for 30 ms."""
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaManager:
    """The data plane of one broker: a place where its parts are made and connected. It decides nothing itself.

    Handlers use `find` and `locate`, `clock`, `disk` and `deadlines` (which are the Loop's), and the parts by name.
    """

    def __init__(
        self,
        config: NodeConfig,
        seam: Seam,
        *,
        cluster_id: str,
        dynamic_configs: DynamicConfigs,
        metrics: Metrics,
        gates: Gates,
        newest_image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[RpcMessage], Awaitable[Any]],
        log_directory_failed: Callable[[str, UUID, str], None],
    ) -> None:
        """`newest_image()` is the newest published image; `broker_epoch()` that of this registration, -1 before it;
        `ask_controller` is `ControllerChannel.request`; `log_directory_failed(path, id, why)` reports it, or stops the
        node if none is left."""
        self.config = config
        self.clock, self.disk = seam.clock, seam.disk
        self.deadlines = Deadlines(seam.clock)
        self.loop = loop = Loop(
            seam.clock, seam.disk, seam.random, self.deadlines, self._start_task, seam.network.request_pass
        )
        self._cluster_id = cluster_id
        self._dynamic_configs = dynamic_configs
        self._broker_epoch = broker_epoch
        self._nursery: trio.Nursery | None = None
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """Broker epoch in the clean-shutdown files, for the registration; -1 if any was missing or they disagree."""
        node_id = config.node_id

        # what handlers use
        self.fetch_bytes_max = config.integer("fetch.max.bytes")
        self.selects_by_rack = config.string("replica.selector.class") == RACK_AWARE_SELECTOR
        self.woken: dict[Woken, None] = {}
        self.openings = trio.CapacityLimiter(OPENINGS_AT_ONCE_MAX)
        self.fetch_sessions = FetchSessionCache(
            config.integer("max.incremental.fetch.session.cache.slots"), seam.random.stream("fetch sessions")
        )
        self.leader_quota = ReplicationQuota(config, seam.clock, "leader.replication.throttled.rate")
        self.follower_quota = ReplicationQuota(config, seam.clock, "follower.replication.throttled.rate")
        for quota in (self.leader_quota, self.follower_quota):
            dynamic_configs.on_change(quota.configure)

        # what is hosted
        self.directories = LogDirectories(config, seam.disk)
        self.hosted = ReplicaIndex(self.directories, newest_image)
        self.find, self.locate = self.hosted.find, self.hosted.locate
        self.host = PartitionHost(seam.clock, node_id, config.integer("replica.lag.time.max.ms"))
        self._topic_metrics = TopicMetrics(metrics)

        # the controller
        self.alter_partition = AlterPartitionQueue(loop, node_id, broker_epoch, ask_controller)
        self.assignments = DirectoryAssignments(loop, node_id, broker_epoch, ask_controller)

        # failures
        self.fetchers = Fetchers(loop, node_id, self._make_fetcher)
        lost = LostReplicas(self.assignments, self.fetchers.stop)
        self.failures = failures = DiskFailures(
            loop,
            self.directories,
            lost,
            stop_moves=lambda directory: self.moves.directory_failed(directory),
            report=lambda directory, error: log_directory_failed(directory.path, directory.directory_id, str(error)),
        )
        self.damaged_logs = DamagedLogs(loop, node_id, lambda: self.host.eligible, lost.lose)
        self.refused_reads = RefusedReads(loop, self.damaged_logs, failures)

        # logs
        self.file_cache = FileCache(config.integer("kraft.log.open.files.max"))
        self._context = LogContext(self.file_cache, config.integer("producer.id.expiration.ms"))
        self.removal = FileRemoval(loop, failures.disk_failed)
        self.checkpoints = CheckpointWriter(loop, self.directories, failures.directory_failed)
        self.retirement = Retirement(
            loop, config.integer("log.segment.delete.delay.ms"), failures.directory_failed, self.removal
        )
        self._found = FoundFolders(loop, node_id, self.directories, self.retirement, failures.directory_failed)
        self.opener = LogOpener(
            LogMaker(loop, self._context, self.checkpoints, self.retirement.wait_for).open,
            opened=lambda partition, opened: self._opened_logs.take(partition, opened),
            damaged=self.damaged_logs.end,
            directory_failed=failures.directory_failed,
        )
        self.syncer = LogSyncer(loop, self.file_cache, failures.disk_failed)
        self._flusher = LogFlusher(
            loop,
            config.integer("log.flush.scheduler.interval.ms"),
            self.hosted.with_open_logs,
            self.syncer.want_full_sync,
        )
        self.maintenance = LogMaintenance(loop, self.hosted, failures, self.removal, self.opener.want_soon)
        self.cleaner = LogCleaner(
            loop,
            dynamic_configs,
            RoundRunner(loop, self.removal, gates.counting),
            open_logs=self.hosted.with_open_logs,
            failures=failures,
            damaged_logs=self.damaged_logs,
            write_offsets=self.checkpoints.write_cleaner_offsets_of,
        )
        self.budget = AppendBudget(loop, self.hosted.with_open_logs)

        # moves between directories
        move_quota = ReplicationQuota(
            config,
            seam.clock,
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "alter.log.dirs.replication.quota.window.size.seconds",
            "alter.log.dirs.replication.quota.window.num",
        )
        dynamic_configs.on_change(move_quota.configure)
        copier = ReplicaCopier(loop, self._context, move_quota, self.checkpoints)
        self.moves = ReplicaMoves(
            loop,
            self.directories,
            copier,
            ReplicaSwap(loop, copier, self.fetchers, self.removal, failures.disk_failed_at),
            self.assignments,
            locate=self.locate,
            disk_failed_at=failures.disk_failed_at,
            discard_copy=self.retirement.discard_copy,
        )

        # following
        self._leaders = Leaders(config, seam.network, newest_image, gates.memory)
        cutter = LogCutter(loop, self.checkpoints, damaged=self.damaged_logs.end, disk_failed=failures.disk_failed)
        self._fetcher_settings = FetcherSettings.of(config)
        self._following = Following(node_id, self.follower_quota, failures, cutter, self.fetchers.begin)

        # roles
        self.replica_removal = ReplicaRemoval(
            self.hosted,
            self.fetchers,
            give_up_move=self.moves.give_up,
            retire=self.retirement.retire,
            forget_topic=self._topic_metrics.forget,
        )
        self.roles = ReplicaRoles(
            node_id,
            self.hosted,
            self.fetchers,
            ReplicaPlacement(node_id, self.directories, self.assignments, lost, self.opener.want_soon),
            new_replica=self._new_replica,
            remove=self.replica_removal.remove,
        )
        self.role_turns = RoleTurns(
            loop,
            node_id,
            newest_image(),
            self.hosted,
            self.roles,
            take_brokers=self.host.take_brokers,
            redirect=self.fetchers.redirect,
            configure=self._configure,
            after_turn=self._end_turn,
        )
        self.awaited_roles = AwaitedRoles(node_id, lambda: self.role_turns.image, lambda: self.role_turns.is_over)
        self._opened_logs = OpenedLogs(
            loop,
            self._context,
            self.assignments,
            self.fetchers,
            begin_move_again=self.moves.begin_again,
            want_sync=self.syncer.want_sync,
        )

        host = self.host
        host.met_damage = self.damaged_logs.met
        host.propose_isr = self.alter_partition.propose
        host.may_write = self.budget.may_write
        host.want_sync, host.want_ready = self.syncer.want_sync, self.syncer.want_ready
        host.want_open = self.opener.want_urgently

        register_cleaner_metrics(metrics, self.cleaner.state, self.directories.all, seam.clock)
        register_replica_metrics(metrics, self.hosted, self.alter_partition, self.fetch_sessions, self.deadlines)
        register_fetcher_metrics(metrics, self.fetchers, self._leaders)
        register_log_metrics(
            metrics,
            self.directories,
            open_logs=self.hosted.with_open_logs,
            waiting_logs=self.opener.waiting,
            flush_ms=self.syncer.flush_ms,
        )
        seam.network.at_end_of_pass(self._end_pass)

    # life

    async def open_directories(self) -> None:
        """Lock every log directory, check its meta.properties, note and delete its clean-shutdown file. Before
        registration; fills `directory_ids` and `previous_broker_epoch`. A directory whose device refuses goes offline.
        DirectoryInUse, ForeignDirectory; DiskError if none is left."""
        failed = await self.disk.offload(self.directories.open, self._cluster_id)
        for directory, error in failed:
            log.error("log directory is offline", directory=directory.path, error=str(error))
        if not self.directories.online:
            raise failed[0][1]
        self.previous_broker_epoch = self.directories.previous_broker_epoch

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The background of the data plane (fetchers, ISR, checkpoints, retention, deadlines) until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                nursery.start_soon(self.deadlines.run)
                nursery.start_soon(self.alter_partition.run)
                nursery.start_soon(self.assignments.run)
                nursery.start_soon(self._check_lag_forever)
                for _ in range(self.config.integer("num.recovery.threads.per.data.dir") * len(self.directories.all)):
                    nursery.start_soon(self.opener.serve)
                for task, interval in (
                    (self.checkpoints.high_watermarks_forever, "replica.high.watermark.checkpoint.interval.ms"),
                    (self.checkpoints.recovery_points_forever, "log.flush.offset.checkpoint.interval.ms"),
                    (self.maintenance.retention_forever, "log.retention.check.interval.ms"),
                    (self.maintenance.producers_forever, "producer.id.expiration.check.interval.ms"),
                ):
                    nursery.start_soon(task, self.config.integer(interval))
                nursery.start_soon(self._flusher.run)
                nursery.start_soon(self.cleaner.run)
                for fetcher in self.fetchers:
                    nursery.start_soon(fetcher.run)
                task_status.started()
                await trio.sleep_forever()
            finally:  # before the last task has ended: a closed nursery refuses what a pass may still want to start
                self._nursery = None

    async def load(self, image: MetadataImage) -> None:
        """First publish: set stray logs aside, take every role that `image` gives, and, after an unclean stop, recover
        all logs before this returns. `run` must be under way."""
        self.role_turns.begin(image)
        self._found.sort_out(image)
        await self.role_turns.load(image)
        if not all(directory.is_clean for directory in self.directories.online):
            await self.opener.wait_idle()
            await self.assignments.wait_settled()
        self.loop.request_pass()

    def apply_delta(
        self, old: MetadataImage, new: MetadataImage, delta: ImageDelta, then: Callable[[], None] = lambda: None
    ) -> None:
        """Take the roles of a newer image: deletes, then leaders, then followers; call `then` when that is done. Never
        suspends: what does not fit into one turn is done in others, in order, each role by the newest image of its
        time; opening logs and fetching go on in the tasks of `run`."""
        self.role_turns.apply(old, new, delta, then)

    async def shutdown(self, *, clean: bool = True) -> None:
        """After `run` was cancelled: sync and close all logs, write checkpoints and, last, the clean-shutdown files
        with the broker epoch. Not `clean`: give the locks back, and if this life was never registered, and so has
        opened no log, the clean-shutdown file of the life before."""
        broker_epoch = self._broker_epoch()
        for directory in self.directories.online:
            if clean:
                await close_directory(self.disk, directory, broker_epoch)
            elif broker_epoch == NO_BROKER_EPOCH:
                await self.disk.offload(directory.leave_as_found)
            if directory.storage is not None:
                directory.storage.close()

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """Ids of the log directories that are online."""
        return self.directories.ids

    # what parts call

    def _start_task(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(function, *arguments)

    def _end_pass(self) -> None:
        """The end of a driver's pass: settle what changed, then look at the fetches that this woke."""
        host = self.host
        while host.changed:
            changed, host.changed = host.changed, {}
            for partition in changed:
                partition.settle()
        if self.woken:
            woken, self.woken = self.woken, {}
            for fetch in woken:
                fetch.look_again()
        self.syncer.start_wanted()

    def _end_turn(self) -> None:
        self.awaited_roles.turns_over()
        self.fetchers.nudge()
        self.loop.request_pass()

    def _make_fetcher(self, leader_id: int) -> LeaderFetcher:
        return LeaderFetcher(
            self.loop, leader_id, self._fetcher_settings, self._leaders, self._following, self._broker_epoch
        )

    def _new_replica(self, topic: TopicImage, index: int) -> Partition:
        configs, meters = self._dynamic_configs.topic(topic.name), self._topic_metrics.of(topic.name)
        partition = Partition(self.host, topic.name, topic.topic_id, index, configs, meters)
        self.hosted.host(partition)
        self.awaited_roles.hosted(partition)
        return partition

    def _configure(self, partition: Partition) -> None:
        if partition.is_removed:
            return
        partition.configure(self._dynamic_configs.topic(partition.topic))
        if partition.log is not None:
            partition.log.update_config(self._context.config_of(partition))

    async def _check_lag_forever(self) -> None:
        """Drop members that lag from in-sync sets, every half of replica.lag.time.max.ms."""
        while True:
            await self.clock.sleep_ms(self.host.lag_ms_max / 2)
            self.role_turns.check_lag()
