"""Load producer state from disk: the newest valid snapshot, and the log after it. *Blocking* throughout.

The log is always scanned from the snapshot on, or from its beginning without one. Kafka scans nothing if there is no
snapshot after a clean stop. Source: Kafka's ProducerStateManager, UnifiedLog.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.seam import Disk, WireError
from kraft.storage.handles import read_through
from kraft.storage.indexes.txn_index import AbortedTransaction
from kraft.storage.log_config import LogConfig
from kraft.storage.log_names import SNAPSHOT_SUFFIX, offset_name, parse_segment_file
from kraft.storage.markers import read_marker
from kraft.storage.producers import snapshot_file as producer_snapshot
from kraft.storage.producers.producer_state import ProducerStates
from kraft.storage.segment import Segment
from kraft.wire.records import ATTRIBUTE_CONTROL, BatchHeader


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Return the offsets of the producer snapshots in a log's folder, ascending."""
    parsed = (parse_segment_file(name) for name in disk.list(directory))
    return sorted(found[0] for found in parsed if found is not None and found[1] == SNAPSHOT_SUFFIX)


def load_producers(
    disk: Disk, directory: str, segments: Sequence[Segment], end_offset: int, config: LogConfig, now_ms: int
) -> ProducerStates:
    """Return the producer state at `end_offset`. An unreadable snapshot is deleted. Raises StorageCorrupt."""
    states = _from_snapshot(disk, directory, end_offset, config, now_ms)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following > states.end_offset and segment.base_offset < end_offset:
            _scan(segment, states, end_offset)
    states.end_offset = end_offset
    return states


def apply_to(states: ProducerStates, header: BatchHeader, batch: memoryview | bytes) -> AbortedTransaction | None:
    """Apply a batch that was read from the log to the state. Return its transaction-index entry, if any."""
    aborted: AbortedTransaction | None = None
    if header.producer_id >= 0:
        marker = read_marker(batch, 0, header)
        if marker is not None:
            aborted = states.apply_marker(
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                header.base_offset,
                header.max_timestamp,
                aborted=marker.aborted,
            )
            states.complete(header.producer_id, header.base_offset)
        elif not header.attributes & ATTRIBUTE_CONTROL:
            states.apply_batch(header, header.base_offset)
    states.end_offset = header.next_offset
    return aborted


def write_snapshot(disk: Disk, directory: str, states: ProducerStates) -> None:
    """Save the state, durably."""
    disk.write_file_atomic(snapshot_path(directory, states.end_offset), producer_snapshot.encode(states.snapshot()))


def remove_snapshots(disk: Disk, directory: str, *, above: int) -> None:
    """Remove the snapshots of offsets above a truncation point, durably. The log may later exceed their offsets with
    other batches. A snapshot that reappeared after a power loss would then be taken for valid."""
    late = [offset for offset in snapshot_offsets(disk, directory) if offset > above]
    for offset in late:
        disk.unlink(snapshot_path(directory, offset))
    if late:
        disk.sync_directory(directory)


def remove_stray_snapshots(disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
    """Remove the snapshots that match no segment's base, except the newest."""
    bases = {segment.base_offset for segment in segments}
    for offset in snapshot_offsets(disk, directory)[:-1]:
        if offset not in bases:
            disk.unlink(snapshot_path(directory, offset))


def _from_snapshot(disk: Disk, directory: str, end_offset: int, config: LogConfig, now_ms: int) -> ProducerStates:
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset > end_offset:
            continue
        path = snapshot_path(directory, offset)
        rows = producer_snapshot.decode(disk.read_file(path))
        if rows is None:
            disk.unlink(path)
            continue
        states = ProducerStates(offset, rows)
        states.expire(now_ms, config.producer_id_expiration_ms)
        return states
    return ProducerStates(0)


def _scan(segment: Segment, states: ProducerStates, end_offset: int) -> None:
    """Apply a segment's batches from the state's end on, up to `end_offset`."""
    file = segment.log.open_blocking()
    position = read_through(segment.position_of, states.end_offset)
    walk = segment.headers_from(position)
    while True:
        following = read_through(next, walk, None)
        if following is None or following[1].base_offset >= end_offset:
            return
        found, header = following
        if header.base_offset < states.end_offset:
            continue
        is_marker = header.producer_id >= 0 and header.attributes & ATTRIBUTE_CONTROL
        batch = file.read(found, header.size_bytes) if is_marker else b""
        try:
            apply_to(states, header, batch)
        except WireError as error:
            raise segment.damaged_at(found, str(error)) from None
