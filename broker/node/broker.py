"""Broker: a container for the parts of one broker, for code that creates, measures or tests a broker. The parts and the
handlers do not get the whole Broker, only the parts that they use.

Broker decides nothing itself, except whether an offline log directory stops the node. The lifecycle of a broker is in
`lifecycle`, the order of start and stop in `broker_node`.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog

from kraft.broker.serving.departed import DepartedBrokers
from kraft.config import NodeConfig
from kraft.image import Endpoint
from kraft.node.log_limit import LogLimit
from kraft.seam import DiskError, Seam

if TYPE_CHECKING:
    from kraft.broker.api.fetch.metadata_topic import MetadataTopic
    from kraft.broker.api.share_fetch.led_share_partitions import LedSharePartitions
    from kraft.broker.coordinator.auto_topics import AutoTopicCreation
    from kraft.broker.coordinator.end_offsets import EndOffsets
    from kraft.broker.coordinator.group_coordinators import GroupCoordinators
    from kraft.broker.coordinator.marker_writer import MarkerWriter
    from kraft.broker.coordinator.partition_enrolment import PartitionEnrolment
    from kraft.broker.coordinator.producer_id_blocks import ProducerIds
    from kraft.broker.coordinator.share_coordinators import ShareCoordinators
    from kraft.broker.coordinator.share_persister import SharePersister
    from kraft.broker.coordinator.transaction_coordinators import TransactionCoordinators
    from kraft.broker.node.dispatch import Dispatcher
    from kraft.broker.node.lifecycle import BrokerLifecycle
    from kraft.broker.roles.replica_manager import ReplicaManager
    from kraft.broker.serving.controller_channel import ControllerChannel
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.broker.serving.gates import Gates
    from kraft.wire.request_meter import RequestMeter

log = structlog.get_logger("kraft.broker")


class Broker:
    """The parts of one broker. Parts whose constructors need the Broker are set after it is created and before it
    serves."""

    controller: ControllerChannel
    dispatcher: Dispatcher
    groups: GroupCoordinators
    lifecycle: BrokerLifecycle
    replicas: ReplicaManager
    auto_topics: AutoTopicCreation
    metadata_topic: MetadataTopic
    producer_ids: ProducerIds
    marker_writer: MarkerWriter
    transactions: TransactionCoordinators
    enrolment: PartitionEnrolment
    share_coordinators: ShareCoordinators
    share_persister: SharePersister
    end_offsets: EndOffsets
    shares: LedSharePartitions

    def __init__(
        self,
        config: NodeConfig,
        seam: Seam,
        *,
        cluster_id: str,
        incarnation_id: UUID,
        requests: RequestMeter,
        gates: Gates,
        dynamic_configs: DynamicConfigs,
        start_task: Callable[..., None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`start_task(function, *arguments)` runs an async function in the node's nursery; `fail` stops the node."""
        self.config = config
        self.seam = seam
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.incarnation_id = incarnation_id
        self.requests = requests
        self.gates = gates
        self.dynamic_configs = dynamic_configs
        self.log_limit = LogLimit(seam.clock)
        self.departed = DepartedBrokers(seam.clock, config.integer("broker.session.timeout.ms"))
        self.advertised: tuple[Endpoint, ...] = ()
        self._start_task = start_task
        self._fail = fail

    def start_task(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run the async `function(*arguments)` in the background. An error in it stops the node."""
        self._start_task(function, *arguments)

    def log_directory_failed(self, directory: str, directory_id: UUID, why: str) -> None:
        """Report an offline log directory to the controller. If no log directory is online, stop the node, as Kafka
        does."""
        log.error("log directory is offline", directory=directory, directory_id=directory_id, why=why)
        self.lifecycle.directory_went_offline(directory, directory_id, why)
        if not self.replicas.directories.online:
            error = DiskError(f"no log directory is left: {why}", errno=EIO, path=directory)
            log.critical("node stops", error=str(error), exc_info=error)
            self._fail(error)
