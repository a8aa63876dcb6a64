"""Pure: the batches and events of the metadata log as values.

The active controller writes each batch in one step: its records have the same time and consecutive offsets. Other
batches can be read too, but more slowly. Source: KIP-98 (message format v2), KIP-631.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraft.client.metadata_log.errors import MetadataLogError
from kraft.image import Event, UnknownEvent, decode_event
from kraft.seam import Buffer, WireError
from kraft.wire.records import BatchHeader, check_crc, decode_batch, decode_values, iter_headers


class Entry(NamedTuple):
    """One encoded event at its offset. `epoch` is the leader epoch in which the event was written."""

    offset: int
    epoch: int
    timestamp_ms: int
    value: bytes

    @property
    def event(self) -> Event:
        """Decoded event. Raise MetadataLogError if this release has no such event."""
        return decode(self.value)


class LogBatch(NamedTuple):
    """A complete batch, at `position` of `data`, with a verified CRC."""

    data: Buffer
    position: int
    header: BatchHeader


class BatchIdentity(NamedTuple):
    """Identity of a batch. If two logs of a cluster have the same batch at an offset, they are equal up to that
    batch."""

    base_offset: int
    epoch: int
    crc: int

    @staticmethod
    def of(header: BatchHeader) -> BatchIdentity:
        return BatchIdentity(header.base_offset, header.partition_leader_epoch, header.crc)


def decode(value: bytes) -> Event:
    """Decode an event. Raise MetadataLogError if it is damaged or this release cannot read it."""
    try:
        return decode_event(value)
    except (UnknownEvent, WireError) as problem:
        raise MetadataLogError(str(problem)) from None


def whole_batches(data: Buffer) -> Iterator[LogBatch]:
    """Yield the batches of a fetch response, without an incomplete one at the end. Raise WireError for a wrong CRC or
    header."""
    for position, header in iter_headers(data):
        if not check_crc(data, position, header):
            raise WireError(f"the batch at offset {header.base_offset} has a wrong checksum")
        yield LogBatch(data, position, header)


def values_of(batch: LogBatch) -> list[bytes]:
    """Return the encoded events of a batch, in order of offset. Return none for a control batch."""
    header = batch.header
    if header.is_control:
        return []
    return decode_values(batch.data, batch.position)


def is_plain(header: BatchHeader) -> bool:
    """Whether the records of the batch have consecutive offsets, and all have the batch's time."""
    is_dense = header.record_count == header.last_offset_delta + 1
    return is_dense and header.base_timestamp == header.max_timestamp


def entries_of(batch: LogBatch) -> list[Entry]:
    """Return the events of a batch; none for a control batch."""
    header = batch.header
    if header.is_control:
        return []
    epoch = header.partition_leader_epoch
    if is_plain(header):
        time_ms = header.base_timestamp
        values = enumerate(values_of(batch), header.base_offset)
        return [Entry(offset, epoch, time_ms, value) for offset, value in values]
    records = decode_batch(batch.data, batch.position)
    return [Entry(record.offset, epoch, record.timestamp, record.value or b"") for record in records]


def entries_between(batches: Iterable[LogBatch], start: int, end: int | None = None) -> Iterator[Entry]:
    """Yield the events at offsets from `start` up to, but not including, `end`. If `end` is None, yield those of all
    batches."""
    for batch in batches:
        header = batch.header
        if end is not None and header.base_offset >= end:
            return
        if header.next_offset <= start:
            continue
        entries = entries_of(batch)
        if header.base_offset < start or (end is not None and header.next_offset > end):
            last = header.next_offset if end is None else end
            yield from (entry for entry in entries if start <= entry.offset < last)
        else:
            yield from entries
