"""A producer's batch. It is filled record by record in its encoded form, and completed with the producer's identity
when it is sent.

Records are encoded when they are added. So a batch's size is known exactly, and completing it needs one join, one
compression and a header.

A batch is `in_doubt` while it is unknown whether a broker has it. This is the case from sending until a response
settles the attempt. If an attempt ends without such a response, the batch stays in doubt permanently.
Source: KIP-98 (message format v2, sequence numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraft.client.core.records import DeliveryFailed, DeliveryReport, Headers, TopicPartition
from kraft.wire.records import (
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    decode_batch,
    pack_header,
    write_crc,
)
from kraft.wire.records.compression import Compression, compress
from kraft.wire.varints import encode_unsigned

RECORD_BYTES_MAX_BESIDE_CONTENT = 36
"""Maximum size in bytes of the record fields without content: length, attributes, time and offset deltas, key and value
lengths, and header count, each with its longest varint."""
HEADER_BYTES_MAX_BESIDE_CONTENT = 10
_SHORT = 1024
_SHORT_LENGTHS = _SHORT // 2
_VARINTS = tuple(encode_unsigned(value) for value in range(_SHORT))
"""Precomputed varints of small numbers, because a record has five varints. Lengths and deltas are zigzag-encoded, that
is, doubled."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The producer id and epoch from InitProducerId; (-1, -1) for a producer that is not idempotent."""

    producer_id: int = -1
    producer_epoch: int = -1


NO_IDENTITY = ProducerIdentity()


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound of a record's encoded size."""
    size = RECORD_BYTES_MAX_BESIDE_CONTENT + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_BYTES_MAX_BESIDE_CONTENT + 4 * len(name) + len(content or b"")
    return size


class RecordInBatch:
    """The place of one record: its batch, and its index in the batch. When the batch is split, both are updated."""

    __slots__ = ("batch", "index", "timestamp_ms")

    def __init__(self, batch: OutgoingBatch, index: int, timestamp_ms: int) -> None:
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms

    @property
    def is_done(self) -> bool:
        return self.batch.outcome is not None

    @property
    def outcome(self) -> DeliveryReport | DeliveryFailed | None:
        """The record's outcome; None until its batch is settled."""
        told = self.batch.outcome
        if told is None or isinstance(told, DeliveryFailed):
            return told
        base_offset, append_time_ms = told
        return DeliveryReport(
            *self.batch.topic_partition,
            -1 if base_offset < 0 else base_offset + self.index,
            self.timestamp_ms if append_time_ms < 0 else append_time_ms,
        )


class OutgoingBatch:
    """Records of one partition that are sent together."""

    __slots__ = (
        "_base_timestamp",
        "_make",
        "_max_timestamp",
        "_on_settled",
        "_parts",
        "attempts",
        "base_sequence",
        "block",
        "created_ms",
        "deadline_ms",
        "deliveries",
        "in_doubt",
        "is_closed",
        "order",
        "outcome",
        "retry_at_ms",
        "size_bytes",
        "topic_partition",
        "was_in_doubt",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        created_ms: int,
        deadline_ms: int,
        make: Callable[[OutgoingBatch, int, int], RecordInBatch] = RecordInBatch,
    ) -> None:
        """`make(batch, index, timestamp_ms)` creates the value that `add` returns for a record."""
        self._make = make
        self.topic_partition = topic_partition
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        self.size_bytes = BATCH_HEADER_BYTES
        self.deliveries: list[RecordInBatch] = []
        self.is_closed = False
        self.order: tuple[int, ...] = ()
        self.base_sequence = -1
        self.block: bytes | None = None
        self.attempts = 0
        self.retry_at_ms = 0
        self.in_doubt = False
        self.was_in_doubt = False
        self.outcome: tuple[int, int] | DeliveryFailed | None = None
        """Outcome of the batch: (base offset, log append time) if it succeeded, each -1 if unknown; DeliveryFailed if
        it failed; None before."""
        self._on_settled: list[Callable[[], None]] = []
        self._parts: list[bytes] = []
        self._base_timestamp = 0
        self._max_timestamp = -1

    @property
    def record_count(self) -> int:
        return len(self.deliveries)

    def add(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> RecordInBatch:
        """Append one record."""
        index = len(self.deliveries)
        if not index:
            self._base_timestamp = timestamp_ms
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        delta = timestamp_ms - self._base_timestamp
        time = _varint(delta << 1 if delta >= 0 else (-delta << 1) - 1) if delta else b"\0"
        place = _VARINTS[index << 1] if index < _SHORT_LENGTHS else _varint(index << 1)
        key_size, key = (b"\1", b"") if key is None else (_varint(len(key) << 1), key)
        value_size, value = (b"\1", b"") if value is None else (_varint(len(value) << 1), value)
        rest = _encode_headers(headers) if headers else b"\0"
        size = 1 + len(time) + len(place) + len(key_size) + len(key) + len(value_size) + len(value) + len(rest)
        record = b"".join((_varint(size << 1), b"\0", time, place, key_size, key, value_size, value, rest))
        self._parts.append(record)
        self.size_bytes += len(record)
        delivery = self._make(self, index, timestamp_ms)
        self.deliveries.append(delivery)
        return delivery

    def encode(
        self,
        identity: ProducerIdentity,
        compression: Compression,
        level: int | None = None,
        *,
        is_transactional: bool = False,
    ) -> bytes:
        """Return the whole batch in wire format, with this producer identity and `base_sequence`."""
        self.is_closed = True
        if self.block is None:
            self.block = b"".join(self._parts)
            self._parts = []
            if compression is not Compression.NONE:
                self.block = compress(compression, self.block, level)
        count = len(self.deliveries)
        header = BatchHeader(
            base_offset=0,
            batch_length=BATCH_HEADER_BYTES - BATCH_PREFIX_BYTES + len(self.block),
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=int(compression) | (ATTRIBUTE_TRANSACTIONAL if is_transactional else 0),
            last_offset_delta=count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=count,
        )
        encoded = bytearray(BATCH_HEADER_BYTES)
        pack_header(encoded, 0, header)
        encoded += self.block
        write_crc(encoded, 0)
        return bytes(encoded)

    def split(self, bytes_max: int, compression: Compression) -> list[OutgoingBatch]:
        """Split a batch that a broker rejected as too large. Each part has at most `bytes_max` bytes and at most half
        of the records. The records' deliveries then refer to the parts."""
        parts: list[OutgoingBatch] = []
        for delivery, record in zip(self.deliveries, decode_batch(self.encode(NO_IDENTITY, compression)), strict=True):
            size = record_bytes_max(record.key, record.value, record.headers)
            last = parts[-1] if parts else None
            if last is None or last.size_bytes + size > bytes_max or 2 * last.record_count >= self.record_count:
                last = OutgoingBatch(self.topic_partition, self.created_ms, self.deadline_ms, self._make)
                last.is_closed = True
                parts.append(last)
            moved = last.add(record.key, record.value, record.headers, record.timestamp)
            delivery.batch, delivery.index = last, moved.index
            last.deliveries[-1] = delivery
        self._announce()
        return parts

    def settle(self, outcome: tuple[int, int] | DeliveryFailed) -> None:
        """Set the outcome of all records in the batch. Only the first call has an effect."""
        if self.outcome is None:
            self.outcome = outcome
            self._announce()

    def when_settled(self, callback: Callable[[], Any]) -> None:
        """Call `callback` once: when the batch is settled, or when its records have moved to other batches."""
        self._on_settled.append(callback)

    def _announce(self) -> None:
        callbacks, self._on_settled = self._on_settled, []
        for callback in callbacks:
            callback()


def _varint(value: int) -> bytes:
    return _VARINTS[value] if value < _SHORT else encode_unsigned(value)


def _encode_headers(headers: Headers) -> bytes:
    parts = [_varint(len(headers) << 1)]
    for name, content in headers:
        encoded = name.encode()
        parts += _varint(len(encoded) << 1), encoded
        parts += (b"\1",) if content is None else (_varint(len(content) << 1), content)
    return b"".join(parts)
