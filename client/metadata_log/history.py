"""Pure: events in order that follow a base image, and the image at any offset among them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter

from kraft.client.metadata_log.entries import Entry
from kraft.client.metadata_log.errors import MetadataLogError, NotInLog
from kraft.image import ImageBuilder, MetadataImage, ReplayFailed, UnknownEvent
from kraft.image.encoded import apply_encoded
from kraft.seam import WireError


@dataclass(frozen=True, slots=True)
class History:
    """Events in order that follow a base image. `end_offset` is exclusive."""

    base: MetadataImage
    entries: tuple[Entry, ...]
    end_offset: int

    def image_at(self, offset: int | None) -> MetadataImage:
        """Return the image after all events below `offset` (None: after all events). Raise NotInLog if the offset is
        outside of this history."""
        wanted = self.end_offset if offset is None else offset
        if not self.base.offset <= wanted <= self.end_offset:
            raise self.no_offset(wanted)
        count = bisect_left(self.entries, wanted, key=attrgetter("offset"))
        epoch = self.entries[count - 1].epoch if count else self.base.epoch
        builder = ImageBuilder(self.base)
        try:
            apply_encoded(builder, (entry.value for entry in self.entries[:count]))
        except (ReplayFailed, UnknownEvent, WireError) as problem:
            raise MetadataLogError(str(problem)) from None
        return builder.build(wanted, epoch)

    def no_offset(self, offset: int) -> NotInLog:
        """Return the error to raise for an offset that is not in this history."""
        return NotInLog(f"there is no offset {offset}: the log holds {self.base.offset} to {self.end_offset}")

    def offset_at(self, time_ms: int) -> int:
        """Return the offset of the first event at or after this time; the end of the history if there is none."""
        return next((entry.offset for entry in self.entries if entry.timestamp_ms >= time_ms), self.end_offset)
