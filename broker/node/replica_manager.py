"""ReplicaManager: all replicas that this broker hosts, where their parts meet, and the work at the end of a pass.

Order of a node's life: `open_directories` (locks, meta.properties, clean-shutdown files) → registration → `run` in the
background → `load(image)` at the first publish → `apply_delta` at every later one → `shutdown` after `run` has ended.

Invariants: roles are taken in the order deletes, leaders, followers, in turns if there are many. A fetcher is stopped
before the role changes, so that a late answer finds nothing. A replica is known by topic id, and by name only while
that name is its topic's.
Source: Kafka's ReplicaManager, BrokerMetadataPublisher, LogManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
import trio

from kraft.broker.node.alter_partition import AlterPartitionQueue
from kraft.broker.node.awaited_roles import AwaitedRoles
from kraft.broker.node.checkpoint_writing import CheckpointWriter
from kraft.broker.node.cleaning import LogCleaner
from kraft.broker.node.cleaning_run import RoundRunner
from kraft.broker.node.damaged_logs import DamagedLogs
from kraft.broker.node.directory_assignments import DirectoryAssignments
from kraft.broker.node.disk_failures import DiskFailures
from kraft.broker.node.fetch_sessions import FetchSessionCache
from kraft.broker.node.fetcher import FetcherSettings, LeaderFetcher
from kraft.broker.node.fetchers import Fetchers
from kraft.broker.node.fetching import FetchOperation
from kraft.broker.node.file_removal import FileRemoval
from kraft.broker.node.followed_partition import Following
from kraft.broker.node.found_folders import FoundFolders
from kraft.broker.node.leaders import Leaders
from kraft.broker.node.log_cutting import LogCutter
from kraft.broker.node.log_directories import NO_BROKER_EPOCH, HostedDirectory, LogDirectories
from kraft.broker.node.log_flushing import LogFlusher
from kraft.broker.node.log_maintenance import LogMaintenance
from kraft.broker.node.log_opening import LogContext, LogMaker, LogOpener
from kraft.broker.node.log_syncing import LogSyncer
from kraft.broker.node.loop import Loop
from kraft.broker.node.lost_replicas import LostReplicas
from kraft.broker.node.partition import Partition
from kraft.broker.node.purgatory import Deadlines
from kraft.broker.node.refused_reads import RefusedReads
from kraft.broker.node.replica_copy import ReplicaCopier
from kraft.broker.node.replica_index import ReplicaIndex
from kraft.broker.node.replica_moves import ReplicaMoves
from kraft.broker.node.replica_roles import Assigned, ReplicaRoles
from kraft.broker.node.replica_swap import ReplicaSwap
from kraft.broker.node.replication_quota import ReplicationQuota
from kraft.broker.node.retiring import Retirement
from kraft.broker.node.turns import Turns, in_steps
from kraft.broker.replica.isr import IsrProposal
from kraft.broker.replica.leader import NOBODY
from kraft.broker.serving.metrics.cleaner import register_cleaner_metrics
from kraft.broker.serving.metrics.logs import register_log_metrics
from kraft.broker.serving.metrics.replicas import register_replica_metrics
from kraft.broker.serving.metrics.topics import TopicMetrics
from kraft.image.registrations import ConfigResourceType
from kraft.seam import DiskError
from kraft.storage.handles import FileCache
from kraft.storage.log import Log

if TYPE_CHECKING:
    from kraft.broker.node.services import DataPlaneServices
    from kraft.image.delta import ImageDelta
    from kraft.image.image import MetadataImage
    from kraft.image.partitions import PartitionState

log = structlog.get_logger("kraft.broker.replicas")

PASSED_OVER_MAX = 1_000
OPENINGS_AT_ONCE_MAX = 1
"""Produced batches that are opened off the loop at the same time: the largest may hold 150 MB for 30 ms."""
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaManager:
    """The data plane of one broker. Handlers use `find`, `locate`, `deadlines`, `fetch_sessions`,
    `openings` and `start_task`."""

    def __init__(self, services: DataPlaneServices) -> None:
        self.services = services
        self.config = config = services.config
        self.seam = services.seam
        self.clock = services.seam.clock
        self.disk = services.seam.disk
        self.random = services.seam.random
        self.node_id = services.node_id
        self.lag_ms_max = config.integer("replica.lag.time.max.ms")
        self.fetch_bytes_max = config.integer("fetch.max.bytes")
        self.selects_by_rack = config.string("replica.selector.class") == RACK_AWARE_SELECTOR
        self.eligible: dict[int, int] = {}
        self.racks: dict[int, str | None] = {}
        self.changed: dict[Partition, None] = {}
        self.woken: dict[FetchOperation, None] = {}
        self.file_cache = FileCache(config.integer("kraft.log.open.files.max"))
        self.leader_quota = ReplicationQuota(config, self.clock, "leader.replication.throttled.rate")
        self.follower_quota = ReplicationQuota(config, self.clock, "follower.replication.throttled.rate")
        for quota in (self.leader_quota, self.follower_quota):
            services.dynamic_configs.on_change(quota.configure)
        self.directories = LogDirectories(config, self.disk)
        self.hosted = ReplicaIndex(self.directories, lambda: services.image)
        self.find, self.locate = self.hosted.find, self.hosted.locate
        self.topic_metrics = TopicMetrics(services.metrics)
        self.deadlines = Deadlines(self.clock)
        self.loop = Loop(
            self.clock, self.disk, self.random, self.deadlines, self.start_task, self.seam.network.request_pass
        )
        self.openings = trio.CapacityLimiter(OPENINGS_AT_ONCE_MAX)
        self.fetch_sessions = FetchSessionCache(
            config.integer("max.incremental.fetch.session.cache.slots"), self.random.stream("fetch sessions")
        )
        loop = self.loop
        self.log_context = LogContext(self.file_cache, config.integer("producer.id.expiration.ms"))
        self.assignments = DirectoryAssignments(services)
        self.fetchers = Fetchers(loop, self.node_id, self._make_fetcher)
        lost = LostReplicas(self.assignments, self.fetchers.stop)
        self.lost = lost
        self.failures = failures = DiskFailures(
            loop,
            self.directories,
            lost,
            stop_moves=lambda directory: self.moves.directory_failed(directory),
            report=self._report_offline,
        )
        self.damaged_logs = DamagedLogs(loop, self.node_id, lambda: self.eligible, lost.lose)
        self.refused_reads = RefusedReads(loop, self.damaged_logs, failures)
        self.removal = FileRemoval(loop, failures.disk_failed)
        self.checkpoints = CheckpointWriter(loop, self.directories, failures.directory_failed)
        self.retirement = Retirement(
            loop, config.integer("log.segment.delete.delay.ms"), failures.directory_failed, self.removal
        )
        self.opener = LogOpener(
            LogMaker(loop, self.log_context, self.checkpoints, self.retirement.wait_for).open,
            opened=self._log_opened,
            damaged=self.damaged_logs.end,
            directory_failed=failures.directory_failed,
        )
        self.syncer = LogSyncer(loop, self.file_cache, failures.disk_failed)
        self.maintenance = LogMaintenance(loop, self.hosted, failures, self.removal, self.open_soon)
        self.cleaner = LogCleaner(
            loop,
            services.dynamic_configs,
            RoundRunner(loop, self.removal, services.gates.counting),
            open_logs=self.hosted.with_open_logs,
            failures=failures,
            damaged_logs=self.damaged_logs,
            write_offsets=self.checkpoints.write_cleaner_offsets_of,
        )
        self._flusher = LogFlusher(
            self.loop,
            config.integer("log.flush.scheduler.interval.ms"),
            self.hosted.with_open_logs,
            self.syncer.want_full_sync,
        )
        self.alter_partition = AlterPartitionQueue(services)
        self._found = FoundFolders(loop, self.node_id, self.directories, self.retirement, failures.directory_failed)
        move_quota = ReplicationQuota(
            config,
            self.clock,
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "alter.log.dirs.replication.quota.window.size.seconds",
            "alter.log.dirs.replication.quota.window.num",
        )
        services.dynamic_configs.on_change(move_quota.configure)
        copier = ReplicaCopier(loop, self.log_context, move_quota, self.checkpoints)
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
        self.roles = ReplicaRoles(self)
        self.awaited_roles = AwaitedRoles(self)
        self.leaders = Leaders(config, self.seam.network, lambda: services.image, services.gates.memory)
        self._fetcher_settings = FetcherSettings.of(config)
        cutter = LogCutter(loop, self.checkpoints, damaged=self.damaged_logs.end, disk_failed=failures.disk_failed)
        self._following = Following(self.node_id, self.follower_quota, failures, cutter, self.fetchers.begin)
        self._turns = Turns(self.clock, self.start_task, self._turn_over)
        self.image = services.image
        """The newest one whose roles are taken, or are being taken."""
        self._nursery: trio.Nursery | None = None
        self._ids_at_start: tuple[UUID, ...] = ()
        self._previous_broker_epoch = -1
        self._waits_for_budget = False
        register_cleaner_metrics(services.metrics, self.cleaner.state, self.directories.all, self.clock)
        register_replica_metrics(self, services.metrics)
        register_log_metrics(self, services.metrics)
        self.seam.network.at_end_of_pass(self.end_pass)

    # life

    async def open_directories(self) -> None:
        """Lock every log directory, check its meta.properties, note and delete its clean-shutdown file. Before
        registration; fills `directory_ids` and `previous_broker_epoch`. A directory whose device refuses goes offline.
        DirectoryInUse, ForeignDirectory; DiskError if none is left."""
        failed = await self.disk.offload(self.directories.open, self.services.cluster_id)
        for directory, error in failed:
            log.error("log directory is offline", directory=directory.path, error=str(error))
        if not self.directories.online:
            raise failed[0][1]
        self._previous_broker_epoch = self.directories.previous_broker_epoch

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """Ids of the log directories that are online."""
        return self.directories.ids

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch in the clean-shutdown files, for the registration; -1 if any was missing or they disagree."""
        return self._previous_broker_epoch

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
        self._take_brokers(image)
        self.image = image
        self._found.sort_out(image)
        self._turns.add(
            self.roles.take,
            (
                Assigned(topic.topic_id, index)
                for topic in image.topics
                for index, state in topic.partitions()
                if self.node_id in state.replicas
            ),
        )
        await self._turns.finish()
        if not all(directory.is_clean for directory in self.directories.online):
            await self.opener.wait_idle()
            await self.assignments.wait_settled()
        self.request_pass()

    async def shutdown(self, *, clean: bool = True) -> None:
        """After `run` was cancelled: sync and close all logs, write checkpoints and, last, the clean-shutdown files
        with the broker epoch. Not `clean`: give the locks back, and if this life was never registered, and so has
        opened no log, the clean-shutdown file of the life before."""
        broker_epoch = self.services.broker_epoch
        for directory in self.directories.online:
            if clean:
                await self._close_directory(directory, broker_epoch)
            elif broker_epoch == NO_BROKER_EPOCH:
                await self.disk.offload(directory.leave_as_found)
            if directory.storage is not None:
                directory.storage.close()

    async def _close_directory(self, directory: HostedDirectory, broker_epoch: int) -> None:
        storage = directory.storage
        assert storage is not None
        closed_all = True
        async for partition in in_steps(directory.partitions):
            closed_all = closed_all and (
                partition.log is not None or partition.is_blank or (directory.is_clean and not partition.was_open)
            )
        logs = [partition.log for partition in directory.open_logs if partition.log is not None]

        def close_logs() -> None:
            for opened in logs:
                opened.close(clean=True)

        def write_end() -> None:
            storage.write_high_watermarks(directory.collect_high_watermarks())
            storage.write_recovery_points(directory.collect_recovery_points())
            storage.write_index_recovery_points(directory.collect_index_recovery_points())
            storage.write_log_starts(directory.collect_log_starts())
            storage.write_cleaner_offsets(directory.collect_cleaner_offsets())
            if closed_all:
                storage.write_clean_shutdown(broker_epoch)

        try:
            await self.disk.offload(close_logs)
            await self.disk.offload(write_end)
        except DiskError as error:
            log.error("log directory was not closed cleanly", directory=directory.path, error=str(error))

    def _make_fetcher(self, leader_id: int) -> LeaderFetcher:
        return LeaderFetcher(
            self.loop,
            leader_id,
            self._fetcher_settings,
            self.leaders,
            self._following,
            lambda: self.services.broker_epoch,
        )

    @property
    def broker_epoch(self) -> int:
        return self.services.broker_epoch

    # the pass

    def end_pass(self) -> None:
        """The end of a driver's pass: settle what changed, then look at the fetches that this woke."""
        while self.changed:
            changed, self.changed = self.changed, {}
            for partition in changed:
                partition.settle()
        if self.woken:
            woken, self.woken = self.woken, {}
            for fetch in woken:
                fetch.look_again()
        self.syncer.start_wanted()

    def request_pass(self) -> None:
        """Something changed outside a pass: have one soon."""
        self.seam.network.request_pass()

    def start_task(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run an async function beside the loop, for as long as the data plane runs."""
        if self._nursery is not None:
            self._nursery.start_soon(function, *arguments)

    # PartitionHost

    def offline_replicas(self, state: PartitionState) -> frozenset[int]:
        """Those out of sync whose log directories are offline."""
        if len(state.isr) == len(state.replicas):
            return NOBODY
        brokers = self.image.brokers
        placed = zip(state.replicas, state.directories, strict=bool(state.directories))
        return frozenset(
            one
            for one, directory in placed
            if one not in state.isr and one in brokers and not brokers[one].has_directory(directory)
        )

    def propose_isr(self, partition: Partition, proposal: IsrProposal) -> None:
        self.alter_partition.propose(partition, proposal)

    def want_sync(self, partition: Partition) -> None:
        self.syncer.want_sync(partition)

    def want_full_sync(self, partition: Partition) -> None:
        """All of the log should reach the disk, though nobody waits for it."""
        self.syncer.want_full_sync(partition)

    def want_ready(self, partition: Partition) -> None:
        self.syncer.want_ready(partition)

    def want_open(self, partition: Partition) -> None:
        self.opener.want(partition, urgent=True)

    def open_soon(self, partition: Partition) -> None:
        """Open the log when nothing more urgent is left."""
        self.opener.want(partition, urgent=False)

    def may_write(self, partition: Partition) -> bool:
        """Whether an append that waits may run: the budget of dirty bytes has room. If not, it runs when there is."""
        if self.disk.dirty_budget_full:
            self.budget_may_be_full(partition)
            return False
        return True

    def budget_may_be_full(self, partition: Partition) -> None:
        """An append waits; if it is for the dirty-byte budget, run what waits when there is room again. There may be
        room by now: threads that write back make it."""
        if partition.appendable and not self._waits_for_budget:
            self._waits_for_budget = True
            self.start_task(self._wait_for_budget)

    async def _wait_for_budget(self) -> None:
        await self.disk.wait_dirty_budget()
        self._waits_for_budget = False
        for partition in self.hosted.with_open_logs():
            if partition.pending:
                partition.run_pending()
        self.request_pass()

    def _report_offline(self, directory: HostedDirectory, error: DiskError) -> None:
        self.services.log_directory_failed(directory.path, directory.directory_id, str(error))

    # logs

    def _log_opened(self, partition: Partition, opened: Log) -> None:
        """A log is open: give it to its partition, and begin to fetch if it follows."""
        directory = partition.directory
        if partition.is_removed or directory is None or not directory.is_online:
            opened.release()
            return
        report = opened.recovery_report
        if report.bytes_cut:
            log.warning("log was cut at its end", topic=partition.topic, partition=partition.index, report=str(report))
        self.assignments.report(partition, directory.directory_id)
        self.moves.begin_again(partition)
        self._configure_log(partition, opened)  # its settings may have changed while it was being opened
        partition.opened(opened, directory.high_watermarks.get((partition.topic, partition.index), 0))
        if opened.unsynced:
            self.syncer.want_sync(partition)
        self.fetchers.begin(partition)
        self.request_pass()

    # roles

    def apply_delta(
        self, old: MetadataImage, new: MetadataImage, delta: ImageDelta, then: Callable[[], None] = lambda: None
    ) -> None:
        """Take the roles of a newer image: deletes, then leaders, then followers; call `then` when that is done. Never
        suspends: what does not fit into one turn is done in others, in order, each role by the newest image of its
        time; opening logs and fetching go on in the tasks of `run`."""
        self.image = new
        turns = self._turns
        if delta.brokers:
            self._take_brokers(new)
        turns.add(self.roles.take, self._gone(delta))
        if delta.configs:
            turns.add(self._take_config, self._configured(delta))
        turns.add(self.roles.take, self._assigned(old, new, delta))
        if delta.brokers:
            self.fetchers.redirect(delta.brokers)
            turns.add(Partition.brokers_changed, self.hosted)
        turns.add(lambda call: call(), (then,))
        turns.start()

    def _gone(self, delta: ImageDelta) -> Iterator[Assigned]:
        """The replicas of the topics that a delta deletes."""
        for topic_id in delta.deleted_topics:
            for partition in self.hosted.of_topic(topic_id):
                yield Assigned(topic_id, partition.index)

    def _assigned(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta) -> Iterator[Assigned | None]:
        """The partitions of a delta that concern this broker: those that it leads first. None now and then between
        them, for it may lead few of very many."""
        node_id = self.node_id
        others: list[Assigned] = []
        looked_at = 0
        for topic_id, topic_delta in delta.topics.items():
            topic, before = new.topics.get_by_id(topic_id), old.topics.get_by_id(topic_id)
            for index in topic_delta.partitions:
                looked_at += 1
                if not looked_at % PASSED_OVER_MAX:
                    yield None
                state = None if topic is None else topic.find(index)
                known = None if before is None else before.find(index)
                is_new = known is None or node_id not in known.replicas
                if state is not None and not (is_new and node_id not in state.replicas):
                    if state.leader == node_id:
                        yield Assigned(topic_id, index, is_new)
                    else:
                        others.append(Assigned(topic_id, index, is_new))
        yield from others

    @property
    def roles_are_taken(self) -> bool:
        """No turn is left."""
        return self._turns.is_idle

    def _turn_over(self) -> None:
        self.awaited_roles.turns_over()
        self.fetchers.nudge()
        self.request_pass()

    # what else an image says

    def _take_brokers(self, image: MetadataImage) -> None:
        self.eligible = {broker.broker_id: broker.broker_epoch for broker in image.sorted_brokers() if broker.is_active}
        self.racks = {broker.broker_id: broker.rack for broker in image.sorted_brokers()}

    def _configured(self, delta: ImageDelta) -> Iterable[Partition]:
        """The replicas whose topics have other settings now."""
        if any(kind is ConfigResourceType.BROKER for kind, _ in delta.configs):
            return self.hosted
        named = [name for kind, name in delta.configs if kind is ConfigResourceType.TOPIC]
        return chain.from_iterable(self.hosted.of_topic(name) for name in named)

    def _take_config(self, partition: Partition) -> None:
        if partition.is_removed:
            return
        partition.configure(self.services.dynamic_configs.topic(partition.topic))
        if partition.log is not None:
            self._configure_log(partition, partition.log)

    def _configure_log(self, partition: Partition, its_log: Log) -> None:
        its_log.update_config(self.log_context.config_of(partition))

    async def _check_lag_forever(self) -> None:
        """Drop members that lag from in-sync sets, every half of replica.lag.time.max.ms."""
        while True:
            await self.clock.sleep_ms(self.lag_ms_max / 2)
            self.check_lag()

    def check_lag(self) -> None:
        """One round of the in-sync timer, in turns."""
        self._turns.add(Partition.check_lag, self.hosted)
        self._turns.start()
