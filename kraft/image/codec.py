"""How an event's fields become msgpack and come back: one codec per shape, and the registry of event types.

An event's value in the log is `[type, version, field, ...]`. Fields are append-only and have defaults: a shorter array
(written by an older release) leaves the rest at their defaults, and what follows the known fields (written by a newer
release in the same version) is ignored.
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


class FieldCodec(NamedTuple):
    """`to_wire` gives what msgpack packs, `from_wire` takes what it unpacked; None means as it is."""

    to_wire: Callable[[Any], Any] | None
    from_wire: Callable[[Any], Any] | None


@lru_cache(maxsize=8192)
def uuid_from_bytes(data: bytes) -> UUID:
    """A UUID of its 16 bytes; recent ones are shared."""
    return UUID(bytes=data)


def _uuid_bytes(value: UUID) -> bytes:
    return value.bytes


def _uuids_bytes(values: Iterable[UUID]) -> list[bytes]:
    return [value.bytes for value in values]


_directories: dict[tuple[bytes, ...], tuple[UUID, ...]] = {}
DIRECTORIES_MAX = 8192


def directories_from_list(values: Iterable[bytes]) -> tuple[UUID, ...]:
    """The UUIDs of their bytes; recent tuples are shared."""
    key = tuple(values)
    found = _directories.get(key)
    if found is None:
        if len(_directories) >= DIRECTORIES_MAX:
            _directories.clear()
        found = _directories[key] = intern_directories(tuple([uuid_from_bytes(value) for value in key]))
    return found


def replicas_from_list(values: list[int]) -> tuple[int, ...]:
    """The shared tuple of these broker ids."""
    return intern_replicas(tuple(values)) if values else ()


def _optional(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else function(value)


PLAIN = FieldCodec(None, None)
UUID_FIELD = FieldCodec(_uuid_bytes, uuid_from_bytes)
REPLICAS = FieldCodec(None, replicas_from_list)
OPTIONAL_REPLICAS = FieldCodec(None, _optional(replicas_from_list))
DIRECTORIES = FieldCodec(_uuids_bytes, directories_from_list)
OPTIONAL_DIRECTORIES = FieldCodec(_optional(_uuids_bytes), _optional(directories_from_list))
ENDPOINTS = FieldCodec(None, lambda values: tuple([Endpoint(*value[:4]) for value in values]))
FEATURES = FieldCodec(None, lambda values: tuple([FeatureRange(*value[:3]) for value in values]))


@dataclass(frozen=True, slots=True)
class EventType:
    """One event type of the registry: its number (Kafka's record type where there is one), the highest version that
    this release reads, its class, and how its fields are taken out and converted. Positions count from the first
    field."""

    number: int
    max_version: int
    event_class: type
    field_count: int
    values: Callable[[Any], tuple[Any, ...]]
    to_wire: tuple[tuple[int, Callable[[Any], Any]], ...]
    from_wire: tuple[tuple[int, Callable[[Any], Any]], ...]


def event_type(number: int, max_version: int, event_class: type, codecs: tuple[FieldCodec, ...]) -> EventType:
    """The registry's entry of a dataclass with these codecs, one per field in order."""
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
