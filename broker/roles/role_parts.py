"""RoleParts: create and connect the objects that give replicas their roles from an image.

It decides little itself: it creates each Partition and passes new settings to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.broker.partition.partition import Partition
from kraft.broker.roles.fetches_awaiting_roles import FetchesAwaitingRoles
from kraft.broker.roles.replica_placement import ReplicaPlacement
from kraft.broker.roles.replica_removal import ReplicaRemoval
from kraft.broker.roles.role_applier import RoleApplier
from kraft.broker.roles.role_turns import RoleTurns

if TYPE_CHECKING:
    from kraft.broker.following.fetchers import Fetchers
    from kraft.broker.logs.directory_assignments import DirectoryAssignments
    from kraft.broker.logs.log_parts import LogParts
    from kraft.broker.logs.lost_replicas import LostReplicas
    from kraft.broker.partition.log_directories import LogDirectories
    from kraft.broker.partition.partition_host import PartitionHost
    from kraft.broker.partition.replica_index import ReplicaIndex
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.broker.serving.loop import Loop
    from kraft.broker.serving.metrics.topics import TopicMetrics
    from kraft.image.image import MetadataImage
    from kraft.image.partitions import TopicImage


class RoleParts:
    """The parts that apply roles. `turns` applies the roles of each newer image; `awaiting_fetches` holds the fetches
    that wait for a role."""

    def __init__(
        self,
        loop: Loop,
        host: PartitionHost,
        hosted: ReplicaIndex,
        directories: LogDirectories,
        fetchers: Fetchers,
        assignments: DirectoryAssignments,
        lost: LostReplicas,
        logs: LogParts,
        *,
        dynamic_configs: DynamicConfigs,
        topic_metrics: TopicMetrics,
        newest_image: Callable[[], MetadataImage],
    ) -> None:
        self._loop = loop
        self._host = host
        self._hosted = hosted
        self._fetchers = fetchers
        self._context = logs.context
        self._dynamic_configs = dynamic_configs
        self._topic_metrics = topic_metrics
        self.removal = ReplicaRemoval(
            hosted,
            fetchers,
            give_up_move=logs.moves.give_up,
            retire=logs.retirement.retire,
            forget_topic=topic_metrics.forget,
        )
        self.roles = RoleApplier(
            host.node_id,
            hosted,
            fetchers,
            ReplicaPlacement(host.node_id, directories, assignments, lost, logs.opener.request_soon),
            new_replica=self._new_replica,
            remove=self.removal.remove,
        )
        self.turns = RoleTurns(
            loop,
            host.node_id,
            newest_image(),
            hosted,
            self.roles,
            take_brokers=host.take_brokers,
            redirect=fetchers.redirect,
            configure=self._configure,
            after_turn=self._end_turn,
        )
        self.awaiting_fetches = FetchesAwaitingRoles(host.node_id, lambda: self.turns.image, lambda: self.turns.is_over)

    def _new_replica(self, topic: TopicImage, index: int) -> Partition:
        configs, meters = self._dynamic_configs.topic(topic.name), self._topic_metrics.of(topic.name)
        partition = Partition(self._host, topic.name, topic.topic_id, index, configs, meters)
        self._hosted.host(partition)
        self.awaiting_fetches.replica_hosted(partition)
        return partition

    def _configure(self, partition: Partition) -> None:
        if partition.is_removed:
            return
        partition.configure(self._dynamic_configs.topic(partition.topic))
        if partition.log is not None:
            partition.log.update_config(self._context.config_of(partition))

    def _end_turn(self) -> None:
        self.awaiting_fetches.roles_applied()
        self._fetchers.nudge()
        self._loop.request_pass()
