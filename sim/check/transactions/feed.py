"""Turns batches that disks showed, and high watermarks, into events of transactions, in an order that checks can judge.

A node's disk is observed before its state. So a write that a node made because a high watermark had just passed is seen
before that high watermark. Therefore writes are reported only when another node is observed. By then all that their
writer knew has been reported.
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

BatchName = tuple[TopicPartition, int, int]
"""(partition, base offset, digest): the same for all replicas."""


@dataclass(frozen=True, slots=True)
class TransactionLogged:
    """A record of the transaction log is committed. `before` is the last committed record of the same id."""

    value: LoggedTransaction
    before: LoggedTransaction | None


@dataclass(frozen=True, slots=True)
class EndWritten:
    """A leader has written a record of the transaction log, which need not be committed yet."""

    node: int
    value: LoggedTransaction


@dataclass(frozen=True, slots=True)
class MarkerWritten:
    """A leader has written a marker."""

    node: int
    topic_partition: TopicPartition
    offset: int
    marker: TransactionMarker


@dataclass(frozen=True, slots=True)
class MarkerCommitted:
    topic_partition: TopicPartition
    offset: int
    marker: TransactionMarker


@dataclass(frozen=True, slots=True)
class TransactionalDataWritten:
    """A leader has written data of a transaction. `known_epoch`: the highest epoch of that producer id that a client
    had been sent before (-1: none)."""

    node: int
    batch: BatchName
    producer: ProducedBy
    known_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionalDataCommitted:
    batch: BatchName
    producer: ProducedBy


class TransactionFeed:
    """`observe` returns the events that follow from one observation. `ledger` knows the committed records of the
    transaction log already when they are reported."""

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers) -> None:
        self.ledger = TransactionLedger()
        self._shadows = shadows
        self._ledgers = ledgers
        self._upto: dict[TopicPartition, int] = {}
        self.logs: set[TopicPartition] = set()
        """Logs with batches of transactions."""
        self._written: set[BatchName] = set()
        self._waiting: deque[tuple[int, Observation]] = deque()
        """(node, event) that are reported when another node is observed."""
        self._sent_epochs: dict[int, int] = {}
        """Producer id → highest epoch that a client was sent."""

    def observe(self, seen: Observation) -> Iterator[Observation]:
        """Yield the events that this observation makes ready."""
        if isinstance(seen, BatchWritten):
            yield from self._ready(seen.node)
            if seen.log is not None:
                self._batch_written(seen, seen.log)
        elif isinstance(seen, PartitionSeen):
            yield from self._ready(seen.node)
            yield from self._partition_seen(seen)
        elif isinstance(seen, ProducerIdSent):
            known = self._sent_epochs.get(seen.producer_id, -1)
            self._sent_epochs[seen.producer_id] = max(known, seen.producer_epoch)

    def rest(self) -> Iterator[Observation]:
        """Yield all waiting events, at the end of a run."""
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
