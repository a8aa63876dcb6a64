"""One segment of a log: a file of batches, its three indexes, and the positions of recent batches.

Positions are bytes in the `.log` file. The segment remembers the positions of its last few hundred batch boundaries, so
that a read at the tail (a follower, a consumer that keeps up) needs neither an index nor a file access. Reading headers
raises StorageCorrupt where no batch can be: these bytes are this node's own, not a peer's.
Source: Kafka's LogSegment, docs/performance.md.
"""

from __future__ import annotations

from struct import Struct

from kraft.seam import Disk, StorageCorrupt, WireError
from kraft.storage.handles import FileCache, Handle
from kraft.storage.indexes.offset_index import OffsetIndex
from kraft.storage.indexes.time_index import TimeIndex
from kraft.storage.indexes.txn_index import TxnIndex
from kraft.storage.log_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, offset_name
from kraft.wire.records import BATCH_HEADER_BYTES, BATCH_PREFIX_BYTES, MAGIC, BatchHeader, read_header

RECENT_BOUNDARIES_MAX = 512
"""Maximum number of batch boundaries per generation; a segment remembers two generations of them."""
SCAN_WINDOW_BYTES = 16_384
RELATIVE_OFFSET_MAX = 2**31 - 1
NO_TIMESTAMP = -1

_HEAD = Struct(">qiib")


class Segment:
    """A segment of a log. `first_timestamp` is the first batch's max timestamp (None when empty), the reference for
    time-based rolls. `max_timestamp` and `max_timestamp_offset` are the largest timestamp so far and the last offset of
    its batch."""

    __slots__ = (
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "first_timestamp",
        "index",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "older",
        "recent",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        disk: Disk,
        cache: FileCache,
        directory: str,
        base_offset: int,
        *,
        present: frozenset[str],
        created_ms: int,
    ) -> None:
        """`present` holds the suffixes of the segment's files that exist."""
        stem = f"{directory}/{offset_name(base_offset)}"

        def handle(suffix: str) -> Handle:
            return Handle(disk, cache, stem + suffix, exists=suffix in present)

        self.base_offset = base_offset
        self.log = handle(LOG_SUFFIX)
        self.index = OffsetIndex(handle(INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(handle(TIME_INDEX_SUFFIX), base_offset)
        self.txn_index = TxnIndex(handle(TXN_INDEX_SUFFIX))
        self.created_ms = created_ms
        self.size: int
        self.first_timestamp: int | None
        self.max_timestamp: int
        self.max_timestamp_offset: int
        self.bytes_since_index: int
        self.recent: dict[int, int]
        self.older: dict[int, int]
        self.reset()

    def reset(self) -> None:
        """Forget everything about the batches, before they are read again."""
        self.size = 0
        self.first_timestamp = None
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.bytes_since_index = 0
        self.time_index.last_timestamp = NO_TIMESTAMP
        self.recent = {self.base_offset: 0}
        self.older = {}

    @property
    def handles(self) -> tuple[Handle, Handle, Handle, Handle]:
        return self.log, self.index.handle, self.time_index.handle, self.txn_index.handle

    def note_batch(self, last_offset: int, max_timestamp: int, size: int, interval_bytes: int) -> bool:
        """Account for a batch at the end of the file: timestamps, index entries, size. Return True if the indexes got
        an entry.

        Recovery calls it for each batch that it reads, so that rebuilt indexes equal those of the appends."""
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        position = self.size
        self.size = position + size
        if self.bytes_since_index > interval_bytes:
            self.index.append(last_offset - self.base_offset, position)
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = size
            return True
        self.bytes_since_index += size
        return False

    def remember_boundary(self, offset: int, position: int) -> None:
        """Remember that a batch with offset `offset` begins (or will begin) at `position`."""
        recent = self.recent
        recent[offset] = position
        if len(recent) >= RECENT_BOUNDARIES_MAX:
            self.older = recent
            self.recent = {}

    def forget_boundaries(self) -> None:
        self.recent = {}
        self.older = {}

    def position_of(self, offset: int) -> int:
        """Return where the first batch with last offset >= `offset` begins; the segment's size if there is none. Raises
        ColdRead, StorageCorrupt."""
        position = self.recent.get(offset)
        if position is None:
            position = self.older.get(offset)
            if position is None:
                position = self._scan_to(offset)
        return position

    def _scan_to(self, offset: int) -> int:
        """As `position_of`, by reading headers from the index entry on. Raises ColdRead, StorageCorrupt."""
        for found, header in self.headers_from(*self.index.floor(offset)):
            if header.base_offset + header.last_offset_delta >= offset:
                return found
        return self.size

    def headers_from(self, position: int, last_offset: int | None = None) -> HeaderWalk:
        """Iterate over (position, header) of each batch from the batch start `position` on. `last_offset`: the last
        offset of the batch at `position`, according to the offset index. Iterating raises ColdRead, StorageCorrupt."""
        return HeaderWalk(self, position, last_offset)

    def cut(self, start: int, limit: int) -> int:
        """Return the greatest batch boundary in [start, limit] that is cheap to find. Raises ColdRead, StorageCorrupt.

        It comes from the offset index or, without an entry there, from the headers after `start`."""
        boundary = self.index.floor_position(limit)
        if boundary > start:
            return boundary
        boundary = start
        for position, header in self.headers_from(start):
            if position + header.batch_length + BATCH_PREFIX_BYTES > limit:
                break
            boundary = position + header.batch_length + BATCH_PREFIX_BYTES
        return boundary

    def header_at(self, position: int) -> BatchHeader:
        """Return the header of the batch that begins at `position`. Raises ColdRead, StorageCorrupt."""
        return next(HeaderWalk(self, position, window_bytes=BATCH_HEADER_BYTES))[1]

    def damaged_at(self, position: int, why: str) -> StorageCorrupt:
        """Return the error for a `position` where no batch of this segment can be."""
        return StorageCorrupt(
            f"{self.log.path}: the batch at byte {position} is damaged: {why}. To continue: restore the file, or have "
            "the log replicated again, if another replica has it whole."
        )

    def close_indexes(self) -> None:
        """Write the index entries that are only in memory, and the closing entry of the time index. The index files
        must be open or absent."""
        self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
        for index in (self.index, self.time_index):
            if not index.handle.exists:
                index.handle.create()
            index.write_tail()

    def close_handles(self) -> None:
        for handle in self.handles:
            handle.close()

    def leave(self) -> None:
        """Record that the log is not used any more: its folder may be removed at any time."""
        for handle in self.handles:
            handle.gone = True
            handle.pinned = False
            handle.close()

    def pin(self, pinned: bool) -> None:
        """Pin or unpin the files. Pinned files have unsynced bytes and stay open; others may be closed by the cache."""
        for handle in self.handles:
            handle.pinned = pinned

    def attach(self, cache: FileCache) -> None:
        """Move the (closed) handles to another cache."""
        for handle in self.handles:
            handle.move_to(cache)


class HeaderWalk:
    """Iterator over the headers of a segment's batches; reads a window at a time and never the records.

    Offsets outside the CRC are checked: a header's records must fit into its offsets, which must follow those of the
    batch before. The first header must match the offset index, if it was found there. A header with a too small end
    offset would otherwise make a lookup skip the batch silently."""

    __slots__ = ("_known_last", "_next_offset", "_position", "_segment", "_window", "_window_bytes", "_window_start")

    def __init__(
        self, segment: Segment, position: int, last_offset: int | None = None, window_bytes: int = SCAN_WINDOW_BYTES
    ) -> None:
        self._segment = segment
        self._position = position
        self._known_last = last_offset
        self._next_offset = segment.base_offset
        self._window_bytes = window_bytes
        self._window = b""
        self._window_start = position

    def __iter__(self) -> HeaderWalk:
        return self

    def __next__(self) -> tuple[int, BatchHeader]:
        position, segment = self._position, self._segment
        if position >= segment.size:
            raise StopIteration
        at = position - self._window_start
        if at + BATCH_HEADER_BYTES > len(self._window):
            self._window = segment.log.read(position, min(self._window_bytes, segment.size - position))
            self._window_start = position
            at = 0
        try:
            header = read_header(self._window, at)
        except WireError:
            raise self._damaged(at) from None
        size = header.batch_length + BATCH_PREFIX_BYTES
        if size > segment.size - position:
            raise self._damaged(at)
        span = header.last_offset_delta + 1
        if header.base_offset < self._next_offset or span < header.record_count or span < 1:
            raise self._misplaced(header)
        if self._known_last is not None:
            if header.last_offset != self._known_last:
                raise self._misplaced(header)
            self._known_last = None
        self._position = position + size
        self._next_offset = header.base_offset + span
        return position, header

    def _misplaced(self, header: BatchHeader) -> StorageCorrupt:
        known_end = "on" if self._known_last is None else f"to {self._known_last}, which its offset index names"
        return self._segment.damaged_at(
            self._position,
            f"{header.record_count} records at offsets {header.base_offset} to {header.last_offset}, "
            f"expected some from {self._next_offset} {known_end}",
        )

    def _damaged(self, at: int) -> StorageCorrupt:
        left = self._segment.size - self._position
        if len(self._window) - at < BATCH_HEADER_BYTES:
            return self._segment.damaged_at(self._position, f"only {len(self._window) - at} bytes are left")
        _, batch_length, _, magic = _HEAD.unpack_from(self._window, at)
        why = f"magic {magic} and {batch_length + BATCH_PREFIX_BYTES} bytes, expected {MAGIC} and at most {left}"
        return self._segment.damaged_at(self._position, why)
