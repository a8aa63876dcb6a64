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

from kraft.broker.consumer_group.settings import SettingsOf, default_settings
from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC
from kraft.broker.coordinator.shard_driver import CoordinatorPorts, CoordinatorShard, ShardKind, ShardState
from kraft.broker.coordinator.shards import CoordinatorShards
from kraft.broker.coordinator.share_group_states import AskShareCoordinator, ShareSettingsOf, carry_out_share_state_work
from kraft.broker.group.admission import request_refusal
from kraft.broker.group.coordinator import GroupCoordinator
from kraft.broker.group.durable import EMPTY_STATE, DurableState
from kraft.broker.group.records import decode_entry, encode_entry
from kraft.broker.group.requests import (
    ExpireRequest,
    ListedGroup,
    ListReply,
    ListRequest,
    MarkerReply,
    MarkerRequest,
    Request,
    Ticket,
    TopicsGoneRequest,
)
from kraft.broker.group.shard import REMOVAL_BYTES_MAX, GroupCounts, GroupSettings, default_share_settings
from kraft.image.topics import TopicsImage
from kraft.seam.measures import Histogram
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records.compression import Compression

if TYPE_CHECKING:
    from kraft.broker.group.coordinator import GroupCoordinator
    from kraft.broker.group.step import CoordinatorStep
    from kraft.broker.partition.partition import Partition
    from kraft.config import NodeConfig
    from kraft.image import ImageDelta, MetadataImage

log = structlog.get_logger("kraft.broker.groups")

MINUTE_MS = 60_000
OFFSETS_PER_STEP = 2_000
"""Number of offsets that a round over all groups examines before other tasks run. Each group counts as one more."""

Topic = tuple[str, UUID | None]
"""Name and topic id of a topic, as stored with an offset. The id is None for offsets that were stored without one."""


GroupShard = CoordinatorShard[GroupCoordinator]


class ImageWatcher(Protocol):
    """A request that waits until the image names the coordinator."""

    def image_changed(self) -> None: ...


class GroupCoordinators:
    """The group coordinators of one broker. Only the periodic rounds are coroutines."""

    def __init__(
        self,
        config: NodeConfig,
        ports: CoordinatorPorts,
        newest_image: Callable[[], MetadataImage],
        settings_of: SettingsOf = default_settings,
        share_settings_of: ShareSettingsOf = default_share_settings,
        ask_share_coordinator: AskShareCoordinator | None = None,
    ) -> None:
        """`settings_of` returns the settings of a consumer group, `share_settings_of` those of a share group.
        `ask_share_coordinator` is `SharePersister.ask`."""
        self._ask_share_coordinator = ask_share_coordinator
        self._loop = ports.loop
        self._newest_image = newest_image
        self.settings = GroupSettings(
            initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
            session_timeout_ms_min=config.integer("group.min.session.timeout.ms"),
            session_timeout_ms_max=config.integer("group.max.session.timeout.ms"),
            members_max=config.integer("group.max.size"),
            metadata_chars_max=config.integer("offset.metadata.max.bytes"),
            retention_ms=config.integer("offsets.retention.minutes") * MINUTE_MS,
            removal_bytes_max=min(REMOVAL_BYTES_MAX, config.integer("message.max.bytes") // 2),
            settings_of=settings_of,
            share_settings_of=share_settings_of,
        )
        self._topics = TopicsImage()
        """The topics as consumer groups know them: those of the newest image in which a topic was created, deleted or
        grown. Other changes of topics are of no interest to groups."""
        self._check_interval_ms = config.integer("offsets.retention.check.interval.ms")
        self.counts = GroupCounts()
        self.load_ms = Histogram()
        """Time that loading each partition took, in ms."""
        self.watchers: dict[ImageWatcher, None] = {}
        """Watchers that wait for a newer image. Each is notified once, then removed."""
        self._gone: set[Topic] = set()
        """Deleted topics whose offsets the next round of `_forget_deleted` removes."""
        self._is_forgetting = False
        self._shards = CoordinatorShards(
            OFFSETS_TOPIC,
            config.node_id,
            ports,
            newest_image,
            lambda shards: ShardKind(
                subject="groups",
                empty_state=lambda: EMPTY_STATE,
                decode_entry=decode_entry,
                encode_entry=encode_entry,
                make_machine=self._make_machine,
                count=lambda machine: len(machine.group_ids()),
                loaded=self._shard_loaded,
                closed=shards.closed,
                reload=shards.reload,
                perform=self._work_on_share_states,
                load_ms=self.load_ms,
                reply_timeout_ms=config.integer("offsets.commit.timeout.ms"),
                load_bytes=config.integer("offsets.load.buffer.size"),
                codec=Compression.of(config.integer("offsets.topic.compression.codec")),
            ),
        )

    @property
    def shards(self) -> dict[int, GroupShard]:
        """The shards by partition of the offsets topic; read-only."""
        return self._shards.by_partition

    # requests

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Answer a request of one group, now or later, by calling `ticket(reply)`. Errors in the request itself take
        precedence over all others."""
        refusal = request_refusal(request, self.settings)
        if refusal is not None:
            ticket(refusal)
            return
        shard = self._shards.find(request.group)
        if shard is None:
            ticket(request.refused(ErrorCode.NOT_COORDINATOR))
        else:
            shard.submit(request, ticket)

    def partition_of(self, group: str) -> Partition | None:
        """Return the partition of the offsets topic that keeps this group; None if this broker does not coordinate the
        group."""
        shard = self._shards.find(group)
        return None if shard is None else shard.partition

    def write_marker(self, index: int, marker: MarkerRequest, ticket: Callable[[MarkerReply], None]) -> None:
        """Write the marker of a transaction into a partition of the offsets topic, and apply (commit) or drop (abort)
        the offsets that the transaction has staged there. Answer when the marker is committed.

        The handler of WriteTxnMarkers calls this instead of appending the marker itself, so that the coordinator sees
        the marker at its place in the log. A broker that does not coordinate the partition yet, or no longer, answers
        NOT_LEADER_OR_FOLLOWER, which the sender retries. INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED mean
        that the log rejected the marker."""
        shard = self._shards.by_partition.get(index)
        if shard is None:
            ticket(marker.refused(ErrorCode.NOT_COORDINATOR))
        else:
            shard.submit(marker, ticket)

    def list_groups(self, ticket: Ticket) -> None:
        """Call `ticket` with one ListReply that has every group that this broker coordinates. The reply has an error if
        one of the partitions cannot list its groups."""
        shards = self._shards.all()
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
        self._topics = image.topics
        self._shards.metadata_loaded(image)

    def metadata_published(self, new: MetadataImage, delta: ImageDelta) -> None:
        """Begin and close shards as a newer image requires. The broker has already applied the roles of that image."""
        self._shards.metadata_published(new, delta)
        if has_other_partitions(self._topics, new.topics, delta):
            self._topics = new.topics
            for shard in self._shards.by_partition.values():
                if shard.machine is not None:
                    shard.machine.topics_changed(new.topics)
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher.image_changed()
        if delta.deleted_topics:
            self._gone |= {(name, one) for topic_id, name in delta.deleted_topics.items() for one in (topic_id, None)}
            self._loop.start_task(self._forget_deleted)

    # calls from shards

    def _make_machine(self, state: DurableState, end_offset: int) -> GroupCoordinator:
        machine = GroupCoordinator(self.settings, state, end_offset, self.counts)
        machine.topics_changed(self._topics)
        return machine

    def _shard_loaded(self, shard: GroupShard) -> None:
        """Remove offsets of topics that were deleted before this broker could write their removal to the partition."""

        def is_gone(topic: Topic) -> bool:
            topic_id = topic[1]
            return topic_id is not None and self._newest_image().topics.name_of(topic_id) is None

        self._loop.start_task(self._forget_topics, shard, is_gone)

    def _work_on_share_states(self, shard: GroupShard, step: CoordinatorStep) -> None:
        """Begin or delete the states of share partitions, as a step says."""
        if self._ask_share_coordinator is not None:
            for work in step.share_states:
                carry_out_share_state_work(shard, work, self._ask_share_coordinator)

    def reload(self, shard: GroupShard) -> None:
        """Load the shard again from the log."""
        self._shards.reload(shard)

    # rounds

    async def expire_forever(self) -> None:
        """Remove expired offsets every `offsets.retention.check.interval.ms`."""
        while True:
            await self._loop.clock.sleep_ms(self._check_interval_ms)
            for shard in self._shards.all():
                await self._expire(shard)
            self._loop.request_pass()

    async def _expire(self, shard: GroupShard) -> None:
        if shard.state is ShardState.ACTIVE and shard.machine is not None:
            async for group in groups_in_steps(shard.machine):
                shard.submit(ExpireRequest(group), _no_reply)

    async def _forget_deleted(self) -> None:
        """Remove the offsets of all topics deleted up to now, and repeat if more topics are deleted meanwhile. A shard
        that is being loaded is skipped: it removes such offsets itself after loading."""
        if self._is_forgetting:
            return
        self._is_forgetting = True
        while self._gone:
            gone, self._gone = self._gone, set()
            for shard in self._shards.all():
                await self._forget_topics(shard, gone.__contains__)
        self._is_forgetting = False

    async def _forget_topics(self, shard: GroupShard, is_gone: Callable[[Topic], bool]) -> None:
        """Remove the group offsets of all topics for which `is_gone` is true, one group at a time."""
        if shard.machine is None:
            return
        async for group in groups_in_steps(shard.machine):
            gone = frozenset(filter(is_gone, shard.machine.topics_of(group)))
            if gone:
                shard.submit(TopicsGoneRequest(group, gone), _no_reply)
                self._loop.request_pass()


def has_other_partitions(old: TopicsImage, new: TopicsImage, delta: ImageDelta) -> bool:
    """Return whether a topic was created, deleted or grown between these two values."""
    if delta.deleted_topics:
        return True
    for topic_id in delta.topics:
        before, after = old.get_by_id(topic_id), new.get_by_id(topic_id)
        if before is None or after is None or before.partition_count != after.partition_count:
            return True
    return False


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
    """Ignore the reply, because no client waits for it."""
