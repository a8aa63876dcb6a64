"""RoleApplier: apply the partition states of an image to this broker's replicas, which gives each replica its role.

Invariants: a partition is removed from its fetcher before its role changes, so a late fetch response has no effect on
it. Fetching restarts only in a new leader epoch.
Source: Kafka's ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kraft.broker.replica.role import RoleChange, decide_role
from kraft.image.partitions import PartitionState

if TYPE_CHECKING:
    from kraft.broker.following.fetchers import Fetchers
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.replica_index import ReplicaIndex
    from kraft.broker.roles.replica_placement import ReplicaPlacement
    from kraft.image.image import MetadataImage
    from kraft.image.partitions import TopicImage


class AssignedPartition(NamedTuple):
    """A partition whose state this broker must apply. `is_new`: it was assigned to this broker just now."""

    topic_id: UUID
    number: int
    is_new: bool = False


class RoleApplier:
    """Applies roles to one broker's replicas. `apply` is not a coroutine."""

    def __init__(
        self,
        node_id: int,
        hosted: ReplicaIndex,
        fetchers: Fetchers,
        placement: ReplicaPlacement,
        *,
        new_replica: Callable[[TopicImage, int], Partition],
        remove: Callable[[Partition], None],
    ) -> None:
        """`new_replica(topic, index)` creates a replica and hosts it; `remove` removes a replica."""
        self._node_id = node_id
        self._hosted = hosted
        self._fetchers = fetchers
        self._placement = placement
        self._new_replica = new_replica
        self._remove = remove

    def apply(self, image: MetadataImage, assigned: AssignedPartition) -> None:
        """Apply the state of one partition in an image. After all states are applied, the caller calls `nudge` of the
        fetchers."""
        topic_id, index, is_new = assigned
        topic = image.topics.get_by_id(topic_id)
        state = None if topic is None else topic.find(index)
        partition = self._hosted.find(topic_id, index)
        change = decide_role(self._node_id, None if partition is None else partition.state, state)
        if topic is None or state is None or change is RoleChange.REMOVE:
            if partition is not None:
                self._remove(partition)
        elif change is not RoleChange.IGNORE:
            if partition is None:
                partition = self._new_replica(topic, index)
                self._placement.place(partition, state, is_new=is_new)
            leads = change in (RoleChange.LEAD, RoleChange.KEEP_LEADING)
            (self._lead if leads else self._follow)(partition, state, change)

    def _lead(self, partition: Partition, state: PartitionState, change: RoleChange) -> None:
        if change is RoleChange.LEAD:
            self._fetchers.stop(partition)
            partition.lead(state)
            self._placement.open_log_if_needed(partition)
        else:
            partition.keep_leading(state)

    def _follow(self, partition: Partition, state: PartitionState, change: RoleChange) -> None:
        if change is RoleChange.FOLLOW:
            self._fetchers.stop(partition)
            partition.follow(state)
            self._placement.open_log_if_needed(partition)
            self._fetchers.begin(partition)
        else:
            partition.keep_following(state)
