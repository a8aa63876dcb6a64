"""Encoding of many events: the same bytes as `encode_event`, at lower cost for the events of partitions.

Only the topic's id and the partition's number are unique to a Partition or PartitionChange. The other bytes, its
*tail*, are packed once for all events with the same values.
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
"""Size of a topic's id in msgpack: two bytes of header, and sixteen of the id."""

_APART = ("topic_id", "partition_id", "directories")
"""Fields that are not part of the cache key: topic and number are unique, and directories are compared by identity,
because hashing UUIDs is slow."""


def _shape(event_class: type[Any], *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gets these fields of an event. These fields and those in `_APART` must be all fields of
    the class."""
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
"""Getters of the fields that are part of the cache key."""

TAILS_MAX = 16_384
"""Maximum cached tails; a full cache is cleared."""


class EventEncoder:
    """Encodes the events of one batch or snapshot, in the versions that this metadata.version allows."""

    __slots__ = ("_id", "_id_bytes", "_metadata_version", "_tails", "_versions")

    def __init__(self, metadata_version: int) -> None:
        self._metadata_version = metadata_version
        self._versions: dict[type[Event], int] = {}
        self._id: UUID | None = None
        self._id_bytes = b""
        self._tails: dict[tuple[Any, ...], tuple[object, bytes, bytes]] = {}
        """Cache key of an event → its directories (a reference that keeps their identity), and its head and tail."""

    def encode(self, event: Event) -> bytes:
        """Return the bytes of one event."""
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
