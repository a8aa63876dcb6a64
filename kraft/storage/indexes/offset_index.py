"""The offset index of a segment: from offsets to file positions, one entry per `index.interval.bytes` of log.

An entry is (relative offset of a batch's LAST offset, file position of that batch's start); both strictly increase.
Source: Kafka's OffsetIndex, docs/storage.md#lookups.
"""

from __future__ import annotations

from struct import Struct

from kraft.storage.handles import Handle
from kraft.storage.indexes.index_file import IndexFile

ENTRY = Struct(">ii")
_OFFSET, _POSITION = 0, 1


class OffsetIndex(IndexFile):
    __slots__ = ("base_offset",)

    def __init__(self, handle: Handle, base_offset: int, file_entries: int = 0) -> None:
        super().__init__(handle, ENTRY, file_entries)
        self.base_offset = base_offset

    def floor(self, offset: int) -> tuple[int, int | None]:
        """Return where to begin a scan for `offset`: position and offset of the entry with the greatest offset <=
        `offset`, or 0 and None."""
        if not len(self):
            return 0, None
        count = self.count_up_to(offset - self.base_offset, field=_OFFSET)
        found, position = self.entry(count - 1) if count else (0, 0)
        # the first batch has no entry; an entry of zeros was on a lost sector
        return position, self.base_offset + found if position else None

    def floor_position(self, position: int) -> int:
        """Return the greatest batch start <= `position` in the index; 0 if none."""
        if not len(self):
            return 0
        count = self.count_up_to(position, field=_POSITION)
        return self.entry(count - 1)[_POSITION] if count else 0

    def first_offset_from(self, position: int) -> int | None:
        """Return the offset of the first entry at or after `position`, or None."""
        count = self.count_up_to(position - 1, field=_POSITION)
        return self.base_offset + self.entry(count)[_OFFSET] if count < len(self) else None

    def truncate_from(self, offset: int) -> None:
        """Remove entries with an offset of at least `offset`. *Blocking.*"""
        self.keep_first(self.count_up_to(offset - 1 - self.base_offset, field=_OFFSET))
