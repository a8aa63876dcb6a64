"""Putting rewritten segments in the place of old ones, so that a crash at any moment leaves either.

The rewriter has written complete `<base>.log.cleaned` files, with indexes likewise marked. Each step is durable before
the next: sync `.cleaned`, rename to `.swap` (highest base first), old files to `.deleted`, `.swap` to the final name.
Then memory follows. `leftovers.clear` finishes or undoes it after a crash. Source: broker-spec 2.9.9, 2.5.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.seam import require
from kraft.storage.handles import read_through
from kraft.storage.leftovers import rename_segment
from kraft.storage.log_names import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, offset_name
from kraft.storage.offset_index import ENTRY as OFFSET_ENTRY
from kraft.storage.retention import rename_deleted
from kraft.storage.segment import Segment
from kraft.storage.time_index import ENTRY as TIME_ENTRY

if TYPE_CHECKING:
    from kraft.storage.log import Log


def replace_segments(log: Log, old: list[Segment], cleaned: list[int]) -> list[str]:
    """See `Log.replace_segments`. *Blocking.*"""
    first = log.segments.index(old[0])
    require(old == log.segments[first : first + len(old)], "only neighbouring segments can be replaced")
    require(log.active not in old, "the active segment cannot be replaced")
    require(
        log.segments[first + len(old)].base_offset <= log.recovery_point,
        "only segments that are on the device can be replaced",
    )
    require(cleaned == sorted(cleaned) and cleaned[0] >= old[0].base_offset, "cleaned segments stand in order")
    disk, directory = log.disk, log.directory
    for base in cleaned:
        _sync_files(log, base)
    disk.sync_directory(directory)
    for base in reversed(cleaned):
        rename_segment(disk, directory, base, CLEANED_SUFFIX, SWAP_SUFFIX)
        disk.sync_directory(directory)
    paths = rename_deleted(disk, directory, old)
    disk.sync_directory(directory)
    for base in reversed(cleaned):
        rename_segment(disk, directory, base, SWAP_SUFFIX, "")
        disk.sync_directory(directory)
    segments = [_open_replaced(log, base, old[-1].created_ms) for base in cleaned]
    log.put_segments([*log.segments[:first], *segments, *log.segments[first + len(old) :]])
    return paths


def _sync_files(log: Log, base: int) -> None:
    for suffix in SEGMENT_SUFFIXES:
        path = f"{log.directory}/{offset_name(base)}{suffix}{CLEANED_SUFFIX}"
        if log.disk.exists(path):
            file = log.disk.open(path)
            file.sync_blocking()
            file.close()


def _open_replaced(log: Log, base: int, created_ms: int) -> Segment:
    """The segment that now has its final name."""
    stem = f"{log.directory}/{offset_name(base)}"
    present = frozenset(suffix for suffix in SEGMENT_SUFFIXES if log.disk.exists(stem + suffix))
    segment = Segment(log.disk, log.active.log.cache, log.directory, base, present=present, created_ms=created_ms)
    segment.size = segment.log.open_blocking().size
    for index, entry in ((segment.index, OFFSET_ENTRY), (segment.time_index, TIME_ENTRY)):
        index.in_file(index.handle.open_blocking().size // entry.size)
    last = read_through(segment.time_index.last)
    if last is not None:
        segment.max_timestamp, segment.max_timestamp_offset = last
        segment.time_index.last_timestamp = last[0]
    return segment
