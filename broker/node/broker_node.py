"""The broker's part of a node: its objects, its listeners, and the order in which they start and stop.

Start: listeners accept connections, but only ApiVersions and Identify are answered → registration → caught up with the
metadata → logs opened according to the first image → unfenced → waiting requests are read. Stop: move all leaderships
to other brokers → close the connections → stop the data plane → close the logs, writing the clean-shutdown file last.
Source: Kafka's BrokerServer, BrokerLifecycleManager, docs/decisions/05-fast-fencing.md#brokers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
import trio

from kraft.broker.api.fetch.metadata_topic import MetadataTopic
from kraft.broker.api.share_fetch.led_share_partitions import LedSharePartitions
from kraft.broker.coordinator.auto_topics import AutoTopicCreation
from kraft.broker.coordinator.broker_connections import BrokerConnections
from kraft.broker.coordinator.end_offsets import EndOffsets
from kraft.broker.coordinator.group_coordinators import GroupCoordinators
from kraft.broker.coordinator.group_settings import GroupSettingsLookup, consumer_group_settings
from kraft.broker.coordinator.marker_sender import MarkerSender
from kraft.broker.coordinator.marker_writer import MarkerWriter
from kraft.broker.coordinator.partition_enrolment import PartitionEnrolment
from kraft.broker.coordinator.producer_id_blocks import ProducerIds
from kraft.broker.coordinator.shard_driver import CoordinatorPorts
from kraft.broker.coordinator.share_coordinators import ShareCoordinators
from kraft.broker.coordinator.share_group_settings import share_group_settings, share_membership_settings
from kraft.broker.coordinator.share_persister import SharePersister
from kraft.broker.coordinator.transaction_coordinators import TransactionCoordinators
from kraft.broker.following.leader_dialer import LeaderDialer
from kraft.broker.node.broker import Broker
from kraft.broker.node.dispatch import LONG_REQUEST_BYTES
from kraft.broker.node.identity import NodeIdentity
from kraft.broker.node.leader_check import CHECK_MS, PURPOSE, LeaderCheck
from kraft.broker.node.lifecycle import BrokerLifecycle
from kraft.broker.node.request_parts import make_dispatcher
from kraft.broker.roles.replica_manager import ReplicaManager
from kraft.broker.serving.controller_channel import ControllerChannel
from kraft.broker.serving.dynamic_configs import DynamicConfigs
from kraft.broker.serving.gates import Gates
from kraft.broker.serving.metrics.metric_registry import Metrics
from kraft.broker.serving.session import ANONYMOUS, Session
from kraft.config import NodeConfig
from kraft.control.features import SUPPORTED_FEATURES
from kraft.controller.probes import Prober
from kraft.image import Endpoint, ImageDelta, MetadataImage
from kraft.node.peers import Peers
from kraft.quorum.publisher import MetadataPublisher
from kraft.quorum.quorum import Quorum
from kraft.seam import Address, Binding, BoundListener, Seam
from kraft.wire.request_meter import RequestMeter
from kraft.wire.rpc.controller_messages import RegisterBrokerRequest
from kraft.wire.server import ServerLimits

if TYPE_CHECKING:
    from kraft.node.reply_faults import ReplyFaults
    from kraft.wire.rpc import RpcMessage

log = structlog.get_logger("kraft.broker")

CONTROLLED_SHUTDOWN_MS_MAX = 300_000


@dataclass(frozen=True, slots=True)
class Shared:
    """Parts that the broker shares with the controller of the same process."""

    quorum: Quorum
    publisher: MetadataPublisher
    peers: Peers
    metrics: Metrics
    requests: RequestMeter
    gates: Gates
    faults: ReplyFaults | None = None


class BrokerNode:
    """One broker, from binding its listeners to writing the clean-shutdown file."""

    def __init__(
        self,
        config: NodeConfig,
        seam: Seam,
        identity: NodeIdentity,
        shared: Shared,
        *,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._seam = seam
        self._publisher = shared.publisher
        self._nursery: trio.Nursery | None = None
        self._finished = trio.Event()
        self._bound: dict[str, BoundListener] = {}
        self._applied: MetadataImage | None = None

        def newest_image() -> MetadataImage:
            return shared.publisher.image

        self.broker = broker = Broker(
            config,
            seam,
            cluster_id=identity.cluster_id,
            incarnation_id=seam.random.uuid(),
            requests=shared.requests,
            gates=shared.gates,
            dynamic_configs=DynamicConfigs(config),
            start_task=self._start_task,
            fail=fail,
        )
        broker.controller = ControllerChannel(config, seam, shared.quorum, shared.peers)
        broker.metadata_topic = MetadataTopic(shared.quorum, shared.gates)
        prober = Prober(config, shared.peers, identity.cluster_id, timeout_ms=CHECK_MS, purpose=PURPOSE)
        leader_check = LeaderCheck(prober, newest_image)
        broker.lifecycle = BrokerLifecycle(
            config,
            seam.clock,
            newest_image=newest_image,
            find_replica=lambda topic_id, index: broker.replicas.find(topic_id, index),
            ask_controller=self._ask_controller,
            registration=self._registration,
        )
        broker.producer_ids = ProducerIds(
            config.node_id, lambda: broker.lifecycle.broker_epoch, self._ask_controller, self._start_task
        )
        broker.auto_topics = AutoTopicCreation(
            broker.dynamic_configs,
            shared.gates,
            broker.log_limit,
            forward=broker.controller.forward,
            start_task=self._start_task,
        )
        broker.replicas = ReplicaManager(
            config,
            seam,
            cluster_id=identity.cluster_id,
            dynamic_configs=broker.dynamic_configs,
            metrics=shared.metrics,
            gates=shared.gates,
            newest_image=newest_image,
            broker_epoch=lambda: broker.lifecycle.broker_epoch,
            ask_controller=self._ask_controller,
            log_directory_failed=broker.log_directory_failed,
        )
        replicas = broker.replicas
        ports = CoordinatorPorts(
            replicas.loop,
            shared.gates,
            replicas.find,
            replicas.damaged_logs.damage_found,
            replicas.failures.disk_failed,
            replicas.budget.may_be_full,
        )
        settings_of = GroupSettingsLookup(broker.dynamic_configs, newest_image, consumer_group_settings).of
        broker.groups = GroupCoordinators(
            config,
            ports,
            newest_image,
            settings_of,
            lambda group: share_membership_settings(group, broker.dynamic_configs.node, newest_image()),
            lambda request, ticket: broker.share_persister.ask(request, ticket),
        )
        timeout_ms = config.integer("request.timeout.ms")
        broker.marker_writer = MarkerWriter(ports, broker.groups, replicas.locate, timeout_ms)
        dialer = LeaderDialer(config, seam.network, newest_image, shared.gates.memory)
        connections = BrokerConnections(replicas.loop, dialer, f"broker-{config.node_id}-markers")
        markers = MarkerSender(
            replicas.loop, config.node_id, newest_image, connections, broker.marker_writer.write, timeout_ms
        )
        broker.transactions = TransactionCoordinators(
            config, ports, newest_image, broker.producer_ids.take_nowait, markers
        )
        self._enrolments = BrokerConnections(replicas.loop, dialer, f"broker-{config.node_id}-enrolment")
        broker.enrolment = PartitionEnrolment(
            config,
            replicas.loop,
            newest_image,
            send=partial(self._enrolments.send, timeout_ms=timeout_ms),
            ask_here=broker.transactions.submit,
        )
        broker.share_coordinators = ShareCoordinators(config, ports, newest_image)
        self._share_states = BrokerConnections(replicas.loop, dialer, f"broker-{config.node_id}-share-state")
        broker.share_persister = SharePersister(
            config.node_id,
            replicas.loop,
            newest_image,
            send=partial(self._share_states.send, timeout_ms=timeout_ms),
            ask_here=broker.share_coordinators.submit,
            create_topic=lambda name: broker.auto_topics.create(self._own_session(), [name]),
        )
        broker.end_offsets = EndOffsets(
            config.node_id,
            newest_image,
            replicas.find,
            send=partial(self._share_states.send, timeout_ms=timeout_ms),
        )
        broker.shares = LedSharePartitions(
            replicas.loop,
            broker.share_persister,
            GroupSettingsLookup(broker.dynamic_configs, newest_image, share_group_settings).of,
            replicas.woken,
            sessions_max=config.integer("group.share.max.share.sessions"),
        )
        frame_bytes_max = config.integer("socket.request.max.bytes")
        limits = ServerLimits(frame_bytes_max=frame_bytes_max, long_request_bytes=LONG_REQUEST_BYTES)
        broker.dispatcher = make_dispatcher(broker, newest_image, leader_check, limits, shared.faults)

    def bind(self) -> None:
        """Bind the broker's listeners, and set the advertised endpoints. Raises AddressInUse, which names the port."""
        controllers = self._config.controller_listener_names
        for listener in self._config.listeners:
            if listener.name not in controllers:
                binding = Binding(listener.name, Address(listener.host, listener.port), self._config.tls(listener.name))
                self._bound[listener.name] = self._seam.network.serve(binding, self.broker.dispatcher.accept)
        self.broker.advertised = tuple(
            Endpoint(
                listener.name,
                listener.host or self._bound[listener.name].address.host or "localhost",
                listener.port or self._bound[listener.name].address.port,
                listener.security_protocol.name,
            )
            for listener in self._config.advertised_listeners
            if listener.name in self._bound
        )

    async def open_directories(self) -> None:
        """Lock and check the log directories. Must be called before the quorum opens its log in one of them."""
        await self.broker.replicas.open_directories()

    @property
    def addresses(self) -> dict[str, Address]:
        """The bound addresses, by listener name."""
        return {name: bound.address for name, bound in self._bound.items()}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Join the cluster and serve until cancelled or stopped."""
        broker = self.broker
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._publisher.subscribe_leader(broker.controller.on_leader)
                broker.controller.on_leader(self._publisher.leader_id, self._publisher.epoch)
                self._publisher.subscribe(self._published)
                nursery.start_soon(broker.lifecycle.run)
                nursery.start_soon(self._come_up, nursery)
                task_status.started()
                try:
                    await trio.sleep_forever()
                # before the last task has ended: a closed nursery would reject tasks that a pass may still start
                finally:
                    self._nursery = None
        finally:
            self._finished.set()

    async def stop(self) -> None:
        """Leave the cluster with a controlled shutdown. When this returns, `run` has returned and the logs are
        closed."""
        broker = self.broker
        if self._nursery is None:
            return
        log.info("broker stops", node_id=broker.node_id)
        await broker.lifecycle.controlled_shutdown(timeout_ms=CONTROLLED_SHUTDOWN_MS_MAX)
        for bound in self._bound.values():
            bound.close()
        broker.dispatcher.close_all()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        await self._finished.wait()
        await broker.replicas.shutdown(clean=self._applied is not None)
        log.info("broker stopped", node_id=broker.node_id)

    async def _come_up(self, nursery: trio.Nursery) -> None:
        broker = self.broker
        await broker.lifecycle.registered.wait()
        nursery.start_soon(broker.controller.keep_connected, broker.lifecycle.heartbeat)
        await broker.lifecycle.caught_up.wait()
        await nursery.start(broker.replicas.run)
        image = self._publisher.image
        await broker.replicas.load(image)
        broker.lifecycle.roles_taken(image)
        newest = self._publisher.image
        then = partial(self._coordinate, newest)
        if newest is not image:
            self._apply(image, newest, ImageDelta.between(image, newest), then)
        else:
            then()
        nursery.start_soon(broker.groups.expire_forever)
        nursery.start_soon(broker.transactions.expire_forever)
        nursery.start_soon(broker.share_coordinators.maintain_forever)
        self._applied = newest
        await broker.lifecycle.logs_loaded()
        await broker.lifecycle.unfenced.wait()
        broker.dispatcher.release_requests()

    def _ask_controller(self, message: RpcMessage, **options: Any) -> Awaitable[Any]:
        """Send a request on the broker's channel (`ControllerChannel.request`)."""
        return self.broker.controller.request(message, **options)

    def _own_session(self) -> Session:
        """Return the session of requests that this broker makes itself."""
        listener = self._config.inter_broker_listener_name
        protocol = next(one.security_protocol.name for one in self._config.listeners if one.name == listener)
        return Session(listener, protocol, ANONYMOUS, client_address="", client_id=f"broker-{self.broker.node_id}")

    def _registration(self) -> RegisterBrokerRequest:
        """Return the request that registers this incarnation."""
        broker = self.broker
        return RegisterBrokerRequest(
            broker_id=broker.node_id,
            cluster_id=broker.cluster_id,
            incarnation_id=broker.incarnation_id,
            endpoints=broker.advertised,
            rack=broker.config.rack,
            host_id=broker.config.host_id,
            log_dirs=broker.replicas.directories.ids,
            features=SUPPORTED_FEATURES,
            previous_broker_epoch=broker.replicas.previous_broker_epoch,
        )

    def _published(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta) -> None:
        """Apply a newer image: first its settings, then its roles. Then send the reports to the controller."""
        self.broker.dynamic_configs.apply(new, delta)
        self.broker.departed.published(old, new, delta)
        if self._applied is not None:
            self._apply(old, new, delta, partial(self._coordinate, new, delta))
            self._applied = new
        self.broker.lifecycle.metadata_published(new, delta)
        if self.broker.metadata_topic.published():
            self._seam.network.request_pass()

    def _coordinate(self, new: MetadataImage, delta: ImageDelta | None = None) -> None:
        """Begin the coordinators that an image assigns to this broker, and close those that it takes away. `delta` is
        None for the first image."""
        broker = self.broker
        if delta is None:
            broker.transactions.metadata_loaded(new)
            broker.share_coordinators.metadata_loaded(new)
            broker.groups.metadata_loaded(new)
        else:
            broker.transactions.metadata_published(new, delta)
            self._enrolments.metadata_published(new)
            broker.share_coordinators.metadata_published(new, delta)
            self._share_states.metadata_published(new)
            broker.groups.metadata_published(new, delta)

    def _apply(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta, then: Callable[[], None]) -> None:
        """Apply the roles of a newer image, in several turns if there are many. Then notify the coordinators and the
        controller."""

        def taken() -> None:
            then()
            self.broker.lifecycle.roles_taken(new)

        self.broker.replicas.apply_delta(old, new, delta, taken)

    def _start_task(self, function: Callable[..., object], *arguments: object) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(function, *arguments)  # type: ignore[arg-type]
