"""ReplicaManager: all replicas that this broker hosts, where their parts meet, and the work at the end of a pass.

Order of a node's life: `open_directories` (locks, meta.properties, clean-shutdown files) → registration → `run` in the
background → `load(image)` at the first publish → `apply_delta` at every later one → `shutdown` after `run` has ended.
Source: Kafka's ReplicaManager, BrokerMetadataPublisher, LogManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import trio

from kraft.broker.api.fetch.sessions import FetchSessionCache
from kraft.broker.following.fetchers import Fetchers
from kraft.broker.following.followed_partition import Following
from kraft.broker.following.leader_fetcher import FetcherSettings, LeaderFetcher
from kraft.broker.following.leaders import Leaders
from kraft.broker.logs.cleaning.cleaner_metrics import register_cleaner_metrics
from kraft.broker.logs.directory_assignments import DirectoryAssignments
from kraft.broker.logs.directory_life import close_directories, open_directories
from kraft.broker.logs.log_parts import LogParts
from kraft.broker.logs.lost_replicas import LostReplicas
from kraft.broker.logs.truncation import LogCutter
from kraft.broker.partition.log_directories import NO_BROKER_EPOCH, LogDirectories
from kraft.broker.partition.partition_host import PartitionHost, WokenRequest
from kraft.broker.partition.replica_index import ReplicaIndex
from kraft.broker.partition.replication_quota import ReplicationQuota
from kraft.broker.roles.alter_partition import AlterPartitionQueue
from kraft.broker.roles.log_metrics import register_log_metrics
from kraft.broker.roles.replica_metrics import register_fetcher_metrics, register_replica_metrics
from kraft.broker.roles.role_parts import RoleParts
from kraft.broker.serving.loop import Loop
from kraft.broker.serving.metrics.topics import TopicMetrics
from kraft.broker.serving.purgatory import Deadlines

if TYPE_CHECKING:
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.metrics.metric_registry import Metrics
    from kraft.config import NodeConfig
    from kraft.image.delta import ImageDelta
    from kraft.image.image import MetadataImage
    from kraft.seam import Seam
    from kraft.wire.rpc import RpcMessage


class ReplicaManager:
    """The data plane of one broker: a place where its parts are made and connected. It decides nothing itself.

    Only `kraft.broker.node` knows it: it gives handlers and coordinators the parts and callables that they use.
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
        self._broker_epoch = broker_epoch
        self._nursery: trio.Nursery | None = None
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """Broker epoch in the clean-shutdown files, for the registration; -1 if any was missing or they disagree."""
        node_id = config.node_id

        # what Fetch uses
        self.woken: dict[WokenRequest, None] = {}
        """Parked fetches to check at the end of the pass; always the same dict."""
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

        # the controller
        self.alter_partition = AlterPartitionQueue(loop, node_id, broker_epoch, ask_controller)
        self.assignments = DirectoryAssignments(loop, node_id, broker_epoch, ask_controller)

        # logs
        self.fetchers = Fetchers(loop, node_id, self._make_fetcher)
        lost = LostReplicas(self.assignments, self.fetchers.stop)
        self.logs = logs = LogParts(
            loop,
            config,
            self.directories,
            self.hosted,
            self.assignments,
            lost,
            stop_fetching=self.fetchers.stop,
            begin_fetching=self.fetchers.begin,
            dynamic_configs=dynamic_configs,
            gates=gates,
            active_brokers=lambda: self.host.eligible,
            log_directory_failed=log_directory_failed,
        )
        self.failures, self.damaged_logs, self.refused_reads = logs.failures, logs.damaged_logs, logs.refused_reads
        self.checkpoints, self.moves, self.budget = logs.checkpoints, logs.moves, logs.budget

        # following
        self._leaders = Leaders(config, seam.network, newest_image, gates.memory)
        cutter = LogCutter(loop, logs.checkpoints, damaged=logs.damaged_logs.end, disk_failed=logs.failures.disk_failed)
        self._fetcher_settings = FetcherSettings.of(config)
        self._following = Following(node_id, self.follower_quota, logs.failures, cutter, self.fetchers.begin)

        # roles
        self.roles = RoleParts(
            loop,
            self.host,
            self.hosted,
            self.directories,
            self.fetchers,
            self.assignments,
            lost,
            logs,
            dynamic_configs=dynamic_configs,
            topic_metrics=TopicMetrics(metrics),
            newest_image=newest_image,
        )
        self.awaited_roles = self.roles.awaited

        host = self.host
        host.met_damage = logs.damaged_logs.met
        host.propose_isr = self.alter_partition.propose
        host.may_write = logs.budget.may_write
        host.want_sync, host.want_ready = logs.syncer.want_sync, logs.syncer.want_ready
        host.want_open = logs.opener.want_urgently

        register_cleaner_metrics(metrics, logs.cleaner.state, self.directories.all, seam.clock)
        register_replica_metrics(metrics, self.hosted, self.alter_partition, self.fetch_sessions, self.deadlines)
        register_fetcher_metrics(metrics, self.fetchers, self._leaders)
        register_log_metrics(
            metrics,
            self.directories,
            open_logs=self.hosted.with_open_logs,
            waiting_logs=logs.opener.waiting,
            flush_ms=logs.syncer.flush_ms,
        )
        seam.network.at_end_of_pass(self._end_pass)

    # life

    async def open_directories(self) -> None:
        """Lock and check every log directory, before registration. Fills `directories.ids` and `previous_broker_epoch`.
        DirectoryInUse, ForeignDirectory; DiskError if the device refuses in all of them."""
        await open_directories(self.disk, self.directories, self._cluster_id)
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
                self.logs.start(nursery)
                for fetcher in self.fetchers:
                    nursery.start_soon(fetcher.run)
                task_status.started()
                await trio.sleep_forever()
            finally:  # before the last task has ended: a closed nursery refuses what a pass may still want to start
                self._nursery = None

    async def load(self, image: MetadataImage) -> None:
        """First publish: set stray logs aside, take every role that `image` gives, and, after an unclean stop, recover
        all logs before this returns. `run` must be under way."""
        self.roles.turns.begin(image)
        self.logs.found.sort_out(image)
        await self.roles.turns.load(image)
        if not all(directory.is_clean for directory in self.directories.online):
            await self.logs.opener.wait_idle()
            await self.assignments.wait_settled()
        self.loop.request_pass()

    def apply_delta(
        self, old: MetadataImage, new: MetadataImage, delta: ImageDelta, then: Callable[[], None] = lambda: None
    ) -> None:
        """Take the roles of a newer image, then call `then`. Never suspends: what does not fit into one turn is done in
        others; opening logs and fetching go on in the tasks of `run`."""
        self.roles.turns.apply(old, new, delta, then)

    async def shutdown(self, *, clean: bool = True) -> None:
        """After `run` was cancelled: sync and close all logs, write checkpoints and, last, the clean-shutdown files
        with the broker epoch. Not `clean`: give the locks back, and if this life was never registered, and so has
        opened no log, the clean-shutdown file of the life before."""
        await close_directories(self.disk, self.directories, self._broker_epoch(), clean=clean)

    # what parts call

    def _start_task(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(function, *arguments)

    def _end_pass(self) -> None:
        """Settle the partitions that changed in this pass of the driver, then check the fetches that this woke."""
        host = self.host
        while host.changed:
            changed, host.changed = host.changed, {}
            for partition in changed:
                partition.settle()
        if self.woken:
            woken = list(self.woken)
            self.woken.clear()
            for fetch in woken:
                fetch.check_again()
        self.logs.syncer.start_wanted()

    def _make_fetcher(self, leader_id: int) -> LeaderFetcher:
        return LeaderFetcher(
            self.loop, leader_id, self._fetcher_settings, self._leaders, self._following, self._broker_epoch
        )

    async def _check_lag_forever(self) -> None:
        """Drop members that lag from in-sync sets, every half of replica.lag.time.max.ms."""
        while True:
            await self.clock.sleep_ms(self.host.lag_ms_max / 2)
            self.roles.turns.check_lag()
