"""Read a segment's batches after a crash, and distinguish a torn tail from damage.

A crash may leave, above the synced end, any subset of the written sectors: a short file, or sectors that read as zeros.
That is a torn tail, and it is truncated. Anything else is damage, and the log does not start (B20, D12):

- A bad batch below the synced end.
- A good batch at the wrong place: either it or the batch before it is out of order. No CRC covers an offset. But an
  offset that reads as zeros up to a sector's end was lost with that sector.
- A bad batch with good ones after it and no lost (zero) sector in it, because a crash does not flip bits.
- In the metadata log (`strict`) also: a whole bad batch without a lost sector, damage further from the end of the file
  than can have been unsynced, and any gap in the offsets. Its synced end is known only from the log itself, so a batch
  counts as torn only if it looks torn.

Source: docs/storage.md#recovery-after-a-crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from kraft.seam import File, StorageCorrupt, WireError
from kraft.wire.records import BATCH_HEADER_BYTES, MAGIC, BatchHeader, check_crc, read_header

READ_BYTES = 4 * 1024 * 1024
SECTOR_BYTES = 512
FIRST_PIECE_BYTES_MIN = 12
"""Minimum size of the piece of a sector at a batch's start that can prove the sector lost. A shorter piece of zeros
proves nothing: a valid batch may begin with as many zeros, unless its offset rules that out."""
SEARCH_BYTES_MAX = 64 * 1024 * 1024
"""Number of bytes after a bad batch that are searched for a good one."""
STRICT_UNSYNCED_BYTES_MAX = 16 * 1024 * 1024
"""Maximum unsynced bytes of the metadata log: one batch being written and one being collected, of 8 MiB each."""
OFFSET_SPAN_MAX = 2**31

_HEAD = Struct(">qiib")
_OFFSET_BYTES = 8
_MAGIC_BYTE = bytes([MAGIC])


@dataclass(slots=True)
class RecoveryReport:
    """Problems that loading a log found, and repairs that it made."""

    segments_read: int = 0
    bytes_read: int = 0
    bytes_cut: int = 0
    segments_removed: int = 0
    cut_at: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SegmentDamage:
    """The first place in a file without a good batch, and the offset that was expected there.

    `misplaced`: the batch's CRC matches, but it does not belong there. Then its bytes outside the CRC, or those of the
    batch before it, were changed on the device."""

    position: int
    expected_offset: int
    reason: str
    misplaced: bool = False


class SegmentScan:
    """Iterates over the good batches of a file from its start: (position, header, view of the batch).

    Afterwards `damage` is the reason of an early end (None: the file ended with a batch). `end_offset` and `epoch` are
    the minimum for a next batch."""

    def __init__(self, file: File, *, expected_offset: int, epoch: int, contiguous: bool) -> None:
        self._file = file
        self._offset_end = expected_offset + OFFSET_SPAN_MAX
        self._contiguous = contiguous
        self.epoch = epoch
        self.end_offset = expected_offset
        self.damage: SegmentDamage | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        position, size = 0, self._file.size
        while position < size:
            window = self._file.read(position, READ_BYTES)
            at = 0
            while at < len(window):
                reason, header = self._examine(window, at, size - position)
                if header is not None and at + header.size_bytes > len(window) and reason == "":
                    if at == 0:
                        window = self._file.read(position, header.size_bytes)
                        continue
                    break
                if header is None and at > 0 and len(window) - at < BATCH_HEADER_BYTES <= size - position - at:
                    break
                intact = header is not None and check_crc(window, at, header)
                if reason or header is None or not intact:
                    reason = reason or "its CRC does not match"
                    self.damage = SegmentDamage(position + at, self.end_offset, reason, misplaced=intact)
                    return
                self.end_offset = header.next_offset
                self.epoch = header.partition_leader_epoch
                yield position + at, header, memoryview(window)[at : at + header.size_bytes]
                at += header.size_bytes
            position += at

    def _examine(self, window: bytes, at: int, left: int) -> tuple[str, BatchHeader | None]:
        """Return why the header at `at` cannot be right ("" if it can), and the header. `left` is the number of bytes
        from the start of the window to the end of the file."""
        if left - at < BATCH_HEADER_BYTES:
            return f"only {left - at} bytes are left", None
        try:
            header = read_header(window, at)
        except WireError as error:
            return str(error), None
        if header.size_bytes > left - at:
            return f"it announces {header.size_bytes} bytes, {left - at} are left", header
        if not self.end_offset <= header.base_offset <= header.last_offset < self._offset_end:
            return f"it begins at offset {header.base_offset}, expected {self.end_offset}", header
        if self._contiguous and header.base_offset != self.end_offset:
            return f"it begins at offset {header.base_offset}, expected {self.end_offset}", header
        if header.partition_leader_epoch < self.epoch:
            return f"its leader epoch is {header.partition_leader_epoch} after {self.epoch}", header
        return "", header


def require_torn(file: File, damage: SegmentDamage, *, synced_end: int, strict: bool, more_behind: bool) -> None:
    """Raise StorageCorrupt unless a crash can have caused this damage. *Blocking.*

    `synced_end`: the offset below which everything was synced. `more_behind`: later segments hold batches."""
    if damage.expected_offset < synced_end:
        raise _corrupt(
            file, damage, f"all below offset {synced_end} was synced, so no crash can have done this", strict
        )
    tail = file.read(damage.position, SEARCH_BYTES_MAX)
    is_lost = is_offset_lost(tail, damage)
    if damage.misplaced and not is_lost:
        raise _corrupt(file, damage, "its CRC matches, so no crash did this", strict)
    if strict and file.size - damage.position > STRICT_UNSYNCED_BYTES_MAX:
        raise _corrupt(file, damage, f"it is {file.size - damage.position} bytes before the end of the file", strict)
    if is_lost:
        return
    found = find_batch(tail, damage.expected_offset)
    if found is not None or more_behind:
        end = len(tail) if found is None else found
        if not has_lost_sector(tail[:end], damage.position) and not _is_short(tail, more_behind and found is None):
            raise _corrupt(file, damage, "good batches follow it, so it is no torn tail", strict)
    elif strict and _is_whole(tail) and not has_lost_sector(tail, damage.position):
        raise _corrupt(file, damage, "it is whole, so it is no torn tail", strict)


def find_batch(data: bytes, expected_offset: int) -> int | None:
    """Return where in `data` (after its first byte) the first good batch above `expected_offset` begins, or None."""
    at = data.find(_MAGIC_BYTE, 17)
    while at >= 0:
        start = at - 16
        if start + BATCH_HEADER_BYTES > len(data):
            return None
        offset, length, epoch, _ = _HEAD.unpack_from(data, start)
        if (
            expected_offset < offset < expected_offset + OFFSET_SPAN_MAX
            and BATCH_HEADER_BYTES - 12 <= length <= len(data) - start - 12
            and epoch >= 0
            and check_crc(data, start, read_header(data, start))
        ):
            return start
        at = data.find(_MAGIC_BYTE, at + 1)
    return None


def is_offset_lost(data: bytes, damage: SegmentDamage) -> bool:
    """Return whether the expected offset at the damage was lost with a sector.

    True if `data`, which begins at the damage, starts with a short piece of a sector that reads as zeros up to the
    sector's end, while an offset of at least the expected one has non-zero bytes there."""
    piece = SECTOR_BYTES - damage.position % SECTOR_BYTES
    if not piece < min(FIRST_PIECE_BYTES_MIN, len(data)):
        return False
    return any(damage.expected_offset.to_bytes(_OFFSET_BYTES, "big")[:piece]) and not any(data[:piece])


def has_lost_sector(data: bytes, position: int) -> bool:
    """Return whether some sector of the file reads as zeros within `data`, which is at `position`."""
    at = 0
    while at < len(data):
        end = min(at + SECTOR_BYTES - (position + at) % SECTOR_BYTES, len(data))
        if (at > 0 or end >= FIRST_PIECE_BYTES_MIN) and not any(data[at:end]):
            return True
        at = end
    return False


def _is_short(tail: bytes, ends_the_segment: bool) -> bool:
    """Return whether the file ends within the batch: its end was lost, not changed."""
    return ends_the_segment and not _is_whole(tail)


def _is_whole(tail: bytes) -> bool:
    """Return whether all announced bytes of the batch are there."""
    if len(tail) < BATCH_HEADER_BYTES:
        return False
    _, length, _, magic = _HEAD.unpack_from(tail)
    return bool(magic != MAGIC or 0 <= length <= len(tail) - 12)


def _corrupt(file: File, damage: SegmentDamage, why: str, strict: bool) -> StorageCorrupt:
    remedy = (
        "format its metadata directory again (it rejoins with a new directory id)"
        if strict
        else "restore it, or remove the partition's folder so that it is replicated again"
    )
    return StorageCorrupt(
        f"{file.path}: the batch at byte {damage.position} (offset {damage.expected_offset}) is damaged: "
        f"{damage.reason}; {why}. To continue: {remedy}."
    )
