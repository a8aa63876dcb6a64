"""ReplicaManager: all replicas that this broker hosts, the connections between the objects that handle them, and the
work at the end of a pass.

Order of calls during a node's lifetime: `open_directories` (locks, meta.properties, clean-shutdown files) →
registration → `run` in the background → `load(image)` with the first image → `apply_delta` with every later one →
`shutdown` after `run` has ended.
Source: Kafka's ReplicaManager, BrokerMetadataPublisher, LogManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import trio

from kraft.broker.api.fetch.sessions import FetchSessionCache
from kraft.broker.following.fetchers import Fetchers
from kraft.broker.following.followed_partition import FetcherContext
from kraft.broker.following.leader_dialer import LeaderDialer
from kraft.broker.following.leader_fetcher import FetcherSettings, LeaderFetcher
from kraft.broker.logs.cleaning.cleaner_metrics import register_cleaner_metrics
from kraft.broker.logs.directory_assignments import DirectoryAssignments
from kraft.broker.logs.directory_life import close_directories, open_directories
from kraft.broker.logs.log_parts import LogParts
from kraft.broker.logs.lost_replicas import LostReplicas
from kraft.broker.logs.truncation import LogTruncator
from kraft.broker.partition.log_directories import NO_BROKER_EPOCH, LogDirectories
from kraft.broker.partition.partition_host import PartitionHost, WokenRequest
from kraft.broker.partition.replica_index import ReplicaIndex
from kraft.broker.partition.replication_quota import ReplicationQuota
from kraft.broker.roles.alter_partition import AlterPartitionQueue
from kraft.broker.roles.log_metrics import register_log_metrics
from kraft.broker.roles.replica_metrics import register_fetcher_metrics, register_replica_metrics
from kraft.broker.roles.role_parts import RoleParts
from kraft.broker.serving.controller_port import ControllerPort
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
    """The data plane of one broker. It creates and connects the parts, and makes no decisions itself.

    Only `kraft.broker.node` uses it, and passes to handlers and coordinators the parts and callables that they need."""

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
        """`newest_image()` returns the newest published image. `broker_epoch()` returns the epoch of this registration,
        -1 before the registration. `ask_controller` is `ControllerChannel.request`. `log_directory_failed(path, id,
        why)` reports the directory, or stops the node if none is left."""
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
        """Broker epoch in the clean-shutdown files, for the registration; -1 if a file was missing or the files differ.
        """
        node_id = config.node_id

        # what Fetch uses
        self.woken: dict[WokenRequest, None] = {}
        """Parked fetches to check at the end of the pass. The dict object is never replaced, because other objects
        refer to it."""
        self.fetch_sessions = FetchSessionCache(
            config.integer("max.incremental.fetch.session.cache.slots"), seam.random.stream("fetch sessions")
        )
        self.leader_quota = ReplicationQuota(config, seam.clock, "leader.replication.throttled.rate")
        self.follower_quota = ReplicationQuota(config, seam.clock, "follower.replication.throttled.rate")
        for quota in (self.leader_quota, self.follower_quota):
            dynamic_configs.on_change(quota.configure)

        # hosted replicas
        self.directories = LogDirectories(config, seam.disk)
        self.hosted = ReplicaIndex(self.directories, newest_image)
        self.find, self.locate = self.hosted.find, self.hosted.locate
        self.host = PartitionHost(seam.clock, node_id, config.integer("replica.lag.time.max.ms"))

        # the controller
        controller = ControllerPort(node_id, broker_epoch, ask_controller)
        self.alter_partition = AlterPartitionQueue(loop, controller)
        self.assignments = DirectoryAssignments(loop, controller)

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
        self.failures, self.damaged_logs, self.repeated_read_checks = (
            logs.failures,
            logs.damaged_logs,
            logs.repeated_read_checks,
        )
        self.checkpoints, self.moves, self.budget = logs.checkpoints, logs.moves, logs.budget

        # following
        self._leaders = LeaderDialer(config, seam.network, newest_image, gates.memory)
        truncator = LogTruncator(
            loop, logs.checkpoints, damaged=logs.damaged_logs.take_offline, disk_failed=logs.failures.disk_failed
        )
        self._fetcher_settings = FetcherSettings.of(config)
        self._following = FetcherContext(node_id, self.follower_quota, logs.failures, truncator, self.fetchers.begin)

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
        self.fetches_awaiting_roles = self.roles.awaiting_fetches

        host = self.host
        host.damage_found = logs.damaged_logs.damage_found
        host.propose_isr = self.alter_partition.propose
        host.may_write = logs.budget.may_write
        host.request_sync, host.request_ready = logs.syncer.request_sync, logs.syncer.request_ready
        host.request_open = logs.opener.request_urgently

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

    # start and stop

    async def open_directories(self) -> None:
        """Lock and check every log directory, before registration. Set `directories.ids` and `previous_broker_epoch`.
        Raises DirectoryInUse or ForeignDirectory, and DiskError if the devices of all directories fail."""
        await open_directories(self.disk, self.directories, self._cluster_id)
        self.previous_broker_epoch = self.directories.previous_broker_epoch

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the background tasks of the data plane (fetchers, ISR, checkpoints, retention, deadlines) until
        cancelled."""
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
            finally:  # before the last task has ended: a closed nursery would reject tasks that a pass may still start
                self._nursery = None

    async def load(self, image: MetadataImage) -> None:
        """Apply the first image: set stray logs aside and apply every role of `image`. After an unclean stop, recover
        all logs before returning. `run` must be running."""
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
        """Apply the roles of a newer image, then call `then`. Never suspends: work that does not fit into one turn is
        done in later turns. The tasks of `run` open logs and fetch."""
        self.roles.turns.apply(old, new, delta, then)

    async def shutdown(self, *, clean: bool = True) -> None:
        """Stop after `run` was cancelled: sync and close all logs, then write the checkpoints and, last, the
        clean-shutdown files with the broker epoch.

        With `clean` False, only release the locks. If this incarnation was never registered, and so has opened no log,
        also put back the clean-shutdown file of the previous incarnation."""
        await close_directories(self.disk, self.directories, self._broker_epoch(), clean=clean)

    # for the parts

    def _start_task(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(function, *arguments)

    def _end_pass(self) -> None:
        """Settle the partitions that changed in this pass of the driver, then check the fetches that were woken."""
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
        self.logs.syncer.start_requested()

    def _make_fetcher(self, leader_id: int) -> LeaderFetcher:
        return LeaderFetcher(
            self.loop, leader_id, self._fetcher_settings, self._leaders, self._following, self._broker_epoch
        )

    async def _check_lag_forever(self) -> None:
        """Propose to remove lagging members from in-sync sets. Repeat after every half of replica.lag.time.max.ms."""
        while True:
            await self.clock.sleep_ms(self.host.lag_ms_max / 2)
            self.roles.turns.check_lag()
