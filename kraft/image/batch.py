"""One batch under construction: the bytes of its events, and the image that results from them.

The active controller needs both for everything that it appends. A large batch is built some events at a time, and takes
effect only when it is complete.
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
    """The events of one batch on top of `image`. `values` are the bytes of the events processed so far."""

    def __init__(self, image: MetadataImage, events: Sequence[Event]) -> None:
        self.values: list[bytes] = []
        self._events = events
        self._builder = ImageBuilder(image)
        self._encoder = EventEncoder(image.metadata_version)
        self._encoded = EncodedEvents(self._builder)

    def take(self, events_max: int) -> bool:
        """Encode and replay the next events. Return True when all are done. Raises ReplayFailed if an event does not
        fit the image."""
        encode, values, encoded = self._encoder.encode, self.values, self._encoded
        begin = len(values)
        for event in self._events[begin : begin + events_max]:
            data = encode(event)
            values.append(data)
            if isinstance(event, Partition | PartitionChange):
                encoded.apply(data)  # equal partitions share one value, as on all nodes that replay the log
            else:
                encoded.apply_event(event)
        return len(values) == len(self._events)

    def build(self, end_offset: int, epoch: int) -> tuple[MetadataImage, ImageDelta]:
        """Return the image after the batch, and its changes."""
        return self._builder.build(end_offset, epoch), self._builder.delta()
