"""The time index of a segment: from timestamps to offsets.

An entry is (largest timestamp so far, relative last offset of the batch with that timestamp). Both increase, the
timestamp strictly. The last entry of a rolled segment has its largest timestamp. Source: KIP-33, Kafka's TimeIndex.
"""

from __future__ import annotations

from struct import Struct

from kraft.storage.handles import Handle
from kraft.storage.indexes.index_file import IndexFile

ENTRY = Struct(">qi")
_TIMESTAMP, _OFFSET = 0, 1


class TimeIndex(IndexFile):
    __slots__ = ("base_offset", "last_timestamp")

    def __init__(self, handle: Handle, base_offset: int, file_entries: int = 0) -> None:
        super().__init__(handle, ENTRY, file_entries)
        self.base_offset = base_offset
        self.last_timestamp = -1

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add (timestamp, offset) if the timestamp is above that of the last entry."""
        if timestamp > self.last_timestamp:
            self.append(timestamp, offset - self.base_offset)
            self.last_timestamp = timestamp

    def last(self) -> tuple[int, int] | None:
        """Return (largest timestamp, last offset of its batch) of the last entry, or None. Raises ColdRead."""
        if not len(self):
            return None
        timestamp, relative = self.entry(len(self) - 1)
        return timestamp, self.base_offset + relative

    def floor(self, timestamp: int) -> int:
        """Return the offset of the last entry with a timestamp up to `timestamp`; the base offset if none. Raises
        ColdRead."""
        count = self.count_up_to(timestamp, field=_TIMESTAMP)
        return self.base_offset + (self.entry(count - 1)[_OFFSET] if count else 0)

    def truncate_from(self, offset: int) -> None:
        """Remove entries with an offset of at least `offset`. *Blocking.*"""
        self.keep_first(self.count_up_to(offset - 1 - self.base_offset, field=_OFFSET))
        last = self.last()
        self.last_timestamp = last[0] if last else -1
