"""The batches of one partition: which may be sent, in which order, with which sequence numbers.

Invariants:
- A batch gets its sequence number when it is first sent and keeps it for every retry, so that a broker that already has
  the batch recognizes the duplicate (KIP-98). Several batches may be in flight. A retry is sent only when its batch is
  the oldest of all unacknowledged ones, and no new batch is sent while a retry is in flight (C1).
- A batch that fails after it was sent leaves a gap in the sequence. Then nothing is sent until every batch in flight is
  answered, and the sequence restarts at 0 with a higher producer epoch. Waiting batches that may be in the log are not
  sent with the new epoch, because the broker could not recognize them as duplicates. Their outcome is reported as
  unknown.
- While any batch is in flight, a new batch is sent only on the same connection. If it were sent on another connection,
  a new leader might never receive the batch in flight, and a broker without state of a producer accepts any first
  sequence number. A broker that accepted a retry has that state.
- The first batch on a connection is sent alone, and so is the first of a sequence. Until it is acknowledged, the broker
  may have no state of the producer. The broker could reject this batch, because it has no in-sync replicas or has not
  yet learned that it is the leader. If it then accepted the next batch, the rejected one would be out of order
  permanently.
- Without sequence numbers, order survives a retry only if at most one batch is in flight.
Source: KIP-98, KIP-360, Kafka's TransactionManager, Sender.
"""

from __future__ import annotations

from collections import deque

from kraft.client.core.batch import NO_IDENTITY, OutgoingBatch, ProducerIdentity
from kraft.client.core.records import TopicPartition

SEQUENCE_MODULUS = 2**31
PRODUCER_EPOCH_MAX = 2**15 - 1


class PartitionQueue:
    """The batches of one partition, oldest first: those in `in_flight` were sent, and those in `waiting` were not."""

    __slots__ = (
        "_next_order",
        "_next_sequence",
        "identity",
        "in_flight",
        "is_known",
        "is_restarting",
        "route",
        "topic_partition",
        "waiting",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.waiting: deque[OutgoingBatch] = deque()
        self.in_flight: deque[OutgoingBatch] = deque()
        self.identity: ProducerIdentity | None = None
        """Producer identity for batches of this partition. None: the producer's identity is taken when the next batch
        is sent."""
        self.is_restarting = False
        self.route: object = None
        """The connection on which the last batch was sent."""
        self.is_known = False
        """Whether the broker has state of the producer, because a batch of this sequence was acknowledged on the
        current connection."""
        self._next_sequence = 0
        self._next_order = 0

    def may_send(self, now_ms: int, in_flight_max: int) -> bool:
        """Whether order, retries and limits allow the first waiting batch to be sent now. `linger.ms` is not
        considered."""
        if not self.waiting or self.is_restarting:
            return False
        head = self.waiting[0]
        if head.attempts:
            return now_ms >= head.retry_at_ms and (not self.in_flight or head.order < self.in_flight[0].order)
        if self.in_flight and (not self.is_known or self.in_flight[0].attempts > 1):
            return False
        return len(self.in_flight) < in_flight_max

    def may_send_on(self, route: object) -> bool:
        """Whether the first waiting batch may be sent on this connection."""
        return not self.in_flight or route is self.route or self.waiting[0].attempts > 0

    def take(self, identity: ProducerIdentity, route: object) -> OutgoingBatch:
        """Move the first waiting batch to `in_flight`, give it a sequence number, and return it. Call it only when
        `may_send`, and `may_send_on` for this connection, are true."""
        batch = self.waiting.popleft()
        if route is not self.route:
            self.route = route
            self.is_known = False
        batch.is_closed = True
        if self.identity is None:
            self.identity = identity
        if not batch.order:
            batch.order = (self._next_order,)
            self._next_order += 1
        if batch.base_sequence < 0 and self.identity != NO_IDENTITY:
            batch.base_sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + batch.record_count) % SEQUENCE_MODULUS
        batch.attempts += 1
        batch.was_in_doubt = batch.in_doubt
        batch.in_doubt = True
        if self.in_flight and batch.order < self.in_flight[0].order:
            self.in_flight.appendleft(batch)
        else:
            self.in_flight.append(batch)
        return batch

    def requeue(self, batch: OutgoingBatch, retry_at_ms: int) -> None:
        """Move a failed batch from `in_flight` back to `waiting`, at its place in the order. It is retried at
        `retry_at_ms` or later."""
        self.in_flight.remove(batch)
        batch.retry_at_ms = retry_at_ms
        self._insert(batch)

    def _insert(self, batch: OutgoingBatch) -> None:
        at = 0
        while at < len(self.waiting) and self.waiting[at].order and self.waiting[at].order < batch.order:
            at += 1
        self.waiting.insert(at, batch)

    def acknowledge(self, batch: OutgoingBatch) -> None:
        """Remove a batch from `in_flight` because it is in the log."""
        self.in_flight.remove(batch)
        self.is_known = True

    def is_oldest(self, batch: OutgoingBatch) -> bool:
        """Whether a response was received for every batch that was sent before this one."""
        others = [*list(self.in_flight)[:1], *list(self.waiting)[:1]]
        return all(not other.order or other.order >= batch.order for other in others)

    def remove(self, batch: OutgoingBatch, *, leaves_gap: bool = False) -> None:
        """Remove a settled batch. `leaves_gap` says that its sequence number may be missing in the log."""
        (self.in_flight if batch in self.in_flight else self.waiting).remove(batch)
        if leaves_gap and batch.base_sequence >= 0:
            self.is_restarting = True

    def replace(self, batch: OutgoingBatch, parts: list[OutgoingBatch]) -> None:
        """Replace a batch in flight by its parts, which are sent instead. The parts share the sequence numbers of the
        batch."""
        self.in_flight.remove(batch)
        sequence = batch.base_sequence
        for number, part in enumerate(parts):
            part.order = (*batch.order, number)
            part.attempts = batch.attempts
            if sequence >= 0:
                part.base_sequence = sequence
                sequence = (sequence + part.record_count) % SEQUENCE_MODULUS
            self._insert(part)

    def renew(self) -> None:
        """Begin a new sequence with the producer's next identity; no batch may be waiting or in flight."""
        self.is_restarting = self.is_known = False
        self._next_sequence = 0
        self.identity = None

    def restart(self) -> list[OutgoingBatch]:
        """Begin a new sequence; no batch may be in flight. Return the waiting batches that must fail because they may
        be in the log. These batches are still in `waiting`."""
        self.is_restarting = self.is_known = False
        self._next_sequence = 0
        if self.identity is not None:
            self.identity = _bumped(self.identity)
        doubtful = [batch for batch in self.waiting if batch.in_doubt]
        for batch in self.waiting:
            batch.base_sequence = -1
        return doubtful


def _bumped(identity: ProducerIdentity) -> ProducerIdentity | None:
    """Return the producer identity with the next epoch; None after the last epoch."""
    if identity == NO_IDENTITY:
        return identity
    if identity.producer_epoch >= PRODUCER_EPOCH_MAX:
        return None
    return ProducerIdentity(identity.producer_id, identity.producer_epoch + 1)
