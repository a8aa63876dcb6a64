"""One batch in the making: the bytes of its events, and the image that they make.

The active controller needs both of what it appends. A large batch is made some events at a time; until it is complete
nobody sees anything of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.image.delta import ImageDelta
from kraft.image.encoded import EncodedEvents
from kraft.image.encoding import EventEncoder
from kraft.image.events import Event, Partition, PartitionChange
from kraft.image.image import MetadataImage
from kraft.image.replay import ImageBuilder


class BatchBuilder:
    """The events of one batch on top of `image`. `values` are the bytes of those that were taken so far."""

    def __init__(self, image: MetadataImage, events: Sequence[Event]) -> None:
        self.values: list[bytes] = []
        self._events = events
        self._builder = ImageBuilder(image)
        self._encoder = EventEncoder(image.metadata_version)
        self._encoded = EncodedEvents(self._builder)

    def take(self, events_max: int) -> bool:
        """Encode and replay the next events. True when all are done. ReplayFailed if one does not fit."""
        encode, values, encoded = self._encoder.encode, self.values, self._encoded
        begin = len(values)
        for event in self._events[begin : begin + events_max]:
            data = encode(event)
            values.append(data)
            if isinstance(event, Partition | PartitionChange):
                encoded.apply(data)  # equal partitions share one value, as on all who replay the log
            else:
                encoded.apply_event(event)
        return len(values) == len(self._events)

    def build(self, end_offset: int, epoch: int) -> tuple[MetadataImage, ImageDelta]:
        """The image after the batch, and what it changed."""
        return self._builder.build(end_offset, epoch), self._builder.delta()
