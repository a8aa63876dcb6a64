"""Conversion of events' fields to and from msgpack: one codec per shape, and the registry of event types.

An event's value in the log is `[type, version, field, ...]`. Fields are append-only and have defaults. If an older
release wrote a shorter array, the missing fields have their defaults. If a newer release wrote more fields in the same
version, the unknown ones are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from kraft.image.partitions import intern_directories, intern_replicas
from kraft.image.registrations import Endpoint, FeatureRange


class EventFieldCodec(NamedTuple):
    """Conversion of one event field: `to_wire` returns the value that msgpack packs, `from_wire` takes the value that
    msgpack unpacked. None means no conversion."""

    to_wire: Callable[[Any], Any] | None
    from_wire: Callable[[Any], Any] | None


@lru_cache(maxsize=8192)
def uuid_from_bytes(data: bytes) -> UUID:
    """Return the UUID of these 16 bytes; UUIDs that were decoded recently are cached."""
    return UUID(bytes=data)


def _uuid_bytes(value: UUID) -> bytes:
    return value.bytes


def _uuids_bytes(values: Iterable[UUID]) -> list[bytes]:
    return [value.bytes for value in values]


_directories: dict[tuple[bytes, ...], tuple[UUID, ...]] = {}
DIRECTORIES_MAX = 8192


def directories_from_list(values: Iterable[bytes]) -> tuple[UUID, ...]:
    """Return the UUIDs of these bytes; tuples that were decoded recently are cached."""
    key = tuple(values)
    found = _directories.get(key)
    if found is None:
        if len(_directories) >= DIRECTORIES_MAX:
            _directories.clear()
        found = _directories[key] = intern_directories(tuple([uuid_from_bytes(value) for value in key]))
    return found


def replicas_from_list(values: list[int]) -> tuple[int, ...]:
    """Return the shared tuple of these broker ids."""
    return intern_replicas(tuple(values)) if values else ()


def _optional(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else function(value)


PLAIN = EventFieldCodec(None, None)
UUID_FIELD = EventFieldCodec(_uuid_bytes, uuid_from_bytes)
REPLICAS = EventFieldCodec(None, replicas_from_list)
OPTIONAL_REPLICAS = EventFieldCodec(None, _optional(replicas_from_list))
DIRECTORIES = EventFieldCodec(_uuids_bytes, directories_from_list)
OPTIONAL_DIRECTORIES = EventFieldCodec(_optional(_uuids_bytes), _optional(directories_from_list))
ENDPOINTS = EventFieldCodec(None, lambda values: tuple([Endpoint(*value[:4]) for value in values]))
FEATURES = EventFieldCodec(None, lambda values: tuple([FeatureRange(*value[:3]) for value in values]))


@dataclass(frozen=True, slots=True)
class EventType:
    """One event type of the registry: its number (Kafka's record type where there is one), the highest version that
    this release reads, its class, and the conversion of its fields. The converters are given with the positions of
    their fields, counted from 0."""

    number: int
    max_version: int
    event_class: type
    field_count: int
    values: Callable[[Any], tuple[Any, ...]]
    to_wire: tuple[tuple[int, Callable[[Any], Any]], ...]
    from_wire: tuple[tuple[int, Callable[[Any], Any]], ...]


def event_type(number: int, max_version: int, event_class: type, codecs: tuple[EventFieldCodec, ...]) -> EventType:
    """Return the registry entry of a dataclass with these codecs, one per field in order."""
    attributes = [field.name for field in fields(event_class)]
    if len(codecs) != len(attributes):
        raise TypeError(f"{event_class.__name__} needs a codec for each field")
    return EventType(
        number,
        max_version,
        event_class,
        len(attributes),
        _getter(attributes),
        tuple((position, codec.to_wire) for position, codec in enumerate(codecs) if codec.to_wire is not None),
        tuple((position, codec.from_wire) for position, codec in enumerate(codecs) if codec.from_wire is not None),
    )


def _getter(attributes: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not attributes:
        return lambda _event: ()
    if len(attributes) == 1:
        only = attrgetter(attributes[0])
        return lambda event: (only(event),)
    return attrgetter(*attributes)
