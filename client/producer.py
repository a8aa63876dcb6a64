"""The producer: sends records and returns delivery reports. It is idempotent, with acks=all and in order per partition
by default.

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        report = await producer.send("orders", b"value", key=b"key")

With a `transactional_id`, records are sent in transactions: see `Producer.transaction`.

Cancelling `send` does not withdraw its record: it is still delivered once, but its report is dropped. When the block
ends normally, queued records are delivered first. When an exception ends the block, unacknowledged records are dropped,
and an open transaction is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import trio

from kraft.client.background import close_parts, open_background
from kraft.client.cluster import Cluster, ClusterUnreachable, TopicMetadata
from kraft.client.core.accumulator import Accumulator, AccumulatorSettings
from kraft.client.core.batch import NO_IDENTITY, record_bytes_max
from kraft.client.core.configs import ProducerConfig
from kraft.client.core.partitioner import StickyPartitioner, partition_for_key
from kraft.client.core.records import (
    CommittedOffset,
    DeliveryFailed,
    DeliveryReport,
    GroupMetadata,
    Headers,
    KafkaError,
    TopicPartition,
)
from kraft.client.delivery import Delivery
from kraft.client.not_open import not_open, not_open_error
from kraft.client.sender import Sender
from kraft.client.transactions import ProducerTransactions, TransactionBlock
from kraft.seam import Seam
from kraft.wire.error_codes import ErrorCode

__all__ = ["Delivery", "Producer"]

UNORDERED_IN_FLIGHT_MAX = 2**31
NO_TIMESTAMP = -1
TIMESTAMP_MAX_MS = 2**63 - 1


class Producer:
    """A producer; see the module for an example. Keyword arguments are Kafka's producer configs (`ProducerConfig`), for
    example `linger_ms=5`."""

    def __init__(self, *, tls: object | None = None, seam: Seam | None = None, **settings: Any) -> None:
        self.config = ProducerConfig.of(settings)
        self._tls = tls
        self._given_seam = seam
        self._cluster: Cluster = not_open("Producer")
        self._sender: Sender = not_open("Producer")
        self._transactions: ProducerTransactions | None = None
        self._accumulator = Accumulator(
            AccumulatorSettings(
                batch_bytes=self.config.batch_size,
                linger_ms=self.config.linger_ms,
                buffer_bytes=self.config.buffer_memory,
                delivery_timeout_ms=self.config.delivery_timeout_ms,
                compression=self.config.compression,
                compression_level=self.config.compression_level,
                in_flight_max=self._in_flight_max(),
                is_transactional=self.config.transactional_id is not None,
            ),
            None if self.config.is_idempotent else NO_IDENTITY,
            Delivery,
        )
        self._size_max = min(self.config.max_request_size, self.config.buffer_memory)
        self._credit = 0
        """Number of bytes that may still be queued before `enqueue` must yield to the sender."""

    def _in_flight_max(self) -> int:
        """Maximum number of batches of one partition in flight. It is 1 for a producer without sequence numbers if
        order is to survive a retry."""
        if self.config.required_acks == 0:
            return UNORDERED_IN_FLIGHT_MAX
        return self.config.max_in_flight_requests_per_connection if self.config.is_idempotent else 1

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._seam, nursery = await stack.enter_async_context(open_background(self._given_seam))
            self._cluster = Cluster(self.config.addresses, self._seam, client_id=self.config.client_id, tls=self._tls)
            stack.callback(self._cluster.close)
            self._sticky = StickyPartitioner(
                self._seam.random.stream("partitioner").below,
                lambda topic, partition: self._accumulator.waiting_bytes((topic, partition)),
                self.config.batch_size,
            )
            self._sender = Sender(self.config, self._seam, self._cluster, self._accumulator, nursery)
            stack.callback(self._sender.close)
            self._transactions = self._sender.transactions
            self._sender.start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._transactions is not None:
                await self._transactions.finish()
            elif kind is None:
                await self.flush()
        finally:
            self._sender.close()
            self._credit = 0
            await close_parts(self._stack, kind, error, trace)

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> DeliveryReport:
        """Send one record and wait for the acknowledgement. Raise DeliveryFailed if it was rejected or timed out."""
        delivery = await self.enqueue(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await delivery.wait()

    async def enqueue(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue a record and return its delivery. Wait only for buffer space (`buffer.memory`) and for the topic's
        metadata, at most `max.block.ms` and no longer than `delivery.timeout.ms`. Raise DeliveryFailed after that time,
        or if the producer is closed. After any KafkaError, the open transaction must be aborted. If cancelled, nothing
        is queued."""
        if self._transactions is not None:
            self._transactions.require_open()
        kept: Headers = tuple(headers) if headers else ()
        size = record_bytes_max(key, value, kept)
        try:
            metadata = self._cluster.topic(topic)
            if self._credit <= 0 or metadata is None or size > self._size_max or not self._accumulator.has_room(size):
                metadata = await self._wait(topic, size)
            if partition is None:
                chosen = (
                    self._choose(topic, metadata) if key is None else partition_for_key(key, len(metadata.partitions))
                )
            elif 0 <= partition < len(metadata.partitions):
                chosen = partition
            else:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic} has partitions 0 to {len(metadata.partitions) - 1}, not {partition}",
                )
        except KafkaError as refusal:
            if self._transactions is not None:
                self._transactions.record_refused(refusal)
            raise
        # No checkpoint from here on: queue the record and return its delivery in one step.
        if self._transactions is not None:
            self._transactions.require_open()
        clock = self._seam.clock
        stamp = clock.wall_ms() if timestamp_ms is None else _valid_timestamp(timestamp_ms)
        try:
            delivery = self._accumulator.add((topic, chosen), key, value, kept, stamp, size, clock.monotonic_ms)
        except TypeError:
            told = ", ".join(sorted({type(key).__name__, type(value).__name__}))
            raise TypeError(f"key, value and the values of headers are bytes or None (key and value: {told})") from None
        is_first = not delivery.index
        if self._transactions is not None:
            self._transactions.add_partition((topic, chosen))
        if key is None and partition is None:
            self._sticky.sent(topic, chosen, size, completes_batch=is_first)
        if is_first:
            self._sender.wake()
            if self._cluster.leader((topic, chosen)) is None:
                self._sticky.forget(topic, chosen)
        self._credit -= size
        return delivery  # type: ignore[return-value]  # the accumulator makes what it was told to make

    async def flush(self) -> None:
        """Wait until every record queued so far is delivered or has failed."""
        with self._accumulator.without_linger():
            self._sender.wake()
            for batch in list(self._accumulator.pending()):
                for delivery in batch.deliveries:
                    assert isinstance(delivery, Delivery)
                    await delivery.settled()
            await trio.lowlevel.checkpoint()
            if self.config.required_acks == 0:
                await self._sender.wait_sent()

    # transactions

    def transaction(self) -> TransactionBlock:
        """Return an async context manager for one transaction: `async with producer.transaction():`. The transaction is
        committed at the end of the block, and aborted if the block raises an exception (also Cancelled).

        Entering the block waits for the end of the previous transaction. Leaving it raises TransactionAborted if
        something in the transaction failed, CommitOutcomeUnknown after `max.block.ms`, and ProducerFenced or another
        KafkaError if the producer can only be closed. If the commit is cancelled, the transaction may be committed or
        aborted."""
        return TransactionBlock(self._require_transactional())

    async def init_transactions(self) -> None:
        """Get a producer id. This aborts the transaction that an earlier producer with the same transactional id left
        open, and fences that producer. Without this call, the first transaction does the same. Raise TimedOut after
        `max.block.ms`."""
        await self._require_transactional().initialize()

    async def begin_transaction(self) -> None:
        """Begin a transaction, after the end of the previous one. Raise TimedOut after `max.block.ms`, and RuntimeError
        if a transaction is open. A call that is cancelled has not begun a transaction."""
        await self._require_transactional().begin()

    async def commit_transaction(self) -> None:
        """Send the queued records and commit the transaction. Raise AbortableTransactionError if `abort_transaction`
        must be called. Raise CommitOutcomeUnknown after `max.block.ms`: then only this call may be repeated. If the
        call is cancelled, the commit continues; repeat the call to learn its outcome."""
        await self._require_transactional().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction; records that are not sent yet fail. Raise TimedOut after `max.block.ms`: then only
        this call may be repeated. If the call is cancelled, the abort continues."""
        await self._require_transactional().abort()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group_metadata: GroupMetadata | str
    ) -> None:
        """Commit a group's offsets (the next to read, by partition) with the open transaction. `group_metadata` is
        `consumer.group_metadata()`, or a group id if the group has no members.

        Raise AbortableTransactionError if the offsets cannot be committed: the transaction must then be aborted. If the
        call is cancelled, the offsets are still committed with the transaction."""
        group = GroupMetadata(group_metadata) if isinstance(group_metadata, str) else group_metadata
        await self._require_transactional().send_offsets(offsets, group)

    def _require_transactional(self) -> ProducerTransactions:
        if self.config.transactional_id is None:
            raise RuntimeError("transactions need a transactional_id: Producer(transactional_id=...)")
        if self._transactions is None:
            raise not_open_error("Producer")
        return self._transactions

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the topic's partitions. Request its metadata if it is not known yet."""
        return (await self._metadata(topic)).partitions

    async def _wait(self, topic: str, size: int) -> TopicMetadata:
        """Yield to the sender, then wait for metadata and for buffer space. Raise DeliveryFailed if either is not
        available in time."""
        await trio.lowlevel.checkpoint()
        self._sender.require_open()
        self._credit = self.config.batch_size
        if size > self._size_max:
            raise DeliveryFailed(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the record has {size} bytes; max.request.size is {self.config.max_request_size}, buffer.memory "
                f"{self.config.buffer_memory}",
                certain=True,
            )
        deadline = trio.current_time() + self.config.handover_ms / 1000
        metadata = self._cluster.topic(topic)
        if metadata is None:
            metadata = await self._metadata(topic)
        if not self._accumulator.has_room(size):
            with trio.move_on_at(deadline), self._accumulator.without_linger():
                while not self._accumulator.has_room(size):
                    self._sender.wake()
                    await self._sender.wait_room()
                    self._sender.require_open()
                    if self._transactions is not None:
                        self._transactions.require_open()
        if not self._accumulator.has_room(size):
            limit = "max.block.ms" if self.config.handover_ms == self.config.max_block_ms else "delivery.timeout.ms"
            text = f"no room in buffer.memory={self.config.buffer_memory} within {limit}={self.config.handover_ms}"
            raise DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, text, certain=True)
        self._sender.require_open()
        return self._cluster.topic(topic) or metadata

    async def _metadata(self, topic: str) -> TopicMetadata:
        self._sender.require_open()
        self._sender.topics[topic] = None
        try:
            return await self._cluster.wait_topic(topic, timeout_ms=self.config.handover_ms)
        except ClusterUnreachable as problem:
            raise DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, str(problem), certain=True) from problem

    def _choose(self, topic: str, metadata: TopicMetadata) -> int:
        chosen = self._sticky.current(topic)
        return self._sticky.draw(topic, self._available(topic, metadata)) if chosen is None else chosen

    def _available(self, topic: str, metadata: TopicMetadata) -> list[int]:
        led: list[TopicPartition] = [
            (topic, p) for p in metadata.partitions if self._cluster.leader((topic, p)) is not None
        ]
        return [partition for _, partition in led] or list(metadata.partitions)


def _valid_timestamp(timestamp_ms: int) -> int:
    """Return `timestamp_ms` if a record can have it. Raise ValueError if it is out of range, and TypeError if it is not
    an integer, because such a record would make its whole batch fail."""
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp_ms={timestamp_ms!r}: expected a whole number of milliseconds since 1970")
    if not NO_TIMESTAMP <= timestamp_ms <= TIMESTAMP_MAX_MS:
        raise ValueError(f"timestamp_ms={timestamp_ms}: expected milliseconds since 1970, or {NO_TIMESTAMP} for none")
    return timestamp_ms
