"""Taking roles: what the states of an image make of this broker's replicas, and the fetchers of those that follow.

Invariants: roles are taken in the order deletes, leaders, followers; a partition is out of its fetcher before its role
changes, so that a late answer finds nothing; fetching is restarted only in a new leader epoch.
Source: kraft-spec C.3; broker-spec 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import structlog

from kraft.broker.node.fetcher import LeaderFetcher
from kraft.broker.node.partition import Partition
from kraft.broker.replica.role import RoleChange, decide_role
from kraft.image.partitions import NO_LEADER, PartitionState
from kraft.image.registrations import UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from kraft.broker.node.replica_manager import ReplicaManager
    from kraft.image.partitions import TopicImage

log = structlog.get_logger("kraft.broker.replicas")


class ReplicaRoles:
    """The roles of one broker's replicas. All plain calls."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._fetchers: dict[int, LeaderFetcher] = {}

    @property
    def fetchers(self) -> list[LeaderFetcher]:
        """One for each broker that was ever followed."""
        return list(self._fetchers.values())

    def take(
        self,
        states: Iterable[tuple[TopicImage, int, PartitionState]],
        is_new: Callable[[TopicImage, int], bool],
    ) -> None:
        leading: list[tuple[Partition, PartitionState, RoleChange]] = []
        following: list[tuple[Partition, PartitionState, RoleChange]] = []
        for topic, index, state in states:
            partition = self._manager.find(topic.topic_id, index)
            change = decide_role(self._manager.node_id, None if partition is None else partition.state, state)
            if change is RoleChange.REMOVE:
                if partition is not None:
                    self.remove(partition)
                continue
            if change is RoleChange.IGNORE:
                continue
            if partition is None:
                partition = self._host(topic, index, state, is_new=is_new(topic, index))
            leads = change in (RoleChange.LEAD, RoleChange.KEEP_LEADING)
            (leading if leads else following).append((partition, state, change))
        for partition, state, change in leading:
            self._lead(partition, state, change)
        for partition, state, change in following:
            self._follow(partition, state, change)
        for fetcher in self._fetchers.values():
            fetcher.nudge()

    def _lead(self, partition: Partition, state: PartitionState, change: RoleChange) -> None:
        if change is RoleChange.LEAD:
            self.stop_fetching(partition)
            partition.lead(state)
        else:
            partition.keep_leading(state)

    def _follow(self, partition: Partition, state: PartitionState, change: RoleChange) -> None:
        if change is RoleChange.FOLLOW:
            self.stop_fetching(partition)
            partition.follow(state)
            self.begin_to_follow(partition)
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
        self._manager.topics.setdefault(topic.topic_id, {})[index] = partition
        self._manager.topics[topic.name] = self._manager.topics[topic.topic_id]
        assigned = state.directory_of(self._manager.node_id)
        directory = self._manager.directories.place(topic.name, index, assigned, is_new=is_new)
        if directory is None:
            log.error("replica may be in a log directory that is offline", topic=topic.name, partition=index)
            partition.is_offline = True
            if assigned in (None, UNASSIGNED_DIRECTORY, *self._manager.directories.ids):
                self._manager.report_lost(partition)  # the controller cannot know that it was there
            return partition
        partition.directory = directory
        directory.partitions[partition] = None
        self._manager.open_soon(partition)
        return partition

    def begin_to_follow(self, partition: Partition) -> None:
        """Fetch from the leader, if there is one and the log is open and not being cut; else that comes later."""
        state = partition.state
        if state is None or partition.log is None or state.leader in (NO_LEADER, self._manager.node_id):
            return
        if partition.is_truncating:
            return
        fetcher = self._fetchers.get(state.leader)
        if fetcher is None:
            fetcher = self._fetchers[state.leader] = LeaderFetcher(self._manager, state.leader)
            self._manager.start_task(fetcher.run)
        if fetcher.followed(partition) is None:
            fetcher.add(partition, state.leader_epoch)
            fetcher.nudge()

    def stop_fetching(self, partition: Partition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)

    def remove(self, partition: Partition) -> None:
        """The replica is not this broker's any more: stop, then take its folder away."""
        self.stop_fetching(partition)
        self._manager.moves.give_up(partition)
        by_index = self._manager.topics.get(partition.topic_id)
        if by_index is not None:
            by_index.pop(partition.index, None)
            if not by_index:
                del self._manager.topics[partition.topic_id]
                if self._manager.topics.get(partition.topic) is by_index:
                    del self._manager.topics[partition.topic]
                    self._manager.topic_metrics.forget(partition.topic)
        opened = partition.log
        partition.removed()
        if partition.directory is not None:
            partition.directory.partitions.pop(partition, None)
            self._manager.retirement.retire(partition, opened)

    def redirect(self, brokers: Iterable[int]) -> None:
        """A broker that came back may be reached elsewhere: its fetcher reads the endpoint anew when it dials."""
        for broker_id in brokers:
            fetcher = self._fetchers.get(broker_id)
            if fetcher is not None:
                fetcher.endpoint_changed()
