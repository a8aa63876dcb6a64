"""CoordinatorShards: the shards of one coordinator's topic on this broker, and the lookup of the shard for a key.

Invariant: a shard exists for exactly those partitions of the topic that this broker leads in the newest image, in the
leader epoch of that image. Source: Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from kraft.broker.coordinator.shard_driver import CoordinatorPorts, CoordinatorShard, MachineT, ShardKind
from kraft.broker.shard.placement import partition_of

if TYPE_CHECKING:
    from kraft.image import ImageDelta, MetadataImage


class CoordinatorShards(Generic[MachineT]):
    """The shards of one coordinator's topic on this broker. No method is a coroutine; loading runs in a task per
    shard."""

    def __init__(
        self,
        topic: str,
        node_id: int,
        ports: CoordinatorPorts,
        newest_image: Callable[[], MetadataImage],
        make_kind: Callable[[CoordinatorShards[MachineT]], ShardKind[MachineT]],
    ) -> None:
        self.by_partition: dict[int, CoordinatorShard[MachineT]] = {}
        """The shards by partition of the topic; callers must not change the mapping."""
        self._topic = topic
        self._node_id = node_id
        self._ports = ports
        self._newest_image = newest_image
        self._kind = make_kind(self)

    def all(self) -> list[CoordinatorShard[MachineT]]:
        """Return the current shards, sorted by partition. A shard may close while the caller iterates."""
        return [self.by_partition[index] for index in sorted(self.by_partition)]

    def find(self, key: str) -> CoordinatorShard[MachineT] | None:
        """Return the shard that keeps this group or transactional id; None if another broker has it."""
        topic = self._newest_image().topics.get(self._topic)
        return None if topic is None else self.by_partition.get(partition_of(key, topic.partition_count))

    # the metadata

    def metadata_loaded(self, image: MetadataImage) -> None:
        """Begin a shard for each partition that this broker leads in the first image."""
        topic = image.topics.get(self._topic)
        if topic is not None:
            for index in range(topic.partition_count):
                self._take(image, index)

    def metadata_published(self, new: MetadataImage, delta: ImageDelta) -> None:
        """Begin and close shards as a newer image requires. The broker has already applied the roles of that image."""
        if self._topic in delta.deleted_topics.values():
            for shard in self.all():
                shard.close()
        topic = new.topics.get(self._topic)
        if topic is not None and topic.topic_id in delta.topics:
            for index in delta.topics[topic.topic_id].partitions:
                self._take(new, index)

    def _take(self, image: MetadataImage, index: int) -> None:
        """Begin, keep or close the shard of a partition, depending on who leads it."""
        topic = image.topics.by_name[self._topic]
        state = topic.partition(index)
        shard = self.by_partition.get(index)
        partition = self._ports.find_replica(topic.topic_id, index)
        leads = partition is not None and state.leader == self._node_id
        if shard is not None:
            if leads and shard.partition is partition and shard.leader_epoch == state.leader_epoch:
                return
            shard.close()
        if leads and partition is not None:
            self._begin(CoordinatorShard(self._kind, self._ports, partition, state.leader_epoch))

    def _begin(self, shard: CoordinatorShard[MachineT]) -> None:
        self.by_partition[shard.partition.index] = shard
        self._ports.loop.start_task(shard.run)

    # calls from shards

    def closed(self, shard: CoordinatorShard[MachineT]) -> None:
        index = shard.partition.index
        if self.by_partition.get(index) is shard:
            del self.by_partition[index]

    def reload(self, shard: CoordinatorShard[MachineT]) -> None:
        """Load the shard again, because the log does not end where the state machine expects."""
        shard.close()
        self._begin(CoordinatorShard(self._kind, self._ports, shard.partition, shard.leader_epoch))
