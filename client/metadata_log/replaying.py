"""Pure: replay batches to get the cluster's metadata at a point of the log.

An image is built in one pass over the encoded batches. A `LogPoint` keeps the state from which the replay can continue,
so that a later point costs only the events in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kraft.client.metadata_log.entries import BatchIdentity, Entry, LogBatch, decode, entries_of, is_plain, values_of
from kraft.client.metadata_log.errors import MetadataLogError
from kraft.image import ImageBuilder, MetadataImage, ReplayFailed, UnknownEvent, events
from kraft.image.encoded import EncodedEvents
from kraft.seam import WireError

_TOPIC = events.Topic.type_number
NO_TIME = -1


class TopicCreation(NamedTuple):
    """The offset and time of a topic's creation."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Until:
    """The end of a replay: before this offset, or before the first event at or after this time. If neither is given,
    the end of the log."""

    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogPoint:
    """The metadata at offset `image.offset`, and the state to continue from there. `created` has the topics created in
    the log. `newest_ms` is the latest time of all events before this point, and `last_ms` the time of the last one;
    each is -1 if there is no event. `last` is the batch that contains this point or ends at it."""

    image: MetadataImage
    created: Mapping[UUID, TopicCreation] = field(default_factory=dict)
    newest_ms: int = NO_TIME
    last_ms: int = NO_TIME
    last: BatchIdentity | None = None

    def can_reach(self, until: Until) -> bool:
        """Whether a replay from this point can reach the requested point, that is, whether this point is not after
        it."""
        if until.offset is not None:
            return self.image.offset <= until.offset
        return until.timestamp_ms is None or self.newest_ms < until.timestamp_ms


class Replay:
    """A replay: applies batches, in order, starting from a point."""

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
        """Whether the end of the replay is reached, so that further batches are ignored."""

    def feed(self, batch: LogBatch) -> None:
        """Apply the events of a batch from the current offset up to the end of the replay. Raise MetadataLogError for a
        batch that cannot be read or applied."""
        header = batch.header
        if self._end is not None and header.base_offset >= self._end:
            self.is_done = True
        if self.is_done or header.next_offset <= self._offset:
            return
        try:
            if header.is_control:
                self._offset = header.next_offset
                self._last = BatchIdentity.of(header)
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
        """Return the point that was reached. `end_offset` is the end of the log; it is the offset of the result if all
        batches were applied."""
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
                self._note_topic(value, TopicCreation(base_offset + at, time_ms))

    def _feed_entries(self, batch: LogBatch, entries: Iterable[Entry]) -> None:
        """Apply a batch event by event. Used for the first and last batch of a replay."""
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
        self._last = BatchIdentity.of(header)
        self._last_ms = header.max_timestamp if time_ms is None else time_ms
        self._newest_ms = max(self._newest_ms, self._last_ms)

    def _note_topic(self, value: bytes, where: TopicCreation) -> None:
        event = decode(value)
        if isinstance(event, events.Topic):
            self._created[event.topic_id] = where
