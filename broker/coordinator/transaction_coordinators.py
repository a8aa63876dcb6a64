"""TransactionCoordinators: the coordinators of all partitions of `__transaction_state` that this broker leads.

Invariant: a shard exists for exactly those partitions that this broker leads in the newest image, in the leader epoch
of that image. Source: KIP-98, KIP-890, Kafka's TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

from kraft.broker.coordinator.internal_topics import TRANSACTION_TOPIC
from kraft.broker.coordinator.shard_driver import CoordinatorPorts, CoordinatorShard, ShardKind, ShardState
from kraft.broker.coordinator.shards import CoordinatorShards
from kraft.broker.txn.coordinator import EXPIRED_PER_STEP, TransactionCoordinator
from kraft.broker.txn.records import (
    TransactionLogEntry,
    TransactionLogRecord,
    TransactionValue,
    decode_entry,
    encode_entry,
)
from kraft.broker.txn.requests import ListTransactionsReply, ListTransactionsRequest, Request, Ticket
from kraft.broker.txn.shard import TransactionCounts, TransactionSettings
from kraft.image.image import TRANSACTION_FEATURE
from kraft.seam.measures import Histogram
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records.compression import Compression

if TYPE_CHECKING:
    from kraft.broker.coordinator.marker_sender import MarkerSender
    from kraft.broker.txn.step import Step
    from kraft.config import NodeConfig
    from kraft.image import ImageDelta, MetadataImage

FIRST_FLEXIBLE_LEVEL = 1
"""Lowest level of transaction.version at which records use the flexible encoding."""

Shard = CoordinatorShard[TransactionCoordinator]


class LoadedTransactions:
    """The last value of each transactional id in the records that have been read so far."""

    def __init__(self) -> None:
        self.values: dict[str, TransactionValue] = {}

    def with_entries(self, entries: Iterable[object]) -> LoadedTransactions:
        """Apply more entries, and return this object. Entries of transactional batches and markers are skipped, because
        no coordinator writes them to this topic."""
        for entry in entries:
            if not isinstance(entry, TransactionLogEntry):
                continue
            if entry.value is None:
                self.values.pop(entry.transactional_id, None)
            else:
                self.values[entry.transactional_id] = entry.value
        return self


class TransactionCoordinators:
    """The transaction coordinators of one broker. Only `expire_forever` is a coroutine."""

    def __init__(
        self,
        config: NodeConfig,
        ports: CoordinatorPorts,
        newest_image: Callable[[], MetadataImage],
        take_producer_id: Callable[[], int | None],
        markers: MarkerSender,
    ) -> None:
        """`take_producer_id` is `ProducerIds.take_nowait`."""
        self._loop = ports.loop
        self._newest_image = newest_image
        self.markers = markers
        self.settings = TransactionSettings(
            timeout_ms_max=config.integer("transaction.max.timeout.ms"),
            id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        )
        self._expiry_interval_ms = config.integer("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._level = 0
        self.counts = TransactionCounts()
        self.load_ms = Histogram()
        """Time that loading each partition took, in ms."""

        def make_machine(state: LoadedTransactions, end_offset: int) -> TransactionCoordinator:
            machine = TransactionCoordinator(self.settings, state.values, end_offset, take_producer_id, self.counts)
            machine.set_transaction_version(self._level)
            return machine

        self._shards = CoordinatorShards(
            TRANSACTION_TOPIC,
            config.node_id,
            ports,
            newest_image,
            lambda shards: ShardKind(
                subject="transactions",
                empty_state=LoadedTransactions,
                decode_entry=decode_entry,
                encode_entry=self._encode_entry,
                make_machine=make_machine,
                count=lambda machine: len(machine.transactions),
                loaded=_ignore_loaded,
                closed=shards.closed,
                reload=shards.reload,
                perform=self._send_markers,
                load_ms=self.load_ms,
                reply_timeout_ms=config.integer("request.timeout.ms"),
                load_bytes=config.integer("transaction.state.log.load.buffer.size"),
                codec=Compression.NONE,
            ),
        )

    @property
    def shards(self) -> dict[int, Shard]:
        """The shards by partition of the topic; read-only."""
        return self._shards.by_partition

    def _encode_entry(self, entry: TransactionLogEntry) -> TransactionLogRecord:
        return encode_entry(entry, is_flexible=self._level >= FIRST_FLEXIBLE_LEVEL)

    # requests

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Answer a request about one transactional id by calling `ticket(reply)`, now or later."""
        if not request.transactional_id:
            ticket(request.refused(ErrorCode.INVALID_REQUEST))
            return
        shard = self._shards.find(request.transactional_id)
        if shard is None:
            ticket(request.refused(ErrorCode.NOT_COORDINATOR))
        else:
            shard.submit(request, ticket)

    def list_transactions(self, ticket: Ticket) -> None:
        """Call `ticket` with one reply that has every transactional id that this broker coordinates. The reply is an
        error while one of the partitions is being loaded."""
        shards = self._shards.all()
        found: list[tuple[str, TransactionValue]] = []
        errors: list[ErrorCode] = []
        missing = len(shards)

        def answered(reply: ListTransactionsReply) -> None:
            nonlocal missing
            missing -= 1
            found.extend(reply.transactions)
            if reply.error not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                errors.append(reply.error)
            if not missing:
                finish()

        def finish() -> None:
            ticket(ListTransactionsReply(errors[0]) if errors else ListTransactionsReply(ErrorCode.NONE, tuple(found)))

        if not shards:
            finish()
        for shard in shards:
            shard.submit(ListTransactionsRequest(), answered)

    # images

    def metadata_loaded(self, image: MetadataImage) -> None:
        """Begin a shard for each partition that this broker leads in the first image."""
        self._take_level(image)
        self._shards.metadata_loaded(image)

    def metadata_published(self, new: MetadataImage, delta: ImageDelta) -> None:
        """Begin and close shards as a newer image requires. The broker has already applied the roles of that image."""
        if TRANSACTION_FEATURE in delta.features:
            self._take_level(new)
        self._shards.metadata_published(new, delta)
        self.markers.metadata_published(new, delta)

    def _take_level(self, image: MetadataImage) -> None:
        self._level = image.features.get(TRANSACTION_FEATURE, 0)
        for shard in self._shards.all():
            if shard.machine is not None:
                shard.machine.set_transaction_version(self._level)

    # calls from shards

    def _send_markers(self, shard: Shard, step: Step) -> None:
        for markers in step.markers:
            self.markers.send(shard, markers)

    # rounds

    async def expire_forever(self) -> None:
        """Remove the transactional ids that have been idle for longer than transactional.id.expiration.ms. Repeat every
        `transaction.remove.expired.transaction.cleanup.interval.ms`."""
        while True:
            await self._loop.clock.sleep_ms(self._expiry_interval_ms)
            for shard in self._shards.all():
                await self._expire(shard)
            self._loop.request_pass()

    async def _expire(self, shard: Shard) -> None:
        machine = shard.machine
        if machine is not None and shard.state is ShardState.ACTIVE:
            for _ in range(0, len(machine.transactions), EXPIRED_PER_STEP):
                shard.run_now(machine.expire)
                await trio.lowlevel.checkpoint()


def _ignore_loaded(shard: Shard) -> None:
    """Do nothing: the state machine of a loaded shard continues pending transactions itself."""
