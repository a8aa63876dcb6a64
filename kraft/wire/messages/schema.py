"""The fields of a kio message class, in the form that the codec compilers use.

kio's classes are generated from Kafka's schemas. Their dataclass fields carry the wire type, the tag and the default;
the annotation tells what is nullable. Source: kio, KIP-482 (tagged fields), KIP-893 (nullable structs).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

ENTITY = "entity"

_ZEROES: Mapping[str, object] = MappingProxyType(
    {
        "bool": False,
        "int8": 0,
        "int16": 0,
        "int32": 0,
        "int64": 0,
        "uint16": 0,
        "uint32": 0,
        "float64": 0.0,
        "string": "",
        "bytes": b"",
        "uuid": None,
        "error_code": 0,
        "timedelta_i32": timedelta(0),
        "timedelta_i64": timedelta(0),
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of one message version.

    `kind` is kio's wire type or ENTITY; `entity` is the nested class. `default` is its default or the zero of its type,
    and also the value in versions that do not have the field."""

    name: str
    kind: str
    entity: Any
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: object


@cache
def fields_of(cls: Any) -> tuple[Field, ...]:
    """Return the fields of a kio class, in wire order. Tagged fields are included; they are written separately."""
    return tuple(_field(field) for field in dataclasses.fields(cls))


@cache
def merged(newer: Any, older: Any) -> Any:
    """Create a class with all fields of `newer` and, None by default, those that only `older` has; the same for nested
    structs. Messages of either class can be converted to it and back."""
    entities = {field.name: field.entity for field in fields_of(older)}
    names = [field.name for field in fields_of(newer)]
    fields: list[tuple[str, Any, Any]] = []
    for field, declared in zip(fields_of(newer), dataclasses.fields(newer), strict=True):
        hint: Any = declared.type
        if field.entity is not None and entities.get(field.name) is not None:
            hint = merged(field.entity, entities[field.name])
            hint = tuple[hint, ...] if field.is_array else hint
            hint = hint | None if field.is_nullable else hint
        fields.append((field.name, hint, dataclasses.field(default=declared.default, metadata=declared.metadata)))
    for declared in dataclasses.fields(older):
        if declared.name not in names:
            hint = declared.type
            fields.append((declared.name, hint | None, dataclasses.field(default=None, metadata=declared.metadata)))
    return dataclasses.make_dataclass(newer.__name__, fields, frozen=True, slots=True, kw_only=True)


def part_class(cls: Any, name: str) -> Any:
    """Return the class with this schema name among the structs of `cls`, at any depth."""
    return next(entity for entity in _entities(cls) if entity.__name__ == name)


def _entities(cls: Any) -> Iterator[Any]:
    for field in fields_of(cls):
        if field.entity is not None:
            yield field.entity
            yield from _entities(field.entity)


def zero_entity(cls: Any) -> Any:
    """Create an instance with every field at its default or zero."""
    return cls(**{field.name: field.default for field in fields_of(cls)})


def _field(field: dataclasses.Field[Any]) -> Field:
    hint, is_nullable = _without_none(field.type)
    is_array = get_origin(hint) is tuple
    if is_array:
        hint, _ = _without_none(get_args(hint)[0])
    entity = hint if dataclasses.is_dataclass(hint) else None
    kind = ENTITY if entity is not None else field.metadata["kafka_type"]
    kind = "int64" if kind == "datetime_i64" else kind  # a time remains milliseconds, as -1 is a value too
    kind = "bytes" if kind == "records" else kind  # the general codec does not parse batches
    if kind != ENTITY and kind not in _ZEROES:
        raise TypeError(f"field {field.name}: wire type {kind} has no codec here")
    if field.default is not dataclasses.MISSING:
        default: object = field.default
    elif is_array:
        default = ()
    elif entity is not None:
        default = zero_entity(entity)
    else:
        default = _ZEROES[kind]
    return Field(
        name=field.name,
        kind=kind,
        entity=entity,
        is_array=is_array,
        is_nullable=is_nullable and kind != "uuid",
        tag=field.metadata.get("tag"),
        default=default,
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, UnionType):
        inner = [argument for argument in get_args(hint) if argument is not NoneType]
        return inner[0], True
    return hint, False


def _struct(field: Field, value: Any) -> Any:
    """Create a struct of the field's class from a mapping of its fields; anything else is unchanged."""
    if not isinstance(value, Mapping) or field.entity is None:
        return value
    fields = {one.name: one for one in fields_of(field.entity)}
    unknown = value.keys() - fields.keys()
    if unknown:
        raise TypeError(f"{field.entity.__name__} has no field {', '.join(sorted(unknown))}")
    arguments = {name: coerce(one, value[name]) if name in value else one.default for name, one in fields.items()}
    return field.entity(**arguments)


def coerce(field: Field, value: Any) -> Any:
    """Convert a value to the class's form: lists become tuples, mappings structs, and whole milliseconds durations."""
    if field.is_array and isinstance(value, list | tuple):
        return tuple(_struct(field, entry) for entry in value)
    if isinstance(value, Mapping):
        return _struct(field, value)
    if field.kind.startswith("timedelta") and isinstance(value, int):
        return timedelta(milliseconds=value)
    if field.kind == "uuid" and isinstance(value, UUID) and value.int == 0:
        return None
    return value
