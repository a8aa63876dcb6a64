"""LogSlice: what a read gives: whole batches as a range of a file, not their bytes.

Source: broker-spec 4.3, hot-path 2.5.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.seam import FileRange, StorageCorrupt, WireError
from kraft.storage.handles import ColdRead
from kraft.wire.records import check_crc, iter_headers


class OffsetOutOfRange(Exception):
    """A read began below the log start or above the log end; both stand in the value."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is not in the log, which has [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class LogSlice(NamedTuple):
    """Whole batches in one segment, in order, `size_bytes` in all; no range if there is nothing to give.

    `base_offset` is the offset that was asked for; the first batch may begin below it. `segment_base` and `position`
    say where the slice begins, for the upper bound of aborted transactions.
    """

    base_offset: int
    segment_base: int
    position: int
    size_bytes: int
    ranges: tuple[FileRange, ...]

    def read_cached(self) -> bytes:
        """The bytes themselves, if they are in memory. ColdRead otherwise."""
        parts: list[bytes] = []
        for piece in self.ranges:
            data = piece.file.read_cached(piece.position, piece.count)
            if data is None:
                raise ColdRead(RangeNeed(piece))
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self) -> bytes:
        """The bytes themselves. *Blocking.*"""
        return b"".join(piece.file.read(piece.position, piece.count) for piece in self.ranges)

    def read_whole(self) -> bytes:
        """The bytes themselves, if they are whole batches that fit their CRCs. *Blocking.* StorageCorrupt, also if the
        file was cut meanwhile: then it means nothing."""
        data = self.read()
        at = 0
        try:
            for position, header in iter_headers(data):
                if not check_crc(data, position, header):
                    raise self._damaged(position, f"the one at offset {header.base_offset} does not fit its CRC")
                at = position + header.size_bytes
        except WireError as damage:
            raise self._damaged(at, str(damage)) from damage
        if at < self.size_bytes:
            raise self._damaged(at, f"{self.size_bytes - at} bytes hold no whole batch")
        return data

    def _damaged(self, at: int, why: str) -> StorageCorrupt:
        path = self.ranges[0].file.path
        return StorageCorrupt(
            f"{path}: the batch at byte {self.position + at} is damaged: {why}. To go on: restore the file, or "
            "have the log replicated again."
        )


class RangeNeed:
    """Bytes of a file that a range holds open."""

    __slots__ = ("_range",)

    def __init__(self, piece: FileRange) -> None:
        self._range = piece

    @property
    def path(self) -> str:
        return self._range.file.path

    @property
    def is_gone(self) -> bool:
        return False

    def warm(self) -> None:
        self._range.file.read(self._range.position, self._range.count)

    def keep(self) -> None:
        return None
