"""The batches of one partition: which may leave, in which order, under which sequence numbers.

Invariants:
- A batch gets its sequence when it first leaves and keeps it for every retry, so that a broker that has it already
  recognises the duplicate (KIP-98). Several batches may be on their way. A retry leaves only when it is the oldest of
  all that are unanswered, and nothing new leaves while one is out (C1).
- A batch that was given up after it had left leaves a gap in the sequence. Then nothing leaves until all that is on its
  way is answered, and the sequence starts again at 0 under a higher producer epoch. Waiting batches that may be in the
  log are not sent under that new identity, because the broker could not see that they are duplicates. Their outcome is
  reported as unknown.
- While any batch is in flight, a new one leaves by the connection that the last one took. Another leader might never
  learn of that one, and a broker without state of a producer accepts any first sequence. A broker that took a retry has
  that state.
- The first batch over a connection leaves alone, and so does the first of a sequence. Until it is acknowledged the
  broker may have no state of the producer. If it refused this one (it does not know yet that it leads, or lacks
  replicas in sync) and took the next one, the refused one would be out of order permanently.
- Without sequences order can be kept over a retry only by one batch at a time.
Source: KIP-98, KIP-360, Kafka's TransactionManager, Sender.
"""

from __future__ import annotations

from collections import deque

from kraft.client.core.batch import NO_IDENTITY, Batch, ProducerIdentity
from kraft.client.core.records import TopicPartition

SEQUENCE_MODULUS = 2**31
PRODUCER_EPOCH_MAX = 2**15 - 1


class PartitionQueue:
    """`waiting` are batches that are not on their way, oldest first; `in_flight` those that are."""

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
        self.waiting: deque[Batch] = deque()
        self.in_flight: deque[Batch] = deque()
        self.identity: ProducerIdentity | None = None
        """Under which batches leave; None: the producer's, when the next one leaves."""
        self.is_restarting = False
        self.route: object = None
        """The connection by which the last batch left."""
        self.is_known = False
        """Whether a batch of this sequence was acknowledged since batches leave by this connection."""
        self._next_sequence = 0
        self._next_order = 0

    def may_send(self, now_ms: int, in_flight_max: int) -> bool:
        """Whether order, retries and bounds let the first waiting batch leave now (it may still linger)."""
        if not self.waiting or self.is_restarting:
            return False
        head = self.waiting[0]
        if head.attempts:
            return now_ms >= head.retry_at_ms and (not self.in_flight or head.order < self.in_flight[0].order)
        if self.in_flight and (not self.is_known or self.in_flight[0].attempts > 1):
            return False
        return len(self.in_flight) < in_flight_max

    def may_go(self, route: object) -> bool:
        """Whether the first waiting batch may leave by this connection."""
        return not self.in_flight or route is self.route or self.waiting[0].attempts > 0

    def take(self, identity: ProducerIdentity, route: object) -> Batch:
        """The first waiting batch; it is in flight now, with its sequence. Only when `may_send`, and `may_go` by this
        connection."""
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

    def give_back(self, batch: Batch, retry_at_ms: int) -> None:
        """A batch in flight came back without success; it leaves again, in its order, not before `retry_at_ms`."""
        self.in_flight.remove(batch)
        batch.retry_at_ms = retry_at_ms
        self._insert(batch)

    def _insert(self, batch: Batch) -> None:
        at = 0
        while at < len(self.waiting) and self.waiting[at].order and self.waiting[at].order < batch.order:
            at += 1
        self.waiting.insert(at, batch)

    def acknowledge(self, batch: Batch) -> None:
        """A batch in flight is in the log."""
        self.in_flight.remove(batch)
        self.is_known = True

    def is_oldest(self, batch: Batch) -> bool:
        """Whether no batch that was sent before this one is still unanswered."""
        others = [*list(self.in_flight)[:1], *list(self.waiting)[:1]]
        return all(not other.order or other.order >= batch.order for other in others)

    def remove(self, batch: Batch, *, leaves_gap: bool = False) -> None:
        """A batch is over. `leaves_gap`: its sequence may be missing in the log."""
        (self.in_flight if batch in self.in_flight else self.waiting).remove(batch)
        if leaves_gap and batch.base_sequence >= 0:
            self.is_restarting = True

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """A batch in flight came back to be sent in parts: they keep its sequence numbers between them."""
        self.in_flight.remove(batch)
        sequence = batch.base_sequence
        for number, part in enumerate(parts):
            part.order = (*batch.order, number)
            part.attempts = batch.attempts
            if sequence >= 0:
                part.base_sequence = sequence
                sequence = (sequence + part.record_count) % SEQUENCE_MODULUS
            self._insert(part)

    def restart(self) -> list[Batch]:
        """Begin a new sequence, once nothing is in flight. Gives the waiting batches that must be given up instead,
        because they may be in the log; they are still in `waiting`."""
        self.is_restarting = self.is_known = False
        self._next_sequence = 0
        if self.identity is not None:
            self.identity = _bumped(self.identity)
        doubtful = [batch for batch in self.waiting if batch.in_doubt]
        for batch in self.waiting:
            batch.base_sequence = -1
        return doubtful


def _bumped(identity: ProducerIdentity) -> ProducerIdentity | None:
    """The identity with the next epoch; None when there is none left."""
    if identity == NO_IDENTITY:
        return identity
    if identity.producer_epoch >= PRODUCER_EPOCH_MAX:
        return None
    return ProducerIdentity(identity.producer_id, identity.producer_epoch + 1)
