"""LogSlice: the result of a read, whole batches as a range of a file instead of their bytes.

Source: Kafka's FetchDataInfo, docs/performance.md.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.seam import FileRange, StorageCorrupt, WireError
from kraft.storage.epochs import EpochCache
from kraft.storage.handles import ColdRead
from kraft.wire.records import BATCH_HEADER_BYTES, BatchHeader, check_crc, iter_headers, read_header

CHECK_BYTES_MAX = 1024 * 1024
"""Maximum bytes that `LogSlice.check` has in memory at a time, unless a batch is larger."""


class OffsetOutOfRange(Exception):
    """A read began below the log start or above the log end. The exception has both of these offsets."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is not in the log, which has [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class LogSlice(NamedTuple):
    """Whole batches in one segment, in order, `size_bytes` in total; no range if it is empty.

    `base_offset` is the requested offset; the first batch may begin below it. `segment_base` and `position` give the
    start of the slice, for the upper bound of aborted transactions."""

    base_offset: int
    segment_base: int
    position: int
    size_bytes: int
    ranges: tuple[FileRange, ...]

    def read_cached(self) -> bytes:
        """Return the bytes, if they are in memory. Raises ColdRead otherwise."""
        parts: list[bytes] = []
        for piece in self.ranges:
            data = piece.file.read_cached(piece.position, piece.count)
            if data is None:
                raise ColdRead(ColdRange(piece))
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self) -> bytes:
        """Return the bytes. *Blocking.*"""
        return b"".join(piece.file.read(piece.position, piece.count) for piece in self.ranges)

    def read_whole(self, log_end_offset: int) -> bytes:
        """Return the bytes, if they are whole batches with the right CRCs, ascending offsets, and all below
        `log_end_offset`. *Blocking.* Raises StorageCorrupt, which has no meaning if the file was truncated meanwhile.
        """
        data = self.read()
        done = _BatchWalk(self, log_end_offset).advance(data, 0)
        if done < self.size_bytes:
            raise self.damaged_at(done, f"{self.size_bytes - done} bytes hold no whole batch")
        return data

    def check(self, bytes_max: int, log_end_offset: int, epochs: EpochCache) -> None:
        """Check the batches in the first `bytes_max` bytes as `read_whole` does, one piece at a time.

        Also check that their leader epochs are those of `epochs` (the log's, when the slice was taken). *Blocking.*
        Raises StorageCorrupt."""
        walk = _BatchWalk(self, log_end_offset, epochs)
        for piece in self.ranges:
            at, wanted = 0, CHECK_BYTES_MAX
            while at < min(bytes_max, piece.count):
                left = piece.count - at
                data = piece.file.read(piece.position + at, min(wanted, left))
                done = walk.advance(data, at)
                if done:
                    at, wanted = at + done, CHECK_BYTES_MAX
                    continue
                size = read_header(data).size_bytes if len(data) >= BATCH_HEADER_BYTES else left + 1
                if not wanted < size <= left:
                    raise self.damaged_at(at, f"{left} bytes hold no whole batch")
                wanted = size

    def damaged_at(self, at: int, why: str) -> StorageCorrupt:
        """Return the error for a bad batch this many bytes after the slice's start."""
        path = self.ranges[0].file.path
        return StorageCorrupt(
            f"{path}: the batch at byte {self.position + at} is damaged: {why}. To continue: restore the file, or "
            "have the log replicated again, if another replica has it whole."
        )


class _BatchWalk:
    """Checks the batches of a slice, one run of whole batches after the other.

    Fields outside the CRC are checked too, because a follower would refuse wrong ones or fetch the same offset forever.
    Base offsets must ascend, from the batch with the requested offset, and be below the log's end. `epochs`, if given,
    must match each batch's leader epoch."""

    __slots__ = ("_epochs", "_log_end_offset", "_next_offset", "_slice")

    def __init__(self, piece: LogSlice, log_end_offset: int, epochs: EpochCache | None = None) -> None:
        self._slice = piece
        self._log_end_offset = log_end_offset
        self._epochs = epochs
        self._next_offset = 0

    def advance(self, data: bytes, at: int) -> int:
        """Check the whole batches of `data`, which begins `at` bytes after the slice's start. Return their size in
        bytes. Raises StorageCorrupt."""
        done = 0
        try:
            for position, header in iter_headers(data):
                why = self._why_damaged(data, position, header)
                if why:
                    raise self._slice.damaged_at(at + position, why)
                self._next_offset = header.next_offset
                done = position + header.size_bytes
        except WireError as damage:
            raise self._slice.damaged_at(at + done, str(damage)) from damage
        return done

    def _why_damaged(self, data: bytes, position: int, header: BatchHeader) -> str:
        base, last, epoch = header.base_offset, header.last_offset, header.partition_leader_epoch
        if not check_crc(data, position, header):
            return f"the one at offset {base} does not fit its CRC"
        if base < self._next_offset or not self._slice.base_offset <= last < self._log_end_offset:
            first = max(self._next_offset, self._slice.base_offset)
            return f"it has offsets {base} to {last}, expected some from {first} on, below {self._log_end_offset}"
        known = -1 if self._epochs is None else self._epochs.epoch_for(base)
        if known not in (-1, epoch):
            return f"the one at offset {base} has leader epoch {epoch}, but leader epoch {known} has written there"
        return ""


class ColdRange:
    """Bytes to load from a file that a FileRange keeps open."""

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
