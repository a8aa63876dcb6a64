"""Broker: all that the handlers of one broker may use, in one place.

It holds parts and decides nothing itself; the life of a broker is in `lifecycle`, what runs in which order in `serve`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from errno import EIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog

from kraft.broker.serving.departed import DepartedBrokers
from kraft.config import NodeConfig
from kraft.image import Endpoint, FeatureRange, MetadataImage
from kraft.node.log_limit import LogLimit
from kraft.seam import DiskError, Seam

if TYPE_CHECKING:
    from kraft.broker.api.fetch.metadata_topic import MetadataTopic
    from kraft.broker.coordinator.auto_topics import AutoTopicCreation
    from kraft.broker.coordinator.group_coordinators import GroupCoordinators
    from kraft.broker.coordinator.producer_id_blocks import ProducerIds
    from kraft.broker.node.dispatch import Dispatcher
    from kraft.broker.node.leader_check import LeaderCheck
    from kraft.broker.node.lifecycle import BrokerLifecycle
    from kraft.broker.roles.replica_manager import ReplicaManager
    from kraft.broker.serving.controller_channel import ControllerChannel
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.metrics.metric_registry import Metrics
    from kraft.broker.serving.turns import Steps
    from kraft.quorum.publisher import MetadataPublisher
    from kraft.wire.request_meter import RequestMeter
    from kraft.wire.server import Request

log = structlog.get_logger("kraft.broker")


class Broker:
    """The services of one broker. The parts that need it in return are set right after it is made, before it serves."""

    controller: ControllerChannel
    dispatcher: Dispatcher
    groups: GroupCoordinators
    leader_check: LeaderCheck
    lifecycle: BrokerLifecycle
    replicas: ReplicaManager
    auto_topics: AutoTopicCreation
    metadata_topic: MetadataTopic
    producer_ids: ProducerIds

    def __init__(
        self,
        config: NodeConfig,
        seam: Seam,
        *,
        cluster_id: str,
        incarnation_id: UUID,
        publisher: MetadataPublisher,
        metrics: Metrics,
        requests: RequestMeter,
        gates: Gates,
        dynamic_configs: DynamicConfigs,
        start_task: Callable[..., None],
        fail: Callable[[BaseException], None],
        features: tuple[FeatureRange, ...] = (),
    ) -> None:
        """`start_task(function, *arguments)` runs an async function in the node's nursery; `fail` stops the node."""
        self.config = config
        self.seam = seam
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.incarnation_id = incarnation_id
        self.metrics = metrics
        self.requests = requests
        self.gates = gates
        self.features = features
        self.api_versions_bodies: dict[tuple[int, int], bytes] = {}
        """Answers to ApiVersions, by version and metadata offset."""
        self.dynamic_configs = dynamic_configs
        self.log_limit = LogLimit(seam.clock)
        self.departed = DepartedBrokers(seam.clock, config.integer("broker.session.timeout.ms"))
        self.advertised: tuple[Endpoint, ...] = ()
        self._publisher = publisher
        self._start_task = start_task
        self._fail = fail

    @property
    def image(self) -> MetadataImage:
        """The newest published image (committed metadata only)."""
        return self._publisher.image

    @property
    def broker_epoch(self) -> int:
        """Epoch of this registration; -1 before it."""
        return self.lifecycle.broker_epoch

    def start_task(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run `await function(*arguments)` in the background. What it raises stops the node."""
        self._start_task(function, *arguments)

    def answer_later(self, request: Request, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """The rest of a handler that must wait: runs `await function(*arguments)`, which answers the request; if it
        fails the client is told and nothing else is touched."""
        self._start_task(self.dispatcher.answer_later, request, function, *arguments)

    def go_on(self, request: Request, steps: Steps) -> None:
        """The rest of a handler that has much to do on the loop: steps of some milliseconds at most, behind those that
        others have begun before; if one fails the client is told and nothing else is touched."""
        self.dispatcher.go_on(request, steps)

    def finish(self, request: Request, function: Callable[..., None], *arguments: Any) -> None:
        """The rest of a handler that waited for a callback: calls `function(*arguments)`; if it fails the client is
        told and nothing else is touched."""
        self.dispatcher.finish(request, function, *arguments)

    def node_failed(self, error: BaseException) -> None:
        """A broken invariant of ours: stop the node."""
        log.critical("node stops", error=str(error), exc_info=error)
        self._fail(error)

    def log_directory_failed(self, directory: str, directory_id: UUID, why: str) -> None:
        """A log directory went offline: tell the controller, or stop the node if none is left, as Kafka does."""
        log.error("log directory is offline", directory=directory, directory_id=directory_id, why=why)
        self.lifecycle.directory_went_offline(directory, directory_id, why)
        if not self.replicas.directories.online:
            self.node_failed(DiskError(f"no log directory is left: {why}", errno=EIO, path=directory))

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of `listener` reach a broker that is unfenced and has that listener; else None."""
        registration = self.image.brokers.get(broker_id)
        if registration is None or registration.fenced:
            return None
        return next((endpoint for endpoint in registration.endpoints if endpoint.name == listener), None)
