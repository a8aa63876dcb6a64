"""Turns observed writes and high watermarks into events of transactions, in an order that suits the checks.

A node's disk is observed before its state. So a write that a node made because a high watermark had just risen is
observed before that high watermark. Therefore a write becomes an event only when another node is observed. By then the
high watermarks that its writer knew have become events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from kraft.sim.check.observations import (
    BatchWritten,
    LoggedTransaction,
    Observation,
    PartitionSeen,
    ProducedBy,
    ProducerIdSent,
    TopicPartition,
    TransactionMarker,
)
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import ShadowBatch, Shadows
from kraft.sim.check.transactions.ledger import TransactionLedger

EPOCHS = 1 << 15
"""Number of epochs of a producer id."""
BatchName = tuple[TopicPartition, int, int]
"""(partition, base offset, digest) of a batch: the same in all replicas."""


@dataclass(frozen=True, slots=True)
class TransactionLogged:
    """Event: a record of the transaction log was committed. `before` is the last committed record of the same
    transactional id."""

    value: LoggedTransaction
    before: LoggedTransaction | None


@dataclass(frozen=True, slots=True)
class EndWritten:
    """Event: a leader wrote a record of the transaction log, which need not be committed yet."""

    node: int
    value: LoggedTransaction


@dataclass(frozen=True, slots=True)
class MarkerWritten:
    """Event: a leader wrote a marker."""

    node: int
    topic_partition: TopicPartition
    offset: int
    marker: TransactionMarker


@dataclass(frozen=True, slots=True)
class MarkerCommitted:
    """Event: a marker was committed."""

    topic_partition: TopicPartition
    offset: int
    marker: TransactionMarker


@dataclass(frozen=True, slots=True)
class TransactionalDataWritten:
    """Event: a leader wrote a batch of records of a transaction. `known_epoch` is the highest epoch of the producer id
    that had been sent to a client before; -1 if none had. It is EPOCHS if the transactional id has got another producer
    id."""

    node: int
    batch: BatchName
    producer: ProducedBy
    known_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionalDataCommitted:
    """Event: a batch of records of a transaction was committed."""

    batch: BatchName
    producer: ProducedBy


class TransactionFeed:
    """Source of the events of transactions. `observe` returns those that follow from one observation. When an event of
    a committed record of the transaction log is returned, `ledger` contains that record already."""

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers) -> None:
        self.ledger = TransactionLedger()
        self._shadows = shadows
        self._ledgers = ledgers
        self._upto: dict[TopicPartition, int] = {}
        self.logs: set[TopicPartition] = set()
        """Partitions that have had batches of transactions."""
        self._written: set[BatchName] = set()
        self._waiting: deque[tuple[int, Observation]] = deque()
        """(node, event) of the writes that are returned when another node is observed."""
        self._sent_epochs: dict[int, int] = {}
        """Producer id → highest epoch that was sent to a client."""
        self._producer_ids: dict[str, dict[int, None]] = {}
        """Transactional id → the producer ids that were sent to its producers, in order."""

    def observe(self, seen: Observation) -> Iterator[Observation]:
        """Yield the events that follow from this observation, and earlier writes of other nodes."""
        if isinstance(seen, BatchWritten):
            yield from self._ready(seen.node)
            if seen.log is not None:
                self._batch_written(seen, seen.log)
        elif isinstance(seen, PartitionSeen):
            yield from self._ready(seen.node)
            yield from self._partition_seen(seen)
        elif isinstance(seen, ProducerIdSent):
            self._identity_sent(seen)

    def _identity_sent(self, seen: ProducerIdSent) -> None:
        """Record the epoch of a producer id. If the transactional id had another producer id, that one is used up."""
        known = self._sent_epochs.get(seen.producer_id, -1)
        self._sent_epochs[seen.producer_id] = max(known, seen.producer_epoch)
        if not seen.transactional_id:
            return
        sent = self._producer_ids.setdefault(seen.transactional_id, {})
        if seen.producer_id not in sent:
            self._sent_epochs.update(dict.fromkeys(sent, EPOCHS))
            sent[seen.producer_id] = None

    def rest(self) -> Iterator[Observation]:
        """Yield the events that still wait for the observation of another node, at the end of a run."""
        while self._waiting:
            yield self._waiting.popleft()[1]

    def _ready(self, node: int) -> Iterator[Observation]:
        while self._waiting and self._waiting[0][0] != node:
            yield self._waiting.popleft()[1]

    def _batch_written(self, seen: BatchWritten, log: TopicPartition) -> None:
        producer = seen.producer
        is_data = producer is not None and producer.is_transactional
        if not (is_data or seen.marker is not None or seen.transactions):
            return
        self.logs.add(log)
        name = (log, seen.base_offset, seen.digest)
        if name in self._written:
            return
        self._written.add(name)
        if seen.marker is not None:
            event: Observation = MarkerWritten(seen.node, log, seen.base_offset, seen.marker)
            self._waiting.append((seen.node, event))
        elif producer is not None and is_data:
            known_epoch = self._sent_epochs.get(producer.producer_id, -1)
            self._waiting.append((seen.node, TransactionalDataWritten(seen.node, name, producer, known_epoch)))
        self._waiting += [(seen.node, EndWritten(seen.node, value)) for value in seen.transactions]

    def _partition_seen(self, seen: PartitionSeen) -> Iterator[Observation]:
        log = seen.topic_partition
        begin = self._upto.get(log, 0)
        if log not in self.logs or seen.high_watermark <= begin:
            return
        self._upto[log] = seen.high_watermark
        if self._ledgers.is_void(log):
            return
        for batch in self._shadows.log(seen.node, log).between(begin, seen.high_watermark):
            yield from self._batch_committed(seen.node, log, batch)

    def _batch_committed(self, node: int, log: TopicPartition, batch: ShadowBatch) -> Iterator[Observation]:
        for value in batch.transactions:
            before = self.ledger.current.get(value.transactional_id)
            self.ledger.add(value)
            yield TransactionLogged(value, before)
        if batch.marker is not None:
            yield MarkerCommitted(log, batch.base_offset, batch.marker)
        elif batch.producer is not None and batch.producer.is_transactional:
            name = (log, batch.base_offset, batch.digest)
            self._waiting.append((node, TransactionalDataCommitted(name, batch.producer)))
