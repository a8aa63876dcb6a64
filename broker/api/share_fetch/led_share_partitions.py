"""LedSharePartitions: the share partitions for which this broker leads the partition.

Invariant: a share partition is kept only in the leader epoch in which it was loaded. Source: Kafka's
SharePartitionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kraft.broker.api.share_fetch.led_share_partition import LedSharePartition
from kraft.broker.api.share_fetch.share_meters import GroupFetchMeters, ShareCounts
from kraft.broker.api.share_fetch.share_sessions import ShareMember, ShareSessionCache, TopicIdPartition
from kraft.broker.share_coordinator.records import ShareKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.coordinator.share_group_settings import ShareGroupSettings
    from kraft.broker.coordinator.share_persister import SharePersister
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.partition_host import WokenRequest
    from kraft.broker.serving.loop import Loop


class LedSharePartitions:
    """The loaded share partitions and the share sessions of one broker. No method is a coroutine."""

    def __init__(
        self,
        loop: Loop,
        persister: SharePersister,
        settings_of: Callable[[str], ShareGroupSettings],
        woken: dict[WokenRequest, None],
        *,
        sessions_max: int,
    ) -> None:
        """Requests in `woken` are checked at the end of the pass."""
        self.sessions = ShareSessionCache(sessions_max)
        self.counts = ShareCounts()
        self.group_meters: dict[str, GroupFetchMeters] = {}
        """Meters of each group that has share partitions here."""
        self.settings_of = settings_of
        self.woken = woken
        self._loop = loop
        self._persister = persister
        self._by_group: dict[str, dict[TopicIdPartition, LedSharePartition]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    def __iter__(self) -> Iterator[LedSharePartition]:
        """Yield all share partitions; others may come and go meanwhile."""
        for partitions in list(self._by_group.values()):
            yield from list(partitions.values())

    def find(self, group: str, partition: TopicIdPartition) -> LedSharePartition | None:
        """Return a share partition that is loaded or being loaded."""
        return self._by_group.get(group, {}).get(partition)

    def find_or_load(self, group: str, partition: Partition) -> LedSharePartition:
        """Return the share partition of a partition that this broker leads. Begin to load it if necessary."""
        known = self.find(group, (partition.topic_id, partition.index))
        if known is not None and known.partition is partition and known.leader_epoch == partition.leader_epoch:
            known.use()
            return known
        if known is not None:
            known.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        share = LedSharePartition(
            ShareKey(group, partition.topic_id, partition.index),
            partition,
            loop=self._loop,
            persister=self._persister,
            settings_of=self.settings_of,
            counts=self.counts,
            closed=self._closed,
        )
        self.group_meters.setdefault(group, GroupFetchMeters())
        self._by_group.setdefault(group, {})[partition.topic_id, partition.index] = share
        share.load()
        return share

    def _closed(self, share: LedSharePartition) -> None:
        key = share.key
        partitions = self._by_group.get(key.group, {})
        if partitions.get((key.topic_id, key.partition)) is share:
            del partitions[key.topic_id, key.partition]
            if not partitions:
                del self._by_group[key.group]
                del self.group_meters[key.group]

    # members

    def close_session(self, member: ShareMember) -> None:
        """Close a member's share session, and release all records that the member holds here. The share partitions of a
        group without sessions are forgotten."""
        self.sessions.close(member)
        is_last = not self.sessions.has_group(member.group)
        for share in list(self._by_group.get(member.group, {}).values()):
            share.release(member.member)
            if is_last:
                share.close_when_idle()

    def connection_closed(self, number: int) -> None:
        """Close the share sessions that this connection opened."""
        for member in self.sessions.of_connection(number):
            self.counts.evicted_sessions += 1
            self.close_session(member)
