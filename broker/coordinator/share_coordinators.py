"""ShareCoordinators: the share coordinators of all partitions of `__share_group_state` that this broker leads.

Invariant: a shard exists for exactly those partitions that this broker leads in the newest image, in the leader epoch
of that image. Records are deleted only when newer records that replace them are committed.
Source: KIP-932, Kafka's ShareCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import trio

from kraft.broker.coordinator.internal_topics import SHARE_TOPIC
from kraft.broker.coordinator.shard_driver import CoordinatorPorts, CoordinatorShard, ShardKind, ShardState
from kraft.broker.coordinator.shards import CoordinatorShards
from kraft.broker.share_coordinator.coordinator import ENTRIES_PER_STEP, ShareCoordinator, ShareCoordinatorSettings
from kraft.broker.share_coordinator.records import decode_entry, encode_entry
from kraft.broker.share_coordinator.requests import Request, StateReply, Ticket, WriteStateRequest
from kraft.broker.share_coordinator.share_state import LoadedShareStates
from kraft.seam.measures import Histogram
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records.compression import Compression

if TYPE_CHECKING:
    from kraft.broker.shard.now import Now
    from kraft.config import NodeConfig
    from kraft.image import ImageDelta, MetadataImage

ShareShard = CoordinatorShard[ShareCoordinator]
NS_PER_MS = 1e6


class ShareCoordinators:
    """The share coordinators of one broker. Only the periodic rounds are coroutines."""

    def __init__(self, config: NodeConfig, ports: CoordinatorPorts, newest_image: Callable[[], MetadataImage]) -> None:
        self._loop = ports.loop
        self._newest_image = newest_image
        self.settings = ShareCoordinatorSettings(
            updates_per_snapshot=config.integer("share.coordinator.snapshot.update.records.per.snapshot"),
            cold_interval_ms=config.integer("share.coordinator.cold.partition.snapshot.interval.ms"),
        )
        self._prune_interval_ms = config.integer("share.coordinator.state.topic.prune.interval.ms")
        self._is_forgetting = False
        self.load_ms = Histogram()
        """Time that loading each partition took, in ms."""
        self.write_ms = Histogram()
        """Time from each request to write a state to its reply, in ms."""
        self._shards = CoordinatorShards(
            SHARE_TOPIC,
            config.node_id,
            ports,
            newest_image,
            lambda shards: ShardKind(
                subject="share partitions",
                empty_state=LoadedShareStates,
                decode_entry=decode_entry,
                encode_entry=encode_entry,
                make_machine=lambda state, end: ShareCoordinator(self.settings, state.states, end),
                count=lambda machine: len(machine.states),
                loaded=self._shard_loaded,
                closed=shards.closed,
                reload=shards.reload,
                perform=_no_effects,
                load_ms=self.load_ms,
                reply_timeout_ms=config.integer("share.coordinator.write.timeout.ms"),
                load_bytes=config.integer("share.coordinator.load.buffer.size"),
                codec=Compression.of(config.integer("share.coordinator.state.topic.compression.codec")),
            ),
        )

    @property
    def shards(self) -> dict[int, ShareShard]:
        """The shards by partition of the topic; read-only."""
        return self._shards.by_partition

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Answer a request about one share partition by calling `ticket(reply)`, now or later."""
        shard = self._shards.find(request.key.coordinator_key)
        if shard is None:
            ticket(request.refused(ErrorCode.NOT_COORDINATOR))
        elif isinstance(request, WriteStateRequest):
            shard.submit(request, self._measured(ticket))
        else:
            shard.submit(request, ticket)

    def _measured(self, ticket: Ticket) -> Ticket:
        """Return a ticket that also measures how long a write takes."""
        clock = self._loop.clock
        began_ns = clock.monotonic_ns()

        def written(reply: StateReply) -> None:
            self.write_ms.update((clock.monotonic_ns() - began_ns) / NS_PER_MS)
            ticket(reply)

        return written

    # images

    def metadata_loaded(self, image: MetadataImage) -> None:
        """Begin a shard for each partition that this broker leads in the first image."""
        self._shards.metadata_loaded(image)

    def metadata_published(self, new: MetadataImage, delta: ImageDelta) -> None:
        """Begin and close shards as a newer image requires. The broker has already applied the roles of that image."""
        self._shards.metadata_published(new, delta)
        if delta.deleted_topics and not self._is_forgetting:
            self._is_forgetting = True
            self._loop.start_task(self._forget_deleted)

    # calls from shards

    def _shard_loaded(self, shard: ShareShard) -> None:
        """Remove the states of topics that were deleted before their removal was written."""
        self._loop.start_task(self._forget, shard)

    # rounds

    async def maintain_forever(self) -> None:
        """Write snapshots of quiet share partitions, and delete redundant records. Repeat every
        `share.coordinator.state.topic.prune.interval.ms`."""
        while True:
            await self._loop.clock.sleep_ms(self._prune_interval_ms)
            for shard in self._shards.all():
                await self._maintain(shard)
            self._loop.request_pass()

    async def _maintain(self, shard: ShareShard) -> None:
        machine = shard.machine
        if machine is None or shard.state is not ShardState.ACTIVE:
            return
        for _ in range(0, len(machine.states), ENTRIES_PER_STEP):
            shard.run_now(machine.snapshot_cold)
            await trio.lowlevel.checkpoint()

        def prune(now: Now) -> None:
            self._prune(shard, machine)

        shard.run_now(prune)

    def _prune(self, shard: ShareShard, machine: ShareCoordinator) -> None:
        partition = shard.partition
        if partition.log is not None and partition.log.advance_log_start(
            machine.redundant_before(partition.high_watermark)
        ):
            partition.host.changed[partition] = None

    async def _forget_deleted(self) -> None:
        self._is_forgetting = False
        for shard in self._shards.all():
            await self._forget(shard)

    async def _forget(self, shard: ShareShard) -> None:
        """Delete the states of all topics that the newest image does not have."""
        machine = shard.machine
        if machine is None or shard.state is not ShardState.ACTIVE:
            await trio.lowlevel.checkpoint()
            return
        topics = self._newest_image().topics
        gone: set[UUID] = {key.topic_id for key in machine.states if topics.name_of(key.topic_id) is None}
        doomed = sum(key.topic_id in gone for key in machine.states)
        for _ in range(0, doomed, ENTRIES_PER_STEP):
            shard.run_now(lambda now: machine.forget_topics(gone, now))
            await trio.lowlevel.checkpoint()
        self._loop.request_pass()


def _no_effects(shard: ShareShard, step: object) -> None:
    """Do nothing: a step of a share coordinator has no work other than appends and replies."""
