"""Pure: from batches to the cluster's metadata at a point of the log.

An image is replayed in one pass over the batches, from their bytes. `LogPoint` keeps what is needed to go on from it
later, so that a second question about a later point costs only the events in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kraft.client.metadata_log.entries import BatchMark, Entry, LogBatch, decode, entries_of, is_plain, values_of
from kraft.client.metadata_log.errors import MetadataLogError
from kraft.image import ImageBuilder, MetadataImage, ReplayFailed, UnknownEvent, events
from kraft.image.encoded import EncodedEvents
from kraft.seam import WireError

_TOPIC = events.Topic.type_number
NO_TIME = -1


class Created(NamedTuple):
    """Where and when a topic was created."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Until:
    """Where a replay ends: before this offset, or before the first event that is not older than this time. Neither
    given: at the end."""

    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogPoint:
    """The metadata at `image.offset`. `created` knows the topics whose creation is in the log; `newest_ms` is the
    newest time of an event before this point, `last_ms` the time of the last one, -1 without an event; `last` is the
    batch that the point is at the end of, or in."""

    image: MetadataImage
    created: Mapping[UUID, Created] = field(default_factory=dict)
    newest_ms: int = NO_TIME
    last_ms: int = NO_TIME
    last: BatchMark | None = None

    def can_reach(self, until: Until) -> bool:
        """Whether a replay from here gives the point that is asked for: it is not behind it."""
        if until.offset is not None:
            return self.image.offset <= until.offset
        return until.timestamp_ms is None or self.newest_ms < until.timestamp_ms


class Replay:
    """Applies batches, in order, on top of a point."""

    def __init__(self, start: LogPoint, until: Until) -> None:
        self._builder = ImageBuilder(start.image)
        self._apply = EncodedEvents(self._builder).apply
        self._created = dict(start.created)
        self._newest_ms = start.newest_ms
        self._last_ms = start.last_ms
        self._last = start.last
        self._epoch = start.image.epoch
        self._offset = start.image.offset
        self._end = until.offset
        self._end_ms = until.timestamp_ms
        self.is_done = False
        """The point is reached: further batches are not looked at."""

    def feed(self, batch: LogBatch) -> None:
        """Apply the events of a batch that are between here and the end. MetadataLogError for one that does not fit or
        cannot be read."""
        header = batch.header
        if self._end is not None and header.base_offset >= self._end:
            self.is_done = True
        if self.is_done or header.next_offset <= self._offset:
            return
        try:
            if header.is_control:
                self._offset = header.next_offset
                self._last = BatchMark.of(header)
            elif self._takes_whole(batch):
                self._feed_values(header.base_offset, header.max_timestamp, values_of(batch))
                self._advance(batch, header.next_offset)
            else:
                self._feed_entries(batch, entries_of(batch))
        except (ReplayFailed, UnknownEvent, WireError) as problem:
            raise MetadataLogError(f"the metadata log at offset {header.base_offset}: {problem}") from None
        if self._end is not None and self._offset >= self._end:
            self.is_done = True

    def point(self, end_offset: int) -> LogPoint:
        """The point that is reached. `end_offset` is the log's end, where the replay stands if all was applied."""
        offset = self._offset if self.is_done and self._end is None else end_offset
        offset = self._end if self._end is not None else offset
        image = self._builder.build(offset, self._epoch)
        return LogPoint(image, self._created, self._newest_ms, self._last_ms, self._last)

    def _takes_whole(self, batch: LogBatch) -> bool:
        header = batch.header
        return (
            is_plain(header)
            and header.base_offset >= self._offset
            and (self._end is None or header.next_offset <= self._end)
            and (self._end_ms is None or header.max_timestamp < self._end_ms)
        )

    def _feed_values(self, base_offset: int, time_ms: int, values: list[bytes]) -> None:
        apply = self._apply
        for value in values:
            apply(value)
        for at, value in enumerate(values):
            if value[1] == _TOPIC:
                self._note_topic(value, Created(base_offset + at, time_ms))

    def _feed_entries(self, batch: LogBatch, entries: Iterable[Entry]) -> None:
        """One event at a time: where a batch is the first or the last of a replay."""
        for entry in entries:
            if entry.offset < self._offset:
                continue
            if self._end is not None and entry.offset >= self._end:
                self.is_done = True
                return
            if self._end_ms is not None and entry.timestamp_ms >= self._end_ms:
                self._offset = entry.offset
                self.is_done = True
                return
            self._feed_values(entry.offset, entry.timestamp_ms, [entry.value])
            self._advance(batch, entry.offset + 1, entry.timestamp_ms)
        self._offset = batch.header.next_offset

    def _advance(self, batch: LogBatch, offset: int, time_ms: int | None = None) -> None:
        header = batch.header
        self._offset = offset
        self._epoch = header.partition_leader_epoch
        self._last = BatchMark.of(header)
        self._last_ms = header.max_timestamp if time_ms is None else time_ms
        self._newest_ms = max(self._newest_ms, self._last_ms)

    def _note_topic(self, value: bytes, where: Created) -> None:
        event = decode(value)
        if isinstance(event, events.Topic):
            self._created[event.topic_id] = where
