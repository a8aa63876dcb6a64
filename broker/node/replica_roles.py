"""Taking roles: apply the states of an image to this broker's replicas, and to the fetchers of those that follow.

Invariants: roles are taken in the order deletes, leaders, followers. A partition is out of its fetcher before its role
changes, so that a late answer finds nothing. Fetching is restarted only in a new leader epoch.
Source: Kafka's ReplicaManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from kraft.broker.node.partition import Partition
from kraft.broker.replica.role import RoleChange, decide_role
from kraft.image.partitions import NO_LEADER, PartitionState
from kraft.image.registrations import UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from kraft.broker.node.replica_manager import ReplicaManager
    from kraft.image.partitions import TopicImage

log = structlog.get_logger("kraft.broker.replicas")


class Assigned(NamedTuple):
    """A partition whose state this broker has to look at. `is_new`: it was assigned to this broker just now."""

    topic_id: UUID
    number: int
    is_new: bool = False


class ReplicaRoles:
    """The roles of one broker's replicas. All plain calls."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    def take(self, assigned: Assigned) -> None:
        """What the newest image makes of one partition. `nudge` when all are taken."""
        topic_id, index, is_new = assigned
        manager = self._manager
        topic = manager.image.topics.get_by_id(topic_id)
        state = None if topic is None else topic.find(index)
        partition = manager.find(topic_id, index)
        change = decide_role(manager.node_id, None if partition is None else partition.state, state)
        if topic is None or state is None or change is RoleChange.REMOVE:
            if partition is not None:
                self.remove(partition)
        elif change is not RoleChange.IGNORE:
            if partition is None:
                partition = self._host(topic, index, state, is_new=is_new)
            leads = change in (RoleChange.LEAD, RoleChange.KEEP_LEADING)
            (self._lead if leads else self._follow)(partition, state, change)

    def _lead(self, partition: Partition, state: PartitionState, change: RoleChange) -> None:
        if change is RoleChange.LEAD:
            self._manager.fetchers.stop(partition)
            partition.lead(state)
            self._look_after_log(partition)
        else:
            partition.keep_leading(state)

    def _follow(self, partition: Partition, state: PartitionState, change: RoleChange) -> None:
        if change is RoleChange.FOLLOW:
            self._manager.fetchers.stop(partition)
            partition.follow(state)
            self._look_after_log(partition)
            self._manager.fetchers.begin(partition)
        else:
            partition.state = state

    def _host(self, topic: TopicImage, index: int, state: PartitionState, *, is_new: bool) -> Partition:
        """A replica that is not hosted yet."""
        partition = Partition(
            self._manager,
            topic.name,
            topic.topic_id,
            index,
            self._manager.services.dynamic_configs.topic(topic.name),
            self._manager.topic_metrics.of(topic.name),
        )
        self._manager.hosted.host(partition)
        self._manager.awaited_roles.hosted(partition)
        assigned = state.directory_of(self._manager.node_id)
        directory = self._manager.directories.place(topic.name, index, assigned, is_new=is_new)
        if directory is None:
            log.error("replica may be in a log directory that is offline", topic=topic.name, partition=index)
            partition.is_offline = True
            if assigned in (None, UNASSIGNED_DIRECTORY, *self._manager.directories.ids):
                self._manager.lost.report(partition)  # the controller cannot know that it was there
            return partition
        partition.directory = directory
        partition.is_blank = (topic.name, index) not in directory.held
        directory.partitions.add(partition)
        return partition

    def _look_after_log(self, partition: Partition) -> None:
        """A role was taken: open the log, unless it can wait. It can if there is none yet; and if we follow nobody and
        nothing of it is to be recovered: followers and clients ask for it when they need it."""
        directory, state = partition.directory, partition.state
        if directory is None or state is None or partition.log is not None or partition.is_offline:
            return
        assignments = self._manager.assignments
        if partition.is_blank:
            assignments.report(partition, directory.directory_id)
        elif not (
            state.leader in (NO_LEADER, self._manager.node_id)
            and directory.is_clean
            and assignments.is_known(partition, directory.directory_id)
            and (partition.topic, partition.index) not in self._manager.directories.interrupted
        ):
            self._manager.open_soon(partition)

    def remove(self, partition: Partition) -> None:
        """The replica is not this broker's any more: stop, then take its folder away."""
        self._manager.fetchers.stop(partition)
        self._manager.moves.give_up(partition)
        if self._manager.hosted.drop(partition):
            self._manager.topic_metrics.forget(partition.topic)
        opened = partition.log
        has_folder = not partition.is_blank or partition.blocking.locked()  # or it is just being made
        partition.removed()
        if partition.directory is not None:
            partition.directory.partitions.discard(partition)
            if has_folder:
                self._manager.retirement.retire(partition, opened)
