"""The records of a batch that compaction keeps.

Only the record with the last offset of each key is kept. A tombstone is kept too, until the delete horizon that the
first round stamps on its batch. A reader that gets from the start to the end of the log within delete.retention.ms sees
every tombstone. A batch without remaining records is removed, unless its header is needed: for its producer's last
sequence, or to show that the segment's offsets extend this far. A marker is either kept or removed as a whole.

Unlike in Kafka, the last batch of every cleaned segment stays, so that recovery can still distinguish a gap from a lost
end.
Source: KIP-534, Kafka's LogCleaner, docs/storage.md#what-compaction-keeps, docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass

from kraft.seam import Buffer
from kraft.storage.compaction.offset_map import OffsetMap
from kraft.storage.compaction.transaction_state import CleanedTransactions
from kraft.storage.markers import read_marker
from kraft.wire.records import BatchHeader
from kraft.wire.records.rewriting import RecordPlace, emptied, rewrite_batch, scan_batch

Keeping = Generator[None, None, Buffer | None]
"""Generator of *blocking* steps that decide which records of one batch are kept."""

LastOfProducer = tuple[int, int]
"""The source of a producer's state: its epoch, and the last offset of its last data batch. The offset is -1 if the
producer has no data batch, so that its state comes from a marker of that epoch."""


@dataclass(slots=True)
class RecordCounts:
    """Number of records read and kept, including markers."""

    read: int = 0
    kept: int = 0


class BatchFilter:
    """Decides which records one round keeps. `cleaned_to` is the end of a batch, where the offset map ends; later
    batches are not changed."""

    def __init__(
        self,
        offsets: OffsetMap,
        cleaned_to: int,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastOfProducer],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._cleaned_to = cleaned_to
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.counts = RecordCounts()

    def keep(self, header: BatchHeader, batch: memoryview, *, ends_segment: bool) -> Keeping:
        """Return what replaces this batch: `batch` itself if nothing changes, None if the batch is to be removed. A
        batch of many records takes several steps.

        Raises WireError if its records do not parse."""
        self.counts.read += header.record_count
        keeps_header = ends_segment or self._is_last_of_producer(header)
        if header.is_control:
            kept = yield from self._keep_marker(header, batch, keeps_header=keeps_header)
            self.counts.kept += header.record_count if kept is not None else 0
            return kept
        aborted = self._transactions.on_data(header)
        if header.base_offset >= self._cleaned_to and not aborted:
            self.counts.kept += header.record_count
            return batch
        if header.record_count and not aborted:
            kept = yield from self._keep_records(header, batch)
            if kept is not None:
                return kept
        if not keeps_header:
            return None
        return emptied(header) if header.record_count else batch

    def _keep_marker(self, header: BatchHeader, batch: memoryview, *, keeps_header: bool) -> Keeping:
        marker = read_marker(batch, 0, header)
        if marker is None or not self._transactions.on_marker(header, marker):
            return batch
        if header.has_delete_horizon:
            return batch if keeps_header or self._now_ms < header.base_timestamp else None
        return (yield from rewrite_batch(header, scan_batch(header, batch), horizon_ms=self._horizon_ms))

    def _keep_records(self, header: BatchHeader, batch: memoryview) -> Keeping:
        """Return the batch with only the records that stay. All records are checked before any is rewritten."""
        has_horizon = header.has_delete_horizon
        expired = has_horizon and self._now_ms >= header.base_timestamp
        count, number, has_tombstone = 0, 0, False
        pieces: Iterable[tuple[bytes, list[RecordPlace]]] = ()
        for number, (block, places) in enumerate(scan_batch(header, batch), start=1):
            if number > 1:
                yield
            kept = self._pick(header, places, expired=expired)
            pieces = ((block, kept),)
            count += len(kept)
            has_tombstone = has_tombstone or not all(place[6] for place in kept)
        self.counts.kept += count
        if not count:
            return None
        # a tombstone after the map's end may have earlier values before it
        stamps = has_tombstone and not has_horizon and header.next_offset <= self._cleaned_to
        if count == header.record_count and not stamps:
            return batch
        if number > 1:
            again = scan_batch(header, batch)
            pieces = ((piece, self._pick(header, found, expired=expired)) for piece, found in again)
        return (yield from rewrite_batch(header, pieces, horizon_ms=self._horizon_ms if stamps else None))

    def _pick(self, header: BatchHeader, places: list[RecordPlace], *, expired: bool) -> list[RecordPlace]:
        """Return the records that are the last of their key, without `expired` tombstones."""
        base, get = header.base_offset, self._offsets.get
        return [
            place
            for place in places
            if place[5] is not None and base + place[4] >= get(place[5]) and (place[6] or not expired)
        ]

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        epoch, last_data_offset = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == epoch
