"""Pure: the batches and events of the metadata log as values.

The active controller writes each batch in one step: its records have one time, and their offsets follow each other.
Batches that are otherwise are read all the same, only slower. Source: KIP-98 (message format v2), KIP-631.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraft.client.metadata_log.errors import MetadataLogError
from kraft.image import Event, UnknownEvent, decode_event
from kraft.seam import Buffer, WireError
from kraft.wire.records import BatchHeader, check_crc, decode_batch, decode_values, iter_headers


class Entry(NamedTuple):
    """One event at its offset; `epoch` is the leader epoch it was written in, `value` its bytes."""

    offset: int
    epoch: int
    timestamp_ms: int
    value: bytes

    @property
    def event(self) -> Event:
        """MetadataLogError if this release does not know it."""
        return decode(self.value)


class LogBatch(NamedTuple):
    """A whole batch at `position` of `data`, its CRC checked."""

    data: Buffer
    position: int
    header: BatchHeader


class BatchMark(NamedTuple):
    """Identifies a batch. Two logs of a cluster that have the same batch at an offset are the same up to there."""

    base_offset: int
    epoch: int
    crc: int

    @staticmethod
    def of(header: BatchHeader) -> BatchMark:
        return BatchMark(header.base_offset, header.partition_leader_epoch, header.crc)


def decode(value: bytes) -> Event:
    """The event of these bytes. MetadataLogError for one that this release cannot read, or that is damaged."""
    try:
        return decode_event(value)
    except (UnknownEvent, WireError) as problem:
        raise MetadataLogError(str(problem)) from None


def whole_batches(data: Buffer) -> Iterator[LogBatch]:
    """The batches of a fetch answer; a partial one at the end is left out. WireError for a wrong CRC or header."""
    for position, header in iter_headers(data):
        if not check_crc(data, position, header):
            raise WireError(f"the batch at offset {header.base_offset} has a wrong checksum")
        yield LogBatch(data, position, header)


def values_of(batch: LogBatch) -> list[bytes]:
    """The encoded events of a batch, in order of offset from its base. Empty for a control batch."""
    header = batch.header
    if header.is_control:
        return []
    return decode_values(batch.data, batch.position)


def is_plain(header: BatchHeader) -> bool:
    """The offsets of the batch's records follow each other and all have its time."""
    is_dense = header.record_count == header.last_offset_delta + 1
    return is_dense and header.base_timestamp == header.max_timestamp


def entries_of(batch: LogBatch) -> list[Entry]:
    """The events of a batch; empty for a control batch."""
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
    """The events from `start` to before `end` (None: of all batches)."""
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
