"""Codecs of a dataclass's fields: for each type, functions that pack a value for msgpack and check it on reading.

Known types: bool, the integers below, float, str, bytes, UUID, enums, `T | None`, `tuple[T, ...]`, `tuple[A, B]`,
`frozenset[T]`, `Mapping[K, V]`, nested dataclasses, and Any (the value from msgpack). Nested dataclasses are arrays of
their fields, with the same rules for missing and unknown trailing fields.

A peer's value of another type, or outside its type's range, is a WireError: msgpack's integers have 64 bits, signed and
unsigned, and Kafka's fields mostly 32. A plain `int` is refused, so that each field declares its width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from kraft.seam import WireError
from kraft.wire.primitives import STRING_BYTES_MAX

Convert = Callable[[Any], Any]

UUID_BYTES = 16


class IntegerRange(NamedTuple):
    """Permitted values of an integer field, both ends included."""

    low: int
    high: int


Int8 = Annotated[int, IntegerRange(-(2**7), 2**7 - 1)]
Int16 = Annotated[int, IntegerRange(-(2**15), 2**15 - 1)]
Int32 = Annotated[int, IntegerRange(-(2**31), 2**31 - 1)]
Int64 = Annotated[int, IntegerRange(-(2**63), 2**63 - 1)]
Port = Annotated[int, IntegerRange(0, 2**16 - 1)]
PortOrNone = Annotated[int, IntegerRange(-1, 2**16 - 1)]
"""A port, or -1 if no address is given."""


class FieldCodec(NamedTuple):
    """One field: its name, the version that added it, and its two conversions."""

    name: str
    since: int
    pack: Convert
    unpack: Convert


def compile_codec(cls: type[Any]) -> tuple[FieldCodec, ...]:
    """Return the codecs of a dataclass's fields, in their order."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        FieldCodec(
            field.name, field.metadata.get("since", 0), *_conversions(hints[field.name], f"{cls.__name__}.{field.name}")
        )
        for field in dataclasses.fields(cls)
    )


def _conversions(hint: Any, where: str) -> tuple[Convert, Convert]:
    """Return (pack, unpack) for one type. Raises TypeError for an unsupported type."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return _same, _unpack_integer(arguments[1], where)
    if origin in (Union, UnionType):
        return _optional(arguments, where)
    if origin is tuple:
        return _tuple(arguments, where)
    if origin is frozenset:
        pack, unpack = _sequence(arguments[0], where)
        return (lambda values: sorted(pack(values)), lambda values: frozenset(unpack(values)))
    if origin in (dict, Mapping):
        return _mapping(arguments, where)
    if hint is Any:
        return _same, _same
    if hint is UUID:
        return (lambda value: value.bytes), _unpack_uuid(where)
    if dataclasses.is_dataclass(hint):
        return _nested(hint, where)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return (lambda value: value.value), _unpack_enum(hint, where)
    if hint is str:
        return _same, _unpack_string(where)
    if hint in (bool, float, bytes):
        return (bytes if hint is bytes else _same), _unpack_plain(hint, where)
    raise TypeError(f"{where}: {hint} has no place in an internal message")


def _same(value: Any) -> Any:
    return value


def _wrong(where: str, value: object, expected: str) -> WireError:
    return WireError(f"{where} is a {type(value).__name__}, expected {expected}")


def _unpack_plain(hint: type, where: str) -> Convert:
    def unpack(value: Any) -> Any:
        if type(value) is hint:
            return value
        if hint is float and type(value) is int:
            return float(value)
        raise _wrong(where, value, hint.__name__)

    return unpack


def _unpack_integer(range_: IntegerRange, where: str) -> Convert:
    low, high = range_

    def unpack(value: Any) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        raise WireError(f"{where} is {value!r:.40}, expected an integer from {low} to {high}")

    return unpack


def _unpack_string(where: str) -> Convert:
    def unpack(value: Any) -> Any:
        if type(value) is not str:
            raise _wrong(where, value, "str")
        if len(value) * 4 > STRING_BYTES_MAX and len(value.encode()) > STRING_BYTES_MAX:
            raise WireError(
                f"{where} is a string of {len(value.encode())} bytes, at most {STRING_BYTES_MAX} are allowed"
            )
        return value

    return unpack


def _unpack_uuid(where: str) -> Convert:
    def unpack(value: Any) -> Any:
        if type(value) is bytes and len(value) == UUID_BYTES:
            return UUID(bytes=value)
        raise _wrong(where, value, "16 bytes of a UUID")

    return unpack


def _unpack_enum(hint: type[Enum], where: str) -> Convert:
    members = {member.value: member for member in hint}

    def unpack(value: Any) -> Any:
        if type(value) in (int, str) and value in members:
            return members[value]
        raise WireError(f"{where} is {value!r}, not one of {hint.__name__}'s values")

    return unpack


def _optional(arguments: tuple[Any, ...], where: str) -> tuple[Convert, Convert]:
    inner = [argument for argument in arguments if argument is not NoneType]
    if len(inner) != 1 or len(arguments) != 2:
        raise TypeError(f"{where}: only a union with None has a place in an internal message")
    pack, unpack = _conversions(inner[0], where)
    return (
        lambda value: None if value is None else pack(value),
        lambda value: None if value is None else unpack(value),
    )


def _sequence(item: Any, where: str) -> tuple[Convert, Convert]:
    pack, unpack = _conversions(item, where)

    def unpack_all(values: Any) -> Any:
        if type(values) is not tuple:
            raise _wrong(where, values, "an array")
        return tuple([unpack(value) for value in values])

    return (lambda values: [pack(value) for value in values]), unpack_all


def _tuple(arguments: tuple[Any, ...], where: str) -> tuple[Convert, Convert]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(arguments[0], where)
    parts = [_conversions(argument, where) for argument in arguments]

    def unpack_all(values: Any) -> Any:
        if type(values) is not tuple or len(values) != len(parts):
            raise _wrong(where, values, f"an array of {len(parts)}")
        return tuple([unpack(value) for (_, unpack), value in zip(parts, values, strict=True)])

    return (lambda values: [pack(value) for (pack, _), value in zip(parts, values, strict=True)]), unpack_all


def _mapping(arguments: tuple[Any, ...], where: str) -> tuple[Convert, Convert]:
    pack_key, unpack_key = _conversions(arguments[0], where)
    pack_value, unpack_value = _conversions(arguments[1], where)

    def unpack_all(values: Any) -> Any:
        if type(values) is not dict:
            raise _wrong(where, values, "a map")
        return {unpack_key(key): unpack_value(value) for key, value in values.items()}

    return (lambda values: {pack_key(key): pack_value(value) for key, value in values.items()}), unpack_all


def _nested(cls: type[Any], where: str) -> tuple[Convert, Convert]:
    codecs = compile_codec(cls)

    def unpack_all(values: Any) -> Any:
        if type(values) is not tuple:
            raise _wrong(where, values, f"the fields of {cls.__name__}")
        arguments = {codec.name: codec.unpack(value) for codec, value in zip(codecs, values, strict=False)}
        try:
            return cls(**arguments)
        except TypeError:
            raise WireError(f"{where}: {cls.__name__} ends after {len(arguments)} fields") from None

    return (lambda value: [codec.pack(getattr(value, codec.name)) for codec in codecs]), unpack_all
