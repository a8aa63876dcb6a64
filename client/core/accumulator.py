"""Records on their way out: batches per partition, when each may leave, and the memory that they hold.

Time comes in as milliseconds of a monotonic clock. A batch may leave when it is full, when it has lingered, or when a
caller flushes or waits for memory. `partition_queue` decides which batch of a partition leaves, and under which
sequence. A batch that ends while it is on its way is settled at once and keeps its place until its answer comes.
Source: Kafka's RecordAccumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kraft.client.core.batch import NO_IDENTITY, Batch, ProducerIdentity, RecordInBatch
from kraft.client.core.partition_queue import PartitionQueue
from kraft.client.core.produce_errors import CERTAINLY_NOT_WRITTEN, VERDICTS, Verdict
from kraft.client.core.records import DeliveryFailed, Headers, TopicPartition
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import BATCH_HEADER_BYTES
from kraft.wire.records.compression import Compression


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """Kafka's `batch.size`, `linger.ms`, `buffer.memory`, `delivery.timeout.ms`, `compression.type`, and how many
    batches of a partition may be on their way."""

    batch_bytes: int = 16_384
    linger_ms: int = 0
    buffer_bytes: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    in_flight_max: int = 5


class Accumulator:
    """All batches of one producer. `identity` is the producer's; None while it has none and needs one."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        identity: ProducerIdentity | None = None,
        make: Callable[[Batch, int, int], RecordInBatch] = RecordInBatch,
    ) -> None:
        """`make(batch, index, timestamp_ms)`: what `add` gives."""
        self.settings = settings
        self._make = make
        self.identity = identity
        self.buffered_bytes = 0
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._hurried = 0

    # records in

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of this size fits `buffer.memory`; an empty buffer takes any record."""
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
        """Append to the partition's open batch, or to a new one if it does not fit. `size_bytes`: its upper bound;
        `now_ms()`: asked when a batch begins."""
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = PartitionQueue(topic_partition)
        batch = queue.waiting[-1] if queue.waiting else None
        if batch is not None and not batch.is_closed and batch.size_bytes + size_bytes > self.settings.batch_bytes:
            batch.is_closed = True
        if batch is None or batch.is_closed:
            created_ms = now_ms()
            batch = Batch(topic_partition, created_ms, created_ms + self.settings.delivery_timeout_ms, self._make)
        before = batch.size_bytes
        delivery = batch.add(key, value, headers, timestamp_ms)
        if not delivery.index:
            queue.waiting.append(batch)
        self.buffered_bytes += batch.size_bytes - before
        return delivery

    def append(self, batch: Batch) -> None:
        """A batch that was filled elsewhere, behind the others of its partition; it may leave at once."""
        queue = self._queues.get(batch.topic_partition)
        if queue is None:
            queue = self._queues[batch.topic_partition] = PartitionQueue(batch.topic_partition)
        batch.is_closed = True
        queue.waiting.append(batch)
        self.buffered_bytes += batch.size_bytes - BATCH_HEADER_BYTES

    def waiting_bytes(self, topic_partition: TopicPartition) -> int:
        """Bytes of this partition that have not left."""
        queue = self._queues.get(topic_partition)
        return 0 if queue is None else sum(batch.size_bytes for batch in queue.waiting)

    # batches out

    def ready(self, now_ms: int) -> list[TopicPartition]:
        """Partitions whose first waiting batch may leave now."""
        return [tp for tp, queue in self._queues.items() if queue.waiting and self._is_ready(queue, now_ms)]

    def _is_ready(self, queue: PartitionQueue, now_ms: int) -> bool:
        if not queue.may_send(now_ms, self.settings.in_flight_max):
            return False
        head = queue.waiting[0]
        if head.attempts or head.is_closed or len(queue.waiting) > 1 or self._hurried:
            return True
        return head.size_bytes >= self.settings.batch_bytes or now_ms >= head.created_ms + self.settings.linger_ms

    def next_deadline_ms(self) -> int | None:
        """When to look again: the earliest end of a linger, of a pause before a retry, or of a delivery time-out. None
        if nothing waits."""
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
        """About the size of the partition's first waiting batch, before compression."""
        return self._queues[topic_partition].waiting[0].size_bytes

    def may_go(self, topic_partition: TopicPartition, route: object) -> bool:
        """Whether the next batch of a partition that is ready may leave by this connection: not while others are
        unanswered on another one."""
        return self._queues[topic_partition].may_go(route)

    def take(self, topic_partition: TopicPartition, route: object = None) -> tuple[Batch, bytes]:
        """The partition's next batch and its bytes; it is in flight now. Only for a partition that is ready, and whose
        batch may go by this connection."""
        queue = self._queues[topic_partition]
        batch = queue.take(self.identity or queue.identity or NO_IDENTITY, route)
        identity = queue.identity or NO_IDENTITY
        return batch, batch.encode(identity, self.settings.compression, self.settings.compression_level)

    def needs_identity(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's next batch needs a producer id that is not there yet."""
        return self.identity is None and self._queues[topic_partition].identity is None

    # answers

    def answered(
        self,
        batch: Batch,
        code: ErrorCode,
        *,
        base_offset: int = -1,
        append_time_ms: int = -1,
        text: str = "",
        retry_at_ms: int = 0,
    ) -> None:
        """The broker's word on a batch in flight; NETWORK_EXCEPTION if there was none. `retry_at_ms`: when it may leave
        again, if it is to."""
        queue = self._queues[batch.topic_partition]
        verdict = VERDICTS.get(code, Verdict.FAIL)
        if code in CERTAINLY_NOT_WRITTEN:
            batch.in_doubt = batch.was_in_doubt
        if verdict is Verdict.DONE:
            self._succeed(batch, base_offset, append_time_ms)
        elif batch.outcome is not None:
            self._forget(batch)  # its time was over before the answer came
        elif verdict in (Verdict.RETRY, Verdict.RETRY_ELSEWHERE):
            queue.give_back(batch, retry_at_ms)
        elif verdict is Verdict.SPLIT and batch.record_count > 1 and not batch.in_doubt:
            self._split(batch)
        elif verdict is Verdict.SEQUENCE and not queue.is_oldest(batch):
            queue.give_back(batch, retry_at_ms)  # an older one is unanswered: this one was only out of turn
        elif verdict is Verdict.SEQUENCE and not batch.in_doubt:
            queue.is_restarting = True
            queue.give_back(batch, retry_at_ms)
        else:
            if verdict is Verdict.IDENTITY:
                queue.identity = self.identity = None
            self._forget(batch)
            batch.settle(DeliveryFailed(code, text or "the broker refused", certain=not batch.in_doubt))
        self._restart_if_due(queue)

    def _succeed(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        self._queues[batch.topic_partition].acknowledge(batch)
        self._free(batch)
        batch.settle((base_offset, append_time_ms))

    def _split(self, batch: Batch) -> None:
        """The batch was too large for the broker: its records leave in smaller ones."""
        parts = batch.split(self.settings.batch_bytes, self.settings.compression)
        for part in parts:
            self.buffered_bytes += part.size_bytes - BATCH_HEADER_BYTES
        self._free(batch)
        self._queues[batch.topic_partition].replace(batch, parts)

    def _forget(self, batch: Batch) -> None:
        self._queues[batch.topic_partition].remove(batch, leaves_gap=True)
        self._free(batch)

    def _free(self, batch: Batch) -> None:
        self.buffered_bytes -= batch.size_bytes - BATCH_HEADER_BYTES

    def _restart_if_due(self, queue: PartitionQueue) -> None:
        if not queue.is_restarting or queue.in_flight:
            return
        had_identity = queue.identity is not None
        for batch in queue.restart():
            queue.remove(batch)
            self._free(batch)
            text = "an earlier batch failed, and a broker may have this one already"
            batch.settle(DeliveryFailed(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text, certain=False))
        if had_identity and queue.identity is None:
            self.identity = None  # the last epoch is used up

    # time and ends

    def expire(self, now_ms: int) -> bool:
        """Settle what is past its delivery time-out as failed. True if there was any."""
        text = f"not delivered within delivery.timeout.ms={self.settings.delivery_timeout_ms}"
        found = False
        for queue in self._queues.values():
            while queue.waiting and now_ms >= queue.waiting[0].deadline_ms:  # the oldest stand first
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
        """A new leader is known: a batch that waits for its retry may leave at once."""
        queue = self._queues.get(topic_partition)
        if queue and queue.waiting:
            queue.waiting[0].retry_at_ms = 0

    def fail_all(self, code: ErrorCode, text: str) -> None:
        """Settle everything that is not settled, and forget what has not left."""
        for queue in self._queues.values():
            for batch in [*queue.in_flight, *queue.waiting]:
                batch.settle(DeliveryFailed(code, text, certain=not batch.in_doubt))
            while queue.waiting:
                batch = queue.waiting[0]
                queue.remove(batch, leaves_gap=batch.attempts > 0)
                self._free(batch)
            self._restart_if_due(queue)

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """Somebody waits for deliveries, or for the memory that they give back: in here no batch lingers. Nests."""
        self._hurried += 1
        try:
            yield
        finally:
            self._hurried -= 1

    def pending(self) -> Iterator[Batch]:
        """Every batch that is not over."""
        for queue in self._queues.values():
            yield from queue.in_flight
            yield from queue.waiting

    def partitions(self) -> list[TopicPartition]:
        """Partitions with batches that are not over."""
        return [tp for tp, queue in self._queues.items() if queue.waiting or queue.in_flight]
