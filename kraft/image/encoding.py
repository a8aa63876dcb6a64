"""Many events to their bytes: what `encode_event` gives for each, at less cost for those of partitions.

Of a Partition or PartitionChange only the topic's id and the partition's number are its own. The rest of its bytes, its
*tail*, is packed once for events that hold the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgpack

from kraft.image.events import Event, Partition, PartitionChange, encode_event, written_version
from kraft.seam import require

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
_HEAD_BYTES = 3
_ID_BYTES = 18
"""A topic's id as msgpack has it: two bytes that say so, and its own sixteen."""

_APART = ("topic_id", "partition_id", "directories")
"""An event's place; and its directories, which are told apart by identity, for a UUID takes long to hash."""


def _shape(event_class: type[Any], *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of these fields, which with `_APART` must be all that the class has."""
    known = {field.name for field in fields(event_class)}
    require(
        known == {*names, *_APART},
        f"the shape of {event_class.__name__} and its fields differ in {sorted(known ^ {*names, *_APART})}",
    )
    return attrgetter(*names)


_SHAPES: Mapping[type[Event], Callable[[Any], tuple[Any, ...]]] = MappingProxyType(
    {
        Partition: _shape(
            Partition,
            "replicas",
            "isr",
            "removing",
            "adding",
            "leader",
            "leader_recovery_state",
            "leader_epoch",
            "partition_epoch",
            "elr",
            "last_known_elr",
        ),
        PartitionChange: _shape(
            PartitionChange,
            "isr",
            "leader",
            "replicas",
            "removing",
            "adding",
            "leader_recovery_state",
            "elr",
            "last_known_elr",
        ),
    }
)
"""What an event says beside its place and its directories."""

TAILS_MAX = 16_384
"""So many tails are remembered; then the table starts again."""


class EventEncoder:
    """Encodes the events of one batch or snapshot, in the versions that this metadata.version allows."""

    __slots__ = ("_id", "_id_bytes", "_metadata_version", "_tails", "_versions")

    def __init__(self, metadata_version: int) -> None:
        self._metadata_version = metadata_version
        self._versions: dict[type[Event], int] = {}
        self._id: UUID | None = None
        self._id_bytes = b""
        self._tails: dict[tuple[Any, ...], tuple[object, bytes, bytes]] = {}
        """What an event says → its directories, which so keep their identity, and its head and tail."""

    def encode(self, event: Event) -> bytes:
        """The bytes of one event."""
        event_class = type(event)
        shape = _SHAPES.get(event_class)
        if shape is None or not isinstance(event, Partition | PartitionChange):
            return encode_event(event, self._version(event_class))
        directories = event.directories
        key = (id(directories), *shape(event))
        number: bytes = _pack(event.partition_id)
        known = self._tails.get(key)
        if known is None:
            data = encode_event(event, self._version(event_class))
            if len(self._tails) >= TAILS_MAX:
                self._tails.clear()
            self._tails[key] = directories, data[:_HEAD_BYTES], data[_HEAD_BYTES + _ID_BYTES + len(number) :]
            return data
        if event.topic_id is not self._id:
            self._id, self._id_bytes = event.topic_id, _pack(event.topic_id.bytes)
        return known[1] + self._id_bytes + number + known[2]

    def _version(self, event_class: type[Event]) -> int:
        version = self._versions.get(event_class)
        if version is None:
            version = self._versions[event_class] = written_version(event_class, self._metadata_version)
        return version
