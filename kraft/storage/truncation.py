"""Truncate a log durably; a crash in the middle leaves a prefix of it. *Blocking* throughout.

Later segments are unlinked, newest first, the directory is synced, and the file is truncated and synced. Then indexes,
snapshots and producer state follow. The owner chooses the offset.
Source: KIP-101, Kafka's LocalLog, docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.storage.handles import read_through
from kraft.storage.loading import new_segment
from kraft.storage.log_names import LEADER_EPOCH_CHECKPOINT
from kraft.storage.producers.producer_state import ProducerStates
from kraft.storage.producers.state_loading import load_producers, remove_snapshots
from kraft.storage.segment import Segment

if TYPE_CHECKING:
    from kraft.storage.log import Log


@dataclass(frozen=True, slots=True, eq=False)
class Truncated:
    """State of the log that remains after a truncation."""

    segments: list[Segment]
    log_end_offset: int
    producers: ProducerStates


def truncate(log: Log, offset: int, now_ms: int) -> Truncated:
    """Truncate the log to the batches that end at or below `offset`, which is inside the log."""
    kept = [segment for segment in log.segments if segment.base_offset <= offset] or log.segments[:1]
    segment = kept[-1]
    segment.pin(pinned=True)
    file = segment.log.open_blocking()
    position = read_through(segment.position_of, offset)
    end = _end_below(segment, position)
    if end < log.log_start_offset:
        return restart(log, log.log_start_offset, now_ms)
    _remove(log, log.segments[len(kept) :])
    _cut_segment(segment, position, end)
    file.sync_blocking()
    remove_snapshots(log.disk, log.directory, above=end)
    producers = load_producers(log.disk, log.directory, kept, end, log.config, now_ms)
    segment.pin(pinned=False)
    return Truncated(kept, end, producers)


def _end_below(segment: Segment, position: int) -> int:
    """Return the offset after the last batch below the batch boundary `position`."""
    end = segment.base_offset
    walk = segment.headers_from(read_through(segment.index.floor_position, max(position - 1, 0)))
    while (found := read_through(next, walk, None)) is not None and found[0] < position:
        end = found[1].next_offset
    return end


def restart(log: Log, start_offset: int, now_ms: int) -> Truncated:
    """Remove everything, and restart with one empty segment at `start_offset`."""
    _remove(log, log.segments)
    remove_snapshots(log.disk, log.directory, above=-1)
    segment = new_segment(log.disk, log.active.log.cache, log.directory, start_offset, now_ms)
    log.disk.sync_directory(log.directory)
    return Truncated([segment], start_offset, ProducerStates(start_offset))


def save_epochs(log: Log) -> None:
    """Write the epoch checkpoint if it is outdated."""
    if log.epochs.dirty:
        changes = log.epochs.changes
        log.disk.write_file_atomic(f"{log.directory}/{LEADER_EPOCH_CHECKPOINT}", log.epochs.encode())
        log.epochs.mark_saved(changes)


def _remove(log: Log, segments: list[Segment]) -> None:
    """Unlink segments, newest first, and make that durable. Existing file ranges stay readable."""
    for segment in reversed(segments):
        for handle in segment.handles:
            handle.pinned = False
            if handle.exists:
                handle.remove()
    if segments:
        log.disk.sync_directory(log.directory)


def _cut_segment(segment: Segment, position: int, end_offset: int) -> None:
    """Truncate a segment's file at the batch boundary `position`, and its indexes to the entries below `end_offset`."""
    for index in (segment.index, segment.time_index):
        if index.handle.exists:
            index.handle.open_blocking()
    read_through(segment.index.truncate_from, end_offset)
    read_through(segment.time_index.truncate_from, end_offset)
    read_through(segment.txn_index.truncate_from, end_offset)
    segment.log.open_blocking().truncate(position)
    entries = len(segment.index)
    last_entry = read_through(segment.index.entry, entries - 1)[1] if entries else 0
    segment.forget_boundaries()
    segment.recent = {end_offset: position}
    segment.size = position
    segment.bytes_since_index = position - last_entry
    if position == 0:
        segment.reset()
        return
    _find_largest_timestamp(segment, last_entry)
    segment.first_timestamp = read_through(segment.header_at, 0).max_timestamp


def _find_largest_timestamp(segment: Segment, position: int) -> None:
    """Return the largest timestamp of the remaining batches: that of the last time index entry, or of a batch after the
    entry's batch."""
    last = read_through(segment.time_index.last)
    segment.max_timestamp, segment.max_timestamp_offset = last if last is not None else (-1, segment.base_offset)
    walk = segment.headers_from(position)
    while (found := read_through(next, walk, None)) is not None:
        header = found[1]
        if header.max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = header.max_timestamp, header.last_offset
