"""Writer of a segment that replaces others: a `.cleaned` file and its indexes, while appends to the log continue.

The new segment is a normal `Segment` with another name, and its indexes grow as with appends.
Source: Kafka's LogCleaner.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.seam import Buffer, Disk
from kraft.storage.handles import FileCache
from kraft.storage.indexes.txn_index import AbortedTransaction
from kraft.storage.log_names import CLEANED_SUFFIX
from kraft.storage.segment import Segment
from kraft.wire.records import BatchHeader

FILES_PER_SEGMENT = 4


class CleanedSegment:
    """A segment under construction. All methods are *blocking*. The first call creates the files."""

    def __init__(self, disk: Disk, directory: str, replaces: Sequence[Segment], index_interval_bytes: int) -> None:
        """Begin a segment at the base offset of the first segment in `replaces`, with the age of the last one."""
        cache = FileCache(FILES_PER_SEGMENT)
        base, created_ms = replaces[0].base_offset, replaces[-1].created_ms
        self._segment = Segment(disk, cache, directory, base, present=frozenset(), created_ms=created_ms)
        self._interval_bytes = index_interval_bytes
        for handle in self._segment.handles:
            handle.path += CLEANED_SUFFIX
        self._segment.log.create()

    def append(self, batches: Sequence[tuple[BatchHeader, Buffer]]) -> int:
        """Write these batches at the end, as one write. Return their size in bytes."""
        segment = self._segment
        before = segment.size
        if batches:
            segment.log.open_blocking().append(b"".join([batch for _, batch in batches]))
        for header, batch in batches:
            segment.note_batch(header.last_offset, header.max_timestamp, len(batch), self._interval_bytes)
        return segment.size - before

    def finish(self, aborted: Sequence[AbortedTransaction]) -> Segment:
        """Write the indexes' buffered entries and the transaction index. Return the complete segment, whose bytes are
        not synced."""
        self._segment.close_indexes()
        if aborted:
            self._segment.txn_index.replace(list(aborted))
        return self._segment

    def discard(self) -> None:
        """Remove the files."""
        for handle in self._segment.handles:
            if handle.exists:
                handle.remove()
