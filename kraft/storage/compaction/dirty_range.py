"""The part of a log that compaction may process now, and how urgent that is.

A log is clean below its cleaner checkpoint and dirty above. Only whole closed segments below the last stable offset are
cleaned. They must be on the device, and without records younger than min.compaction.lag.ms. Unlike in Kafka, a closed
segment waits until it is synced, so that a crash leaves either the old segments or the new one complete.
Source: Kafka's LogCleanerManager, docs/deviations.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kraft.storage.log_config import LogConfig
from kraft.storage.reading import largest_timestamp
from kraft.storage.segment import Segment

if TYPE_CHECKING:
    from kraft.storage.log import Log


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CleanableRange:
    """The part of a log that can be cleaned now. `segments` span the log from its start to `end_offset`. Those with
    offsets from `first_dirty_offset` on are dirty.

    `delay_ms`: for how long max.compaction.lag.ms has been exceeded; 0 if it is not."""

    segments: tuple[Segment, ...]
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether a round is worth its cost, or max.compaction.lag.ms requires one."""
        return self.dirty_bytes > 0 and (self.delay_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def find_range(log: Log, cleaned_offset: int | None, now_ms: int) -> CleanableRange:
    """Return the part of the log that is cleanable. `cleaned_offset` is its cleaner checkpoint. Raises ColdRead."""
    first_dirty = log.log_start_offset
    if cleaned_offset is not None and first_dirty <= cleaned_offset <= log.log_end_offset:
        first_dirty = min(cleaned_offset, log.active.base_offset)
    limit = min(log.last_stable_offset, log.active.base_offset, log.recovery_point)
    young_from = now_ms - log.config.min_compaction_lag_ms if log.config.min_compaction_lag_ms > 0 else None
    segments: list[Segment] = []
    end, clean_bytes, dirty_bytes = log.segments[0].base_offset, 0, 0
    for segment, following in pairwise(log.segments):
        if following.base_offset > limit:
            break
        if following.base_offset <= first_dirty:
            clean_bytes += segment.size
        else:
            if young_from is not None and largest_timestamp(segment)[0] > young_from:
                break
            dirty_bytes += segment.size
        segments.append(segment)
        end = following.base_offset
    return CleanableRange(
        segments=tuple(segments),
        first_dirty_offset=min(first_dirty, end),
        end_offset=end,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        delay_ms=_delay_ms(log, first_dirty, now_ms),
    )


def _delay_ms(log: Log, first_dirty: int, now_ms: int) -> int:
    """Return for how long the oldest dirty segment has exceeded max.compaction.lag.ms. Raises ColdRead."""
    oldest_ms = now_ms - log.config.max_compaction_lag_ms
    if oldest_ms <= 0:
        return 0
    firsts = [
        first
        for segment, following in pairwise(log.segments)
        if following.base_offset > first_dirty and segment.size and (first := _first_timestamp(segment)) > 0
    ]
    return max(oldest_ms - min(firsts), 0) if firsts else 0


def _first_timestamp(segment: Segment) -> int:
    """Return the first batch's largest timestamp. Raises ColdRead."""
    if segment.first_timestamp is None:
        segment.first_timestamp = segment.header_at(0).max_timestamp
    return segment.first_timestamp
