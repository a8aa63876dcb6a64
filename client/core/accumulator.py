"""The producer's buffer: batches per partition, when each may be sent, and the memory that they use.

Times are milliseconds of a monotonic clock. A batch may be sent when it is full, when `linger.ms` has passed, or when a
caller flushes or waits for memory. `partition_queue` decides which batch of a partition is sent, and with which
sequence number. A batch that expires in flight is settled at once, but keeps its memory and its place in the queue
until its response arrives.
Source: Kafka's RecordAccumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kraft.client.core.batch import NO_IDENTITY, OutgoingBatch, ProducerIdentity, RecordInBatch
from kraft.client.core.partition_queue import PartitionQueue
from kraft.client.core.produce_errors import CERTAINLY_NOT_WRITTEN, VERDICTS, Verdict
from kraft.client.core.records import DeliveryFailed, Headers, TopicPartition
from kraft.seam import require
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import BATCH_HEADER_BYTES
from kraft.wire.records.compression import Compression


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """Kafka's `batch.size`, `linger.ms`, `buffer.memory`, `delivery.timeout.ms`, `compression.type`, the maximum
    number of batches of one partition in flight, and whether batches belong to transactions."""

    batch_bytes: int = 16_384
    linger_ms: int = 0
    buffer_bytes: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    in_flight_max: int = 5
    is_transactional: bool = False


class Accumulator:
    """All batches of one producer. `identity` is the producer's id and epoch; None if it has none yet, or needs
    none."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        identity: ProducerIdentity | None = None,
        make: Callable[[OutgoingBatch, int, int], RecordInBatch] = RecordInBatch,
    ) -> None:
        """`make(batch, index, timestamp_ms)` creates the value that `add` returns for a record."""
        self.settings = settings
        self._make = make
        self.identity = identity
        self.buffered_bytes = 0
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._linger_disabled = 0

    # adding records

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of this size fits into `buffer.memory`. An empty buffer accepts a record of any size."""
        return not self.buffered_bytes or self.buffered_bytes + size_bytes <= self.settings.buffer_bytes

    def add(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size_bytes: int,
        now_ms: Callable[[], int],
    ) -> RecordInBatch:
        """Append a record to the partition's open batch, or to a new batch if it does not fit. `size_bytes` is an upper
        bound of the record's size. `now_ms()` is called only when a batch is created."""
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = PartitionQueue(topic_partition)
        batch = queue.waiting[-1] if queue.waiting else None
        if batch is not None and not batch.is_closed and batch.size_bytes + size_bytes > self.settings.batch_bytes:
            batch.is_closed = True
        if batch is None or batch.is_closed:
            created_ms = now_ms()
            batch = OutgoingBatch(
                topic_partition, created_ms, created_ms + self.settings.delivery_timeout_ms, self._make
            )
        before = batch.size_bytes
        delivery = batch.add(key, value, headers, timestamp_ms)
        if not delivery.index:
            queue.waiting.append(batch)
        self.buffered_bytes += batch.size_bytes - before
        return delivery

    def append(self, batch: OutgoingBatch) -> None:
        """Append a complete batch after the other batches of its partition. It does not wait for `linger.ms`."""
        queue = self._queues.get(batch.topic_partition)
        if queue is None:
            queue = self._queues[batch.topic_partition] = PartitionQueue(batch.topic_partition)
        batch.is_closed = True
        queue.waiting.append(batch)
        self.buffered_bytes += batch.size_bytes - BATCH_HEADER_BYTES

    def waiting_bytes(self, topic_partition: TopicPartition) -> int:
        """Return the size in bytes of this partition's batches that are not in flight."""
        queue = self._queues.get(topic_partition)
        return 0 if queue is None else sum(batch.size_bytes for batch in queue.waiting)

    # sending batches

    def ready(self, now_ms: int) -> list[TopicPartition]:
        """Return the partitions whose first waiting batch may be sent now."""
        return [tp for tp, queue in self._queues.items() if queue.waiting and self._is_ready(queue, now_ms)]

    def _is_ready(self, queue: PartitionQueue, now_ms: int) -> bool:
        if not queue.may_send(now_ms, self.settings.in_flight_max):
            return False
        head = queue.waiting[0]
        if head.attempts or head.is_closed or len(queue.waiting) > 1 or self._linger_disabled:
            return True
        return head.size_bytes >= self.settings.batch_bytes or now_ms >= head.created_ms + self.settings.linger_ms

    def next_deadline_ms(self) -> int | None:
        """Return the time in ms at which batches must be checked again: the earliest end of a linger, a retry backoff,
        or a delivery timeout. Return None if no batch is pending."""
        deadlines = []
        for queue in self._queues.values():
            if queue.in_flight:
                deadlines += [batch.deadline_ms for batch in queue.in_flight if batch.outcome is None]
            if queue.waiting:
                head = queue.waiting[0]
                deadlines.append(head.deadline_ms)
                if not queue.in_flight and not queue.is_restarting:
                    resume_ms = head.retry_at_ms if head.attempts else head.created_ms + self.settings.linger_ms
                    deadlines.append(resume_ms)
                elif not head.attempts and len(queue.in_flight) < self.settings.in_flight_max:
                    deadlines.append(head.created_ms + self.settings.linger_ms)
        return min(deadlines, default=None)

    def next_bytes(self, topic_partition: TopicPartition) -> int:
        """Return the approximate size of the partition's first waiting batch, before compression."""
        return self._queues[topic_partition].waiting[0].size_bytes

    def may_send_on(self, topic_partition: TopicPartition, route: object) -> bool:
        """Whether the next batch of a ready partition may be sent on this connection. False while other batches of the
        partition are in flight on another connection."""
        return self._queues[topic_partition].may_send_on(route)

    def take(self, topic_partition: TopicPartition, route: object = None) -> tuple[OutgoingBatch, bytes]:
        """Mark the partition's next batch as in flight and return it with its encoded bytes. Call it only for a
        partition that is ready, and a connection that `may_send_on` allows."""
        queue = self._queues[topic_partition]
        batch = queue.take(self.identity or queue.identity or NO_IDENTITY, route)
        identity = queue.identity or NO_IDENTITY
        settings = self.settings
        encoded = batch.encode(
            identity, settings.compression, settings.compression_level, is_transactional=settings.is_transactional
        )
        return batch, encoded

    def needs_identity(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's next batch needs a producer id that the producer does not have yet."""
        return self.identity is None and self._queues[topic_partition].identity is None

    # responses

    def answered(
        self,
        batch: OutgoingBatch,
        code: ErrorCode,
        *,
        base_offset: int = -1,
        append_time_ms: int = -1,
        text: str = "",
        retry_at_ms: int = 0,
    ) -> None:
        """Process the result of a batch in flight. NETWORK_EXCEPTION stands for a lost connection. `retry_at_ms` is the
        earliest time of a retry."""
        queue = self._queues[batch.topic_partition]
        verdict = VERDICTS.get(code, Verdict.FAIL)
        if code in CERTAINLY_NOT_WRITTEN:
            batch.in_doubt = batch.was_in_doubt
        if verdict is Verdict.DONE:
            self._succeed(batch, base_offset, append_time_ms)
        elif batch.outcome is not None:
            self._forget(batch)  # the batch expired before the response arrived
        elif verdict in (Verdict.RETRY, Verdict.RETRY_ELSEWHERE):
            queue.requeue(batch, retry_at_ms)
        elif verdict is Verdict.SPLIT and batch.record_count > 1 and not batch.in_doubt:
            self._split(batch)
        elif verdict is Verdict.SEQUENCE and not queue.is_oldest(batch):
            # an older batch is still unacknowledged, so this one was only out of order
            queue.requeue(batch, retry_at_ms)
        elif verdict is Verdict.SEQUENCE and not batch.in_doubt and not self.settings.is_transactional:
            queue.is_restarting = True
            queue.requeue(batch, retry_at_ms)
        else:
            if verdict is Verdict.IDENTITY and not self.settings.is_transactional:
                queue.identity = self.identity = None
            self._forget(batch)
            batch.settle(DeliveryFailed(code, text or "the broker rejected the batch", certain=not batch.in_doubt))
        self._restart_if_due(queue)

    def _succeed(self, batch: OutgoingBatch, base_offset: int, append_time_ms: int) -> None:
        self._queues[batch.topic_partition].acknowledge(batch)
        self._free(batch)
        batch.settle((base_offset, append_time_ms))

    def _split(self, batch: OutgoingBatch) -> None:
        """Split a batch that was too large for the broker into smaller ones."""
        parts = batch.split(self.settings.batch_bytes, self.settings.compression)
        for part in parts:
            self.buffered_bytes += part.size_bytes - BATCH_HEADER_BYTES
        self._free(batch)
        self._queues[batch.topic_partition].replace(batch, parts)

    def _forget(self, batch: OutgoingBatch) -> None:
        self._queues[batch.topic_partition].remove(batch, leaves_gap=True)
        self._free(batch)

    def _free(self, batch: OutgoingBatch) -> None:
        self.buffered_bytes -= batch.size_bytes - BATCH_HEADER_BYTES

    def _restart_if_due(self, queue: PartitionQueue) -> None:
        if not queue.is_restarting or queue.in_flight or self.settings.is_transactional:
            return  # the coordinator decides about the epoch of transactions, see `renew`
        had_identity = queue.identity is not None
        for batch in queue.restart():
            queue.remove(batch)
            self._free(batch)
            text = "an earlier batch failed, and a broker may have this one already"
            batch.settle(DeliveryFailed(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text, certain=False))
        if had_identity and queue.identity is None:
            self.identity = None  # this producer id has no further epoch

    # expiry and closing

    def expire(self, now_ms: int) -> bool:
        """Fail all batches that are past their delivery timeout. Return True if there were any."""
        text = f"not delivered within delivery.timeout.ms={self.settings.delivery_timeout_ms}"
        found = False
        for queue in self._queues.values():
            while queue.waiting and now_ms >= queue.waiting[0].deadline_ms:  # the oldest batches come first
                found = True
                batch = queue.waiting[0]
                queue.remove(batch, leaves_gap=batch.attempts > 0)
                self._free(batch)
                batch.settle(DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, text, certain=not batch.in_doubt))
            for batch in queue.in_flight:
                if batch.outcome is None and now_ms >= batch.deadline_ms:
                    found = True
                    batch.settle(DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, text, certain=False))
            self._restart_if_due(queue)
        return found

    def expedite(self, topic_partition: TopicPartition) -> None:
        """End the retry backoff of this partition, because its new leader is now known."""
        queue = self._queues.get(topic_partition)
        if queue and queue.waiting:
            queue.waiting[0].retry_at_ms = 0

    def fail_all(self, code: ErrorCode, text: str) -> None:
        """Fail all batches that are not settled yet. Drop those that are not in flight; the others stay until their
        response."""
        for queue in self._queues.values():
            for batch in [*queue.in_flight, *queue.waiting]:
                batch.settle(DeliveryFailed(code, text, certain=not batch.in_doubt))
            while queue.waiting:
                batch = queue.waiting[0]
                queue.remove(batch, leaves_gap=batch.attempts > 0)
                self._free(batch)
            self._restart_if_due(queue)

    # transactions

    def fail_waiting(self, code: ErrorCode, text: str) -> tuple[int, bool]:
        """Fail all batches that are not in flight. Return how many there were, and whether any of them was sent before
        and therefore used a sequence number."""
        count, was_sent = 0, False
        for queue in self._queues.values():
            while queue.waiting:
                batch = queue.waiting[0]
                count += 1
                was_sent = was_sent or batch.attempts > 0
                queue.remove(batch, leaves_gap=batch.attempts > 0)
                self._free(batch)
                batch.settle(DeliveryFailed(code, text, certain=not batch.in_doubt))
        return count, was_sent

    def close_waiting(self) -> None:
        """Let batches that are still open be sent without waiting for `linger.ms`, because their transaction is about
        to end."""
        for queue in self._queues.values():
            for batch in queue.waiting:
                batch.is_closed = True

    def renew(self, identity: ProducerIdentity) -> None:
        """Use a new producer identity, and restart the sequence of every partition at 0, also of idle partitions. No
        batch may be waiting or in flight."""
        self.identity = identity
        for queue in self._queues.values():
            require(not queue.waiting and not queue.in_flight, "an identity changes between transactions only")
            queue.renew()

    @contextmanager
    def without_linger(self) -> Iterator[None]:
        """Disable `linger.ms` while the context is open, because a caller waits for deliveries or for memory. Contexts
        may be nested."""
        self._linger_disabled += 1
        try:
            yield
        finally:
            self._linger_disabled -= 1

    def pending(self) -> Iterator[OutgoingBatch]:
        """Yield all batches that are waiting or in flight."""
        for queue in self._queues.values():
            yield from queue.in_flight
            yield from queue.waiting

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions with batches that are waiting or in flight."""
        return [tp for tp, queue in self._queues.items() if queue.waiting or queue.in_flight]
