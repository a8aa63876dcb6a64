"""GroupCoordinators: the coordinators of all offsets partitions that this broker leads, and the lookup of a group's
coordinator.

Invariant: a shard exists for exactly those partitions of the offsets topic that this broker leads in the newest image,
in the leader epoch of that image. Source: Kafka's GroupCoordinatorService, docs/decisions/14-group-coordinator.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import structlog
import trio

from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC
from kraft.broker.coordinator.shard_driver import CoordinatorPorts, CoordinatorShard, ShardState
from kraft.broker.group.admission import request_error
from kraft.broker.group.placement import partition_of
from kraft.broker.group.requests import (
    ExpireRequest,
    ListedGroup,
    ListReply,
    ListRequest,
    Request,
    Ticket,
    TopicsGoneRequest,
)
from kraft.broker.group.shard import REMOVAL_BYTES_MAX, GroupCounts, GroupSettings
from kraft.seam.measures import Histogram
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records.compression import Compression

if TYPE_CHECKING:
    from kraft.broker.group.coordinator import GroupCoordinator
    from kraft.config import NodeConfig
    from kraft.image import ImageDelta, MetadataImage

log = structlog.get_logger("kraft.broker.groups")

MINUTE_MS = 60_000
OFFSETS_PER_STEP = 2_000
"""Number of offsets that a round over all groups examines before other tasks run. Each group counts as one more."""

Topic = tuple[str, UUID | None]
"""Topic name and the topic id stored with the offset; None for offsets that were stored without one."""


class ImageWatcher(Protocol):
    """A request that waits until a coordinator is known."""

    def image_changed(self) -> None: ...


class GroupCoordinators:
    """The group coordinators of one broker. All methods except the periodic rounds are plain calls."""

    def __init__(
        self,
        config: NodeConfig,
        ports: CoordinatorPorts,
        newest_image: Callable[[], MetadataImage],
    ) -> None:
        self.ports = ports
        self._loop = ports.loop
        self._node_id = config.node_id
        self._newest_image = newest_image
        self.commit_timeout_ms = config.integer("offsets.commit.timeout.ms")
        self.load_bytes = config.integer("offsets.load.buffer.size")
        self.codec = Compression.of(config.integer("offsets.topic.compression.codec"))
        self.settings = GroupSettings(
            initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
            session_timeout_ms_min=config.integer("group.min.session.timeout.ms"),
            session_timeout_ms_max=config.integer("group.max.session.timeout.ms"),
            members_max=config.integer("group.max.size"),
            metadata_chars_max=config.integer("offset.metadata.max.bytes"),
            retention_ms=config.integer("offsets.retention.minutes") * MINUTE_MS,
            removal_bytes_max=min(REMOVAL_BYTES_MAX, config.integer("message.max.bytes") // 2),
        )
        self._check_interval_ms = config.integer("offsets.retention.check.interval.ms")
        self._shards: dict[int, CoordinatorShard] = {}
        self.counts = GroupCounts()
        self.load_ms = Histogram()
        """Loading times of the partitions, in ms."""
        self.watchers: dict[ImageWatcher, None] = {}
        """Watchers that wait for a newer image. Each is notified once, then removed."""
        self._gone: set[Topic] = set()
        """Deleted topics whose offsets the next round of `_forget_deleted` removes."""
        self._is_forgetting = False

    @property
    def shards(self) -> dict[int, CoordinatorShard]:
        """The shards, by partition of the offsets topic; read-only."""
        return self._shards

    # requests

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Answer a request of one group, now or later, by calling `ticket(reply)`. Errors in the request itself take
        precedence over all others."""
        error = request_error(request, self.settings)
        if error is not ErrorCode.NONE:
            ticket(request.refused(error))
            return
        topic = self._newest_image().topics.get(OFFSETS_TOPIC)
        shard = None if topic is None else self._shards.get(partition_of(request.group, topic.partition_count))
        if shard is None:
            ticket(request.refused(ErrorCode.NOT_COORDINATOR))
        else:
            shard.submit(request, ticket)

    def list_groups(self, ticket: Ticket) -> None:
        """Return every group that this broker coordinates, as one ListReply. It has an error if one of the partitions
        cannot list its groups."""
        shards = [self._shards[index] for index in sorted(self._shards)]
        groups: list[ListedGroup] = []
        errors: list[ErrorCode] = []
        missing = len(shards)

        def answered(reply: ListReply) -> None:
            nonlocal missing
            missing -= 1
            groups.extend(reply.groups)
            if reply.error not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                errors.append(reply.error)
            if not missing:
                finish()

        def finish() -> None:
            error = errors[0] if errors else ErrorCode.NONE
            ticket(ListReply(error, tuple(sorted(groups)) if not errors else ()))

        if not shards:
            finish()
        for shard in shards:
            shard.submit(ListRequest(), answered)

    # images

    def metadata_loaded(self, image: MetadataImage) -> None:
        """Start coordinating every partition that this broker leads in the first image."""
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            for index in range(topic.partition_count):
                self._take(image, index)

    def metadata_published(self, new: MetadataImage, delta: ImageDelta) -> None:
        """Apply a newer image, whose roles the replica manager has already applied."""
        if OFFSETS_TOPIC in delta.deleted_topics.values():
            for shard in list(self._shards.values()):
                shard.close()
        topic = new.topics.get(OFFSETS_TOPIC)
        if topic is not None and topic.topic_id in delta.topics:
            for index in delta.topics[topic.topic_id].partitions:
                self._take(new, index)
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher.image_changed()
        if delta.deleted_topics:
            self._gone |= {(name, one) for topic_id, name in delta.deleted_topics.items() for one in (topic_id, None)}
            self._loop.start_task(self._forget_deleted)

    def _take(self, image: MetadataImage, index: int) -> None:
        """Start, continue or stop coordinating a partition."""
        topic = image.topics.by_name[OFFSETS_TOPIC]
        state = topic.partition(index)
        shard = self._shards.get(index)
        partition = self.ports.find_replica(topic.topic_id, index)
        leads = partition is not None and state.leader == self._node_id
        if shard is not None:
            if leads and shard.partition is partition and shard.leader_epoch == state.leader_epoch:
                return
            shard.close()
        if leads and partition is not None:
            self._begin(CoordinatorShard(self, partition, state.leader_epoch))

    def _begin(self, shard: CoordinatorShard) -> None:
        self._shards[shard.partition.index] = shard
        self._loop.start_task(shard.run)

    # calls from shards

    def shard_loaded(self, shard: CoordinatorShard) -> None:
        """Remove offsets of topics that were deleted while no shard of this partition could write the removal."""

        def is_gone(topic: Topic) -> bool:
            topic_id = topic[1]
            return topic_id is not None and self._newest_image().topics.name_of(topic_id) is None

        self._loop.start_task(self._forget_topics, shard, is_gone)

    def shard_closed(self, shard: CoordinatorShard) -> None:
        index = shard.partition.index
        if self._shards.get(index) is shard:
            del self._shards[index]

    def reload(self, shard: CoordinatorShard) -> None:
        """Load the shard again from the log, because the log does not end where the shard expects."""
        shard.close()
        self._begin(CoordinatorShard(self, shard.partition, shard.leader_epoch))

    # rounds

    async def expire_forever(self) -> None:
        """Remove expired offsets every `offsets.retention.check.interval.ms`."""
        while True:
            await self._loop.clock.sleep_ms(self._check_interval_ms)
            for shard in list(self._shards.values()):
                await self._expire(shard)
            self._loop.request_pass()

    async def _expire(self, shard: CoordinatorShard) -> None:
        if shard.state is ShardState.ACTIVE and shard.machine is not None:
            async for group in groups_in_steps(shard.machine):
                shard.submit(ExpireRequest(group), _no_reply)

    async def _forget_deleted(self) -> None:
        """Remove the offsets of all topics deleted up to now; run another round if more topics are deleted meanwhile. A
        shard that is being loaded does this itself afterwards."""
        if self._is_forgetting:
            return
        self._is_forgetting = True
        while self._gone:
            gone, self._gone = self._gone, set()
            for shard in list(self._shards.values()):
                await self._forget_topics(shard, gone.__contains__)
        self._is_forgetting = False

    async def _forget_topics(self, shard: CoordinatorShard, is_gone: Callable[[Topic], bool]) -> None:
        """Remove the offsets of these topics."""
        if shard.machine is None:
            return
        async for group in groups_in_steps(shard.machine):
            gone = frozenset(filter(is_gone, shard.machine.topics_of(group)))
            if gone:
                shard.submit(TopicsGoneRequest(group, gone), _no_reply)
                self._loop.request_pass()


async def groups_in_steps(machine: GroupCoordinator) -> AsyncIterator[str]:
    """Yield every group. After each OFFSETS_PER_STEP offsets, let other tasks run."""
    looked_at = 0
    for group in machine.group_ids():
        if looked_at >= OFFSETS_PER_STEP:
            await trio.lowlevel.checkpoint()
            looked_at = 0
        looked_at += 1 + machine.offset_count(group)
        yield group


def _no_reply(reply: object) -> None:
    """Ignore a reply for which no client waits."""
