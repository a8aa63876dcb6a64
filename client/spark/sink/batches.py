"""Pure: the record batches of a sink. The batches of many partitions are filled in parallel with columns of rows. Each
batch is sealed when it is full or when memory runs short. A sealed batch is sent like any other batch of
`kraft.client.core`.

Invariant: the rows of one partition are in its batches in their original order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kraft.client.core.batch import NO_IDENTITY, OutgoingBatch, ProducerIdentity
from kraft.client.core.records import DeliveryFailed, TopicPartition
from kraft.client.spark.sink.column_encoder import Columns, Longs, OpenRecords, RowPlacement, append, record_sizes_max
from kraft.client.spark.sink.rows import Ints
from kraft.wire.records import (
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    decode_batch,
    pack_header,
    read_header,
    write_crc,
)
from kraft.wire.records.compression import Compression, compress


class SequenceLost(Exception):
    """A partition's sequence numbers have a gap. Only a new producer epoch could close it, and the epoch must not
    change within a transaction."""


class SealedBatch(OutgoingBatch):
    """A batch with encoded records. `transaction`: the only producer identity under which the batch may be sent; None:
    any. `failures`: list to which the batch, or the parts of a split batch, are added when delivery fails permanently.
    """

    __slots__ = ("_count", "_encoded", "_failures", "_transaction")

    def __init__(
        self,
        topic_partition: TopicPartition,
        records: OpenRecords,
        *,
        now_ms: int,
        deadline_ms: int,
        compression: Compression = Compression.NONE,
        transaction: ProducerIdentity | None = None,
        failures: list[SealedBatch] | None = None,
    ) -> None:
        super().__init__(topic_partition, now_ms, deadline_ms)
        self._failures = failures
        self._count = records.count
        self._base_timestamp = records.base_timestamp
        self._max_timestamp = records.max_timestamp
        self._transaction = transaction
        self._encoded = records.buffer
        if compression is not Compression.NONE:
            with memoryview(records.buffer) as view, view[BATCH_HEADER_BYTES:] as block:
                self._encoded = bytearray(BATCH_HEADER_BYTES) + compress(compression, block)
        self.size_bytes = len(self._encoded)
        self.is_closed = True

    @property
    def record_count(self) -> int:
        return self._count

    def encode(
        self,
        identity: ProducerIdentity,
        compression: Compression,
        level: int | None = None,
        *,
        is_transactional: bool = False,
    ) -> bytes:
        """Return the whole batch with its header. Raises SequenceLost if the batch belongs to a transaction with
        another producer identity."""
        if self._transaction is not None and identity not in (self._transaction, NO_IDENTITY):
            raise SequenceLost
        is_transactional = is_transactional or self._transaction is not None
        attributes = int(compression) | (ATTRIBUTE_TRANSACTIONAL if is_transactional else 0)
        header = BatchHeader(
            base_offset=0,
            batch_length=len(self._encoded) - BATCH_PREFIX_BYTES,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=self._count,
        )
        pack_header(self._encoded, 0, header)
        write_crc(self._encoded, 0)
        return bytes(self._encoded)

    def split(self, bytes_max: int, compression: Compression) -> list[OutgoingBatch]:
        """Return the same records in batches of at most `bytes_max`, each with at most half of the records."""
        whole = OutgoingBatch(self.topic_partition, self.created_ms, self.deadline_ms)
        for record in decode_batch(self.encode(NO_IDENTITY, compression)):
            whole.add(record.key, record.value, record.headers, record.timestamp)
        return [self._sealed(part, compression) for part in whole.split(bytes_max, Compression.NONE)]

    def _sealed(self, part: OutgoingBatch, compression: Compression) -> SealedBatch:
        records = OpenRecords()
        records.buffer = bytearray(part.encode(NO_IDENTITY, Compression.NONE))
        header = read_header(records.buffer)
        records.count, records.base_timestamp, records.max_timestamp = (
            header.record_count,
            header.base_timestamp,
            header.max_timestamp,
        )
        return SealedBatch(
            self.topic_partition,
            records,
            now_ms=self.created_ms,
            deadline_ms=self.deadline_ms,
            compression=compression,
            transaction=self._transaction,
            failures=self._failures,
        )

    def settle(self, outcome: tuple[int, int] | DeliveryFailed) -> None:
        """Record the outcome as OutgoingBatch does. If delivery failed, also add the batch to `failures`."""
        is_new = self.outcome is None
        super().settle(outcome)
        if is_new and isinstance(outcome, DeliveryFailed) and self._failures is not None:
            self._failures.append(self)


class BatchSender(Protocol):
    """Interface that accepts full batches for sending. `send` may block until there is room for the batch."""

    def send(self, topic_partition: TopicPartition, records: OpenRecords) -> None: ...


class OpenBatches:
    """The batches being filled, one per partition. A full batch is passed to `sender` at once. When all of them
    together exceed `open_bytes_max`, the largest are passed to `sender` too."""

    def __init__(self, sender: BatchSender, *, batch_bytes: int, open_bytes_max: int) -> None:
        self._sender = sender
        self._batch_bytes = batch_bytes
        self._open_bytes_max = open_bytes_max
        self._open: dict[TopicPartition, OpenRecords] = {}

    def open_bytes(self, topic: str, partition: int) -> int:
        """Return the bytes of this partition's records that are not passed to the sender yet."""
        records = self._open.get((topic, partition))
        return 0 if records is None else len(records.buffer)

    def add(self, columns: Columns, topics: Sequence[str], topic_of: Ints, partition_of: Ints) -> None:
        """Append rows to the batches of their partitions, in order. `topic_of`: each row's index in `topics`."""
        if not len(partition_of):
            return
        width = int(partition_of.max()) + 1
        targets = topic_of * width + partition_of
        first = int(targets[0])
        if (targets == first).all():
            groups = [(first, 0, len(targets))]
        else:
            order = np.argsort(targets, kind="stable")
            columns, targets = columns.taken(order), targets[order]
            begins = [0, *(np.flatnonzero(np.diff(targets)) + 1).tolist()]
            ends = [*begins[1:], len(targets)]
            groups = [(int(targets[begin]), begin, end) for begin, end in zip(begins, ends, strict=True)]
        self._fill(columns, [((topics[t // width], t % width), begin, end) for t, begin, end in groups])

    def _fill(self, columns: Columns, groups: list[tuple[TopicPartition, int, int]]) -> None:
        opened = [self._open[tp] for tp, _, _ in groups if tp in self._open]
        sizes = record_sizes_max(
            columns, [one.base_timestamp for one in opened], max((one.count for one in opened), default=0)
        )
        ends = np.cumsum(sizes)
        places: list[RowPlacement] = []
        full: list[tuple[TopicPartition, OpenRecords]] = []
        for topic_partition, begin, end in groups:
            full += self._place(topic_partition, begin, end, sizes, ends, places)
        append(columns, places)
        for topic_partition, records in full:
            self._sender.send(topic_partition, records)
        self._bound()

    def _place(
        self,
        topic_partition: TopicPartition,
        begin: int,
        end: int,
        sizes: Longs,
        ends: Longs,
        places: list[RowPlacement],
    ) -> list[tuple[TopicPartition, OpenRecords]]:
        """Assign rows of one partition to batches, and return the batches that become full. The last batch
        stays open."""
        full: list[tuple[TopicPartition, OpenRecords]] = []
        records = self._open.get(topic_partition)
        while begin < end:
            if records is None:
                records = self._open[topic_partition] = OpenRecords()
            room = self._batch_bytes - len(records.buffer)
            before = int(ends[begin]) - int(sizes[begin])
            until = min(end, int(np.searchsorted(ends, before + room, side="right")))
            if until == begin and len(records.buffer) == BATCH_HEADER_BYTES:
                until = begin + 1  # a row larger than a batch gets a batch of its own
            if until > begin:
                places.append(RowPlacement(records, begin, until))
            if until < end:
                full.append((topic_partition, records))
                records = None
            begin = until
        return full

    def _bound(self) -> None:
        total = sum(len(records.buffer) for records in self._open.values())
        while total > self._open_bytes_max:
            largest = max(self._open, key=lambda one: len(self._open[one].buffer))
            records = self._open.pop(largest)
            total -= len(records.buffer)
            self._sender.send(largest, records)

    def finish(self) -> None:
        """Pass all open batches to the sender."""
        while self._open:
            topic_partition, records = self._open.popitem()
            self._sender.send(topic_partition, records)
