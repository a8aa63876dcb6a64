"""HandlerContext: the parts of a broker that its request handlers use.

Some handlers get fewer parts: those of Produce, Fetch, ApiVersions, Identify, of requests that are forwarded to the
controller, and of absent features. The table shows which parts each of them gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.broker.serving.session import Session
from kraft.broker.serving.turns import Steps
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.fetch.metadata_topic import MetadataTopic
    from kraft.broker.api.share_fetch.led_share_partitions import LedSharePartitions
    from kraft.broker.coordinator.end_offsets import EndOffsets
    from kraft.broker.coordinator.group_coordinators import GroupCoordinators
    from kraft.broker.coordinator.marker_writer import MarkerWriter
    from kraft.broker.coordinator.producer_id_blocks import ProducerIds
    from kraft.broker.coordinator.share_coordinators import ShareCoordinators
    from kraft.broker.coordinator.transaction_coordinators import TransactionCoordinators
    from kraft.broker.coordinator.transactional_commits import TransactionalCommits
    from kraft.broker.logs.damaged_logs import DamagedLogs
    from kraft.broker.logs.disk_failures import DiskFailures
    from kraft.broker.logs.moves import ReplicaMoves
    from kraft.broker.partition.log_directories import HostedDirectory, LogDirectories
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.departed import DepartedBrokers
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.loop import Loop
    from kraft.config import NodeConfig
    from kraft.image import Endpoint, MetadataImage
    from kraft.node.log_limit import LogLimit
    from kraft.wire.error_codes import ErrorCode

Handler = Callable[[Request, Session], Steps | None]
"""Function that answers a request, now or later. A handler with long work on the event loop returns an iterator of
steps, which take a few milliseconds each."""


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """Parts and callables of one broker, for its request handlers.

    `find` and `locate` are those of `ReplicaIndex`. `create_topics(session, names)` creates topics in the background.
    `ask_share_coordinator(request, ticket)` is `SharePersister.ask`.
    `check_leaders(broker_ids, then)` later calls `then` with the ids of the brokers whose process has ended.

    A handler that cannot answer during its call continues in one of three ways; in each, an error fails only its
    request. From a callback, `finish(request, function, *arguments)` calls the function. `continue_in_steps(request,
    steps)` runs the steps, with other work between them. `answer_later(request, function, *arguments)` awaits the
    function in a task."""

    node_id: int
    cluster_id: str
    config: NodeConfig
    loop: Loop
    gates: Gates
    log_limit: LogLimit
    dynamic_configs: DynamicConfigs
    newest_image: Callable[[], MetadataImage]
    departed: DepartedBrokers

    # parts of the data plane
    find: Callable[[str | UUID | None, int], Partition | None]
    locate: Callable[[str, int], Partition | ErrorCode]
    directories: LogDirectories
    failures: DiskFailures
    damaged_logs: DamagedLogs
    moves: ReplicaMoves
    write_log_starts_of: Callable[[HostedDirectory], Awaitable[None]]

    # parts above the data plane: coordinators, controller, topic creation
    groups: GroupCoordinators
    transactions: TransactionCoordinators
    share_coordinators: ShareCoordinators
    ask_share_coordinator: Callable[[Any, Callable[[Any], None]], None]
    end_offsets: EndOffsets
    shares: LedSharePartitions
    marker_writer: MarkerWriter
    transactional_commits: TransactionalCommits
    metadata_topic: MetadataTopic
    producer_ids: ProducerIds
    create_topics: Callable[[Session, list[str]], None]
    check_leaders: Callable[[frozenset[int], Callable[[frozenset[int]], None]], None]

    # ways in which a request continues after its handler has returned
    finish: Callable[..., None]
    continue_in_steps: Callable[[Request, Steps], None]
    answer_later: Callable[..., None]

    @property
    def image(self) -> MetadataImage:
        """The newest published image (committed metadata only)."""
        return self.newest_image()

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return the address at which clients of `listener` reach a broker. Return None if the broker is fenced or does
        not have that listener."""
        registration = self.newest_image().brokers.get(broker_id)
        if registration is None or registration.fenced:
            return None
        return next((endpoint for endpoint in registration.endpoints if endpoint.name == listener), None)
