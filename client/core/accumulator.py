"""Records on their way out: batches per partition, their sequence numbers, retries and deadlines.

Invariants:
- Per partition batches leave in the order in which they were filled, one in flight at a time, so that a retry cannot
  overtake (KIP-98's order for any broker).
- A batch gets its producer id, epoch and base sequence when it first leaves, and keeps them and its bytes for every
  retry: a broker that already has it recognises the duplicate.
- A batch is `in_doubt` from the moment that it left until the broker's word; only a batch that is not in doubt may be
  reported as certainly not written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kraft.client.core.records import Headers, TopicPartition
from kraft.wire.compression import Compression
from kraft.wire.records import Record, encode_batch

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 21
SEQUENCE_MODULUS = 2**31


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What InitProducerId gave; (-1, -1) for a producer that is not idempotent."""

    producer_id: int = -1
    producer_epoch: int = -1


NO_IDENTITY = ProducerIdentity()


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """Kafka's `batch.size`, `linger.ms`, `buffer.memory`, `delivery.timeout.ms`, `compression.type`."""

    batch_bytes: int = 16384
    linger_ms: int = 0
    buffer_bytes: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000
    compression: Compression = Compression.NONE


@dataclass(slots=True, eq=False)
class PendingRecord:
    """One record that waits. `token` is whatever the driver needs to tell its sender."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    token: object

    def size_bytes(self) -> int:
        """An upper bound of the record's encoded size."""
        size = RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += 10 + 4 * len(name) + len(value or b"")
        return size


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that leave together."""

    topic_partition: TopicPartition
    created_ms: int
    deadline_ms: int
    records: list[PendingRecord] = field(default_factory=list)
    size_bytes: int = BATCH_OVERHEAD_BYTES
    closed: bool = False
    identity: ProducerIdentity | None = None
    base_sequence: int = -1
    encoded: bytes | None = None
    attempts: int = 0
    retry_at_ms: int = 0
    in_doubt: bool = False


class Accumulator:
    """All batches of one producer. Time comes in as milliseconds of a monotonic clock."""

    def __init__(self, settings: AccumulatorSettings) -> None:
        self.settings = settings
        self.buffered_bytes = 0
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        self._in_flight: dict[TopicPartition, Batch] = {}
        self._next_sequence: dict[TopicPartition, int] = {}
        self._flushing = False

    def has_room(self, record: PendingRecord) -> bool:
        """Whether `record` fits `buffer.memory`; an empty buffer takes any record."""
        return not self.buffered_bytes or self.buffered_bytes + record.size_bytes() <= self.settings.buffer_bytes

    def add(self, topic_partition: TopicPartition, record: PendingRecord, now_ms: int) -> Batch | None:
        """Append to the partition's open batch. Gives the batch that was closed because it was full, if one was."""
        queue = self._queues.setdefault(topic_partition, deque())
        size = record.size_bytes()
        closed = None
        last = queue[-1] if queue else None
        if last is not None and not last.closed and last.size_bytes + size > self.settings.batch_bytes:
            last.closed = True
            closed = last
        if last is None or last.closed:
            last = Batch(topic_partition, now_ms, now_ms + self.settings.delivery_timeout_ms)
            queue.append(last)
        last.records.append(record)
        last.size_bytes += size
        self.buffered_bytes += size
        return closed

    def partitions_ready(self, now_ms: int) -> list[TopicPartition]:
        """Partitions whose first batch may leave now: full, lingered, or due for a retry, and none in flight."""
        return [tp for tp, queue in self._queues.items() if queue and self._is_ready(tp, queue, now_ms)]

    def _is_ready(self, topic_partition: TopicPartition, queue: deque[Batch], now_ms: int) -> bool:
        if topic_partition in self._in_flight:
            return False
        head = queue[0]
        if head.attempts:
            return now_ms >= head.retry_at_ms
        full = head.closed or len(queue) > 1 or head.size_bytes >= self.settings.batch_bytes
        return full or self._flushing or now_ms >= head.created_ms + self.settings.linger_ms

    def next_deadline_ms(self) -> int | None:
        """When to look again: the earliest linger end, retry time or delivery deadline. None if nothing waits."""
        deadlines = []
        for topic_partition, queue in self._queues.items():
            if not queue:
                continue
            head = queue[0]
            deadlines.append(head.deadline_ms)
            if topic_partition not in self._in_flight:
                deadlines.append(head.retry_at_ms if head.attempts else head.created_ms + self.settings.linger_ms)
        return min(deadlines, default=None)

    def take(self, topic_partition: TopicPartition, identity: ProducerIdentity) -> Batch:
        """The partition's first batch, encoded and now in flight. Call only for a ready partition."""
        batch = self._queues[topic_partition][0]
        batch.closed = True
        if batch.encoded is None:
            self._seal(batch, identity)
        batch.attempts += 1
        batch.in_doubt = True
        self._in_flight[topic_partition] = batch
        return batch

    def _seal(self, batch: Batch, identity: ProducerIdentity) -> None:
        batch.identity = identity
        if identity.producer_id >= 0:
            batch.base_sequence = self._next_sequence.get(batch.topic_partition, 0)
            following = (batch.base_sequence + len(batch.records)) % SEQUENCE_MODULUS
            self._next_sequence[batch.topic_partition] = following
        records = [
            Record(offset=index, timestamp=r.timestamp_ms, key=r.key, value=r.value, headers=r.headers)
            for index, r in enumerate(batch.records)
        ]
        encoded = encode_batch(
            records,
            compression=self.settings.compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=batch.base_sequence,
        )
        batch.encoded = bytes(encoded)

    def done(self, batch: Batch) -> None:
        """The batch is over, acknowledged or given up: forget it and free its bytes."""
        queue = self._queues[batch.topic_partition]
        queue.remove(batch)
        if not queue:
            del self._queues[batch.topic_partition]
        if self._in_flight.get(batch.topic_partition) is batch:
            del self._in_flight[batch.topic_partition]
        self.buffered_bytes -= batch.size_bytes - BATCH_OVERHEAD_BYTES

    def retry(self, batch: Batch, at_ms: int, *, certainly_not_written: bool) -> None:
        """The batch came back; it leaves again, first of its partition, at `at_ms`."""
        del self._in_flight[batch.topic_partition]
        batch.retry_at_ms = at_ms
        if certainly_not_written and batch.attempts == 1:
            batch.in_doubt = False

    def expedite(self, topic_partition: TopicPartition) -> None:
        """A new leader is known: a batch that waits for its retry may leave at once."""
        queue = self._queues.get(topic_partition)
        if queue and topic_partition not in self._in_flight:
            queue[0].retry_at_ms = 0

    def restart_sequences(self) -> None:
        """A new producer id: batches that never left start at sequence 0 of it. Sealed ones keep what they have."""
        self._next_sequence.clear()

    def expired(self, now_ms: int) -> list[Batch]:
        """Batches past their delivery deadline that are not in flight, oldest first; the caller ends each."""
        return [
            batch
            for topic_partition, queue in self._queues.items()
            for batch in queue
            if now_ms >= batch.deadline_ms and self._in_flight.get(topic_partition) is not batch
        ]

    def flush(self, on: bool) -> None:
        """While on, batches do not linger."""
        self._flushing = on

    def pending(self) -> Iterator[Batch]:
        """Every batch that is not over."""
        for queue in self._queues.values():
            yield from queue

    def leaders_unknown(
        self, ready: list[TopicPartition], leader_of: Callable[[TopicPartition], int | None]
    ) -> set[str]:
        """Topics of ready partitions whose leader is not known."""
        return {tp[0] for tp in ready if leader_of(tp) is None}
