"""Finish or undo an interrupted deletion or replacement of segments, according to the files left in a log's folder.

`.deleted` files are removed. `.cleaned` files are removed, as the cleaning was not finished, and with them each `.swap`
at or above the lowest `.cleaned`. A remaining `.swap` is complete: the files that it replaces are removed, then it gets
its final name. Each step is durable before the next. Source: Kafka's LogLoader,
docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

from kraft.seam import Disk, StorageCorrupt, WireError
from kraft.storage.log_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    parse_segment_file,
)
from kraft.wire.records import BATCH_HEADER_BYTES, BATCH_PREFIX_BYTES, read_header


def segment_files(disk: Disk, directory: str) -> dict[int, frozenset[str]]:
    """Return base offset -> existing suffixes, ascending; only files with a final name."""
    found: dict[int, set[str]] = {}
    for name in disk.list(directory):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1] in SEGMENT_SUFFIXES:
            found.setdefault(parsed[0], set()).add(parsed[1])
    return {base: frozenset(found[base]) for base in sorted(found)}


def clear(disk: Disk, directory: str) -> bool:
    """Finish or undo interrupted operations. Return True if anything changed; the changes are durable. *Blocking.*"""
    names = disk.list(directory)
    marked = [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp"))]
    if not marked:
        return False
    cleaned = [base for base, suffix in _parsed(marked) if suffix == LOG_SUFFIX + CLEANED_SUFFIX]
    for name in marked:
        parsed = parse_segment_file(name)
        unfinished = name.endswith(SWAP_SUFFIX) and parsed is not None and cleaned and parsed[0] >= min(cleaned)
        if unfinished or not name.endswith(SWAP_SUFFIX):
            disk.unlink(f"{directory}/{name}")
    disk.sync_directory(directory)
    _finish_swap(disk, directory)
    return True


def _parsed(names: list[str]) -> list[tuple[int, str]]:
    return [parsed for name in names if (parsed := parse_segment_file(name)) is not None]


def _finish_swap(disk: Disk, directory: str) -> None:
    """Complete a swap. The segment's indexes are removed: some may have their final names already, and loading rebuilds
    them."""
    swaps = [name for name in disk.list(directory) if name.endswith(SWAP_SUFFIX)]
    bases = sorted(base for base, suffix in _parsed(swaps) if suffix == LOG_SUFFIX + SWAP_SUFFIX)
    for name in swaps:
        if not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            disk.unlink(f"{directory}/{name}")
    if not bases:
        return
    end = _end_offset(disk, f"{directory}/{bases[-1]:020d}{LOG_SUFFIX}{SWAP_SUFFIX}", bases[-1])
    for base, present in segment_files(disk, directory).items():
        if bases[0] <= base < end:
            for suffix in sorted(present):
                disk.unlink(f"{directory}/{base:020d}{suffix}")
    disk.sync_directory(directory)
    for base in reversed(bases):
        path = f"{directory}/{base:020d}{LOG_SUFFIX}"
        disk.rename(path + SWAP_SUFFIX, path)
        disk.sync_directory(directory)


def _end_offset(disk: Disk, path: str, base: int) -> int:
    """Return the offset after the last batch of a complete segment file. Raises StorageCorrupt."""
    file = disk.open(path)
    position, end = 0, base + 1
    try:
        while position + BATCH_HEADER_BYTES <= file.size:
            header = read_header(file.read(position, BATCH_HEADER_BYTES))
            end = header.next_offset
            position += header.batch_length + BATCH_PREFIX_BYTES
    except WireError as error:
        raise StorageCorrupt(f"{path}: from byte {position} on: {error}; have the log replicated again") from error
    finally:
        file.close()
    return end
