"""Selection of segments to delete: those below the log start, then those above the size limit, then those above the age
limit. The oldest are deleted first.

A segment is deleted only if the high watermark has reached its end (D16), and never past the first open transaction.
Logs without retention only lose what is below the log start. Source: Kafka's UnifiedLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from kraft.seam import Disk
from kraft.storage.log_config import LogConfig
from kraft.storage.log_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_name
from kraft.storage.reading import largest_timestamp
from kraft.storage.segment import Segment

if TYPE_CHECKING:
    from kraft.storage.log import Log


def deletable(log: Log, now_ms: int) -> list[Segment]:
    """Return the oldest segments that can be deleted now. Raises ColdRead if a segment's largest timestamp is not in
    memory."""
    segments, config = log.segments, log.config
    limit = log.high_watermark
    if log.first_unstable_offset is not None:
        limit = min(limit, log.first_unstable_offset)
    total = log.size_bytes
    count = 0
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        end = log.log_end_offset if last else segments[number + 1].base_offset
        if last and segment.size == 0:
            break
        below_start = end <= log.log_start_offset and not last
        expired = (
            config.deletes and end <= limit and (_too_much(config, total, segment) or _too_old(config, segment, now_ms))
        )
        if not below_start and not expired:
            break
        total -= segment.size
        count += 1
    return segments[:count]


def _too_much(config: LogConfig, total: int, segment: Segment) -> bool:
    return config.retention_bytes >= 0 and total - segment.size >= config.retention_bytes


def _too_old(config: LogConfig, segment: Segment, now_ms: int) -> bool:
    if config.retention_ms < 0:
        return False
    largest = largest_timestamp(segment)[0]
    newest = largest if largest >= 0 else segment.created_ms
    return now_ms - newest > config.retention_ms


def rename_deleted(disk: Disk, directory: str, segments: list[Segment]) -> list[str]:
    """Rename the files of removed segments so that they have the mark `.deleted`. Return the new paths, which are to be
    unlinked later. Never suspends."""
    paths: list[str] = []
    for segment in segments:
        for handle in reversed(segment.handles):
            handle.pinned = False
            handle.gone = True
            if handle.exists:
                disk.rename(handle.path, handle.path + DELETED_SUFFIX)
                handle.moved(handle.path + DELETED_SUFFIX)
                paths.append(handle.path)
        snapshot = f"{directory}/{offset_name(segment.base_offset)}{SNAPSHOT_SUFFIX}"
        if disk.exists(snapshot):
            disk.unlink(snapshot)
    return paths


def jitter_ms(directory: str, segment: Segment, config: LogConfig) -> int:
    """Return how many ms earlier than segment.ms this segment rolls: constant per segment, different between logs."""
    if config.segment_jitter_ms <= 0:
        return 0
    return int(crc32c(f"{directory}/{segment.base_offset}".encode())) % config.segment_jitter_ms
