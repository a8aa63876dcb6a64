"""Pure: the metadata log as a timeline of events after a base image. To get the image at any point, at most
CHECKPOINT_EVENTS events are replayed on a stored image.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter

from kraft.client.metadata_log.entries import Entry
from kraft.client.metadata_log.errors import MetadataLogError, NotInLog
from kraft.image import ImageBuilder, MetadataImage, ReplayFailed, UnknownEvent
from kraft.image.encoded import apply_encoded
from kraft.seam import WireError

CHECKPOINT_EVENTS = 5_000
"""Number of events between two stored images. Images share the parts that are equal."""
EVENTS_MAX = 2_000_000
RECENT_IMAGES = 8


class TooLong(MetadataLogError):
    """The log holds more events than the console keeps."""


class Timeline:
    """Events in order. `extend` appends events; `end_offset` is exclusive."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.end_offset = base.offset
        self._entries: list[Entry] = []
        self._newest_ms: list[int] = []
        """The latest time in ms of each event and all events before it. Times in a log can decrease if the controllers'
        clocks differ."""
        self._checkpoints: list[tuple[int, MetadataImage]] = [(0, base)]
        self._recent: OrderedDict[int, MetadataImage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def extend(self, entries: Sequence[Entry], end_offset: int) -> None:
        """Append the next events of the log. Raise TooLong if the timeline would have more than EVENTS_MAX events."""
        if len(self._entries) + len(entries) > EVENTS_MAX:
            raise TooLong(f"the metadata log holds more than {EVENTS_MAX} events: see kraft metadata --folder")
        newest = self._newest_ms[-1] if self._newest_ms else -1
        for entry in entries:
            newest = max(newest, entry.timestamp_ms)
            self._entries.append(entry)
            self._newest_ms.append(newest)
        self.end_offset = max(self.end_offset, end_offset)

    def image_at(self, offset: int) -> MetadataImage:
        """Return the metadata with all events before `offset` applied. Raise NotInLog if `offset` is outside of the
        log."""
        if not self.base.offset <= offset <= self.end_offset:
            raise NotInLog(f"there is no offset {offset}: the log holds {self.base.offset} to {self.end_offset}")
        known = self._recent.get(offset)
        if known is not None:
            self._recent.move_to_end(offset)
            return known
        count = bisect_left(self._entries, offset, key=attrgetter("offset"))
        self._checkpoint(count)
        done, image = self._checkpoints[bisect_right(self._checkpoints, count, key=lambda one: one[0]) - 1]
        image = self._replay(image, done, count, offset)
        self._recent[offset] = image
        if len(self._recent) > RECENT_IMAGES:
            self._recent.popitem(last=False)
        return image

    def offset_at(self, time_ms: int) -> int:
        """Return the offset that follows all events up to this time. For a time after the last event, this is the end
        of the log."""
        at = bisect_right(self._newest_ms, time_ms)
        return self._entries[at].offset if at < len(self._entries) else self.end_offset

    def time_at(self, offset: int) -> int:
        """Return the time of the last event before `offset`; -1 if there is none."""
        at = bisect_left(self._entries, offset, key=attrgetter("offset"))
        return self._newest_ms[at - 1] if at else -1

    def around(self, offset: int, before: int, after: int) -> list[Entry]:
        """Return the last events before `offset`, and the first events from `offset` on."""
        at = bisect_left(self._entries, offset, key=attrgetter("offset"))
        return self._entries[max(at - before, 0) : at + after]

    def _checkpoint(self, count: int) -> None:
        """Store images of the timeline for its first `count` events."""
        done, image = self._checkpoints[-1]
        while done + CHECKPOINT_EVENTS <= count:
            image = self._replay(
                image, done, done + CHECKPOINT_EVENTS, self._entries[done + CHECKPOINT_EVENTS - 1].offset + 1
            )
            done += CHECKPOINT_EVENTS
            self._checkpoints.append((done, image))

    def _replay(self, image: MetadataImage, done: int, count: int, offset: int) -> MetadataImage:
        builder = ImageBuilder(image)
        entries = self._entries[done:count]
        try:
            apply_encoded(builder, (entry.value for entry in entries))
        except (ReplayFailed, UnknownEvent, WireError) as problem:
            raise MetadataLogError(str(problem)) from None
        return builder.build(offset, entries[-1].epoch if entries else image.epoch)
