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
"""What `LogSlice.check` has in memory at a time, if no batch is larger."""


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

    def read_whole(self, log_end_offset: int) -> bytes:
        """The bytes themselves, if they are whole batches that fit their CRCs, in the order of their offsets and below
        `log_end_offset`. *Blocking.* StorageCorrupt, also if the file was cut meanwhile: then it means nothing."""
        data = self.read()
        done = _BatchWalk(self, log_end_offset).advance(data, 0)
        if done < self.size_bytes:
            raise self.damaged_at(done, f"{self.size_bytes - done} bytes hold no whole batch")
        return data

    def check(self, bytes_max: int, log_end_offset: int, epochs: EpochCache) -> None:
        """Look at the batches in the first `bytes_max` bytes as `read_whole` does, a piece at a time, and whether their
        leader epochs are those of `epochs` (the log's, as they were when the slice was taken). *Blocking.*
        StorageCorrupt."""
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
        """What to raise because the batch so many bytes behind the slice's begin is none."""
        path = self.ranges[0].file.path
        return StorageCorrupt(
            f"{path}: the batch at byte {self.position + at} is damaged: {why}. To go on: restore the file, or "
            "have the log replicated again, if another replica has it whole."
        )


class _BatchWalk:
    """Looks at the batches of a slice, one run of whole ones after the other. What no CRC covers is looked at too, as
    far as a follower would refuse it or run in a circle: base offsets rise, from the batch that holds the offset asked
    for, and stay below the log's end; `epochs`, if given, know each batch's leader epoch."""

    __slots__ = ("_epochs", "_log_end_offset", "_next_offset", "_slice")

    def __init__(self, piece: LogSlice, log_end_offset: int, epochs: EpochCache | None = None) -> None:
        self._slice = piece
        self._log_end_offset = log_end_offset
        self._epochs = epochs
        self._next_offset = 0

    def advance(self, data: bytes, at: int) -> int:
        """Look at the whole batches of `data`, which stand `at` bytes behind the slice's begin: how many bytes they
        have. StorageCorrupt."""
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
