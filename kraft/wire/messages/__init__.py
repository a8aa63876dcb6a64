"""Pure: Kafka's messages: kio's classes, one per API, read from and written in every version.

A handler sees only the newest class within the range that we serve (with names, where that knows ids alone); conversion
from and to the version on the wire is compiled once per pair of classes (`compiled_readers`, `compiled_writers`), and
the few that need more than fields dropped and defaulted are in `quirks`. Produce and Fetch have codecs of their own
(`produce`, `fetch`).
Classes are imported when they are first needed.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any

from kraft.seam import Buffer, WireError, require
from kraft.wire.api_keys import (
    BROKER_APIS,
    CLIENT_APIS,
    CONTROLLER_APIS,
    ApiKey,
    is_flexible,
    request_header_version,
    response_header_version,
)
from kraft.wire.messages.compiled_readers import Read, compile_reader
from kraft.wire.messages.compiled_writers import Write, compile_writer
from kraft.wire.messages.quirks import QUIRKS, Direction, Quirk
from kraft.wire.messages.schema import coerce, fields_of, merged, part_class
from kraft.wire.primitives import CannotEncode, milliseconds

__all__ = [
    "CannotEncode",
    "build",
    "decode_request",
    "decode_response",
    "duration",
    "encode_request",
    "encode_response",
    "encode_response_in_pieces",
    "is_flexible",
    "milliseconds",
    "nested_class",
    "newest_class",
    "newest_version",
    "part_class",
    "request_class",
    "request_header_version",
    "response_class",
    "response_header_version",
    "struct_writer",
]

PIECE_BYTES_MIN = 64 * 1024
"""More than a connection joins into one send."""

LAST_WITH_TOPIC_NAMES = MappingProxyType({ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9})
"""Up to this version a topic has a name, from the next on an id alone; the newest class has both, each may be None."""


def newest_version(key: int) -> int:
    """The newest version of this API that we speak, as a server on either listener or as a client."""
    api = ApiKey(key)
    return (BROKER_APIS.get(api) or CONTROLLER_APIS.get(api) or CLIENT_APIS[api]).max


def request_class(key: int) -> Any:
    """The request class of the newest version that we serve."""
    return newest_class(key, Direction.REQUEST)


def response_class(key: int) -> Any:
    """The response class of the newest version that we serve."""
    return newest_class(key, Direction.RESPONSE)


@cache
def newest_class(key: int, direction: Direction) -> Any:
    """What handlers see of one API: kio's class of the newest version that we serve, or one that can say more."""
    newest = versioned_class(key, newest_version(key), direction)
    last_with_names = LAST_WITH_TOPIC_NAMES.get(ApiKey(key))
    return newest if last_with_names is None else merged(newest, versioned_class(key, last_with_names, direction))


@cache
def versioned_class(key: int, version: int, direction: Direction) -> Any:
    """kio's class of one API, version and direction; imported now."""
    import kio.index

    load = kio.index.load_request_schema if direction is Direction.REQUEST else kio.index.load_response_schema
    return load(key, version)


def decode_request(key: int, version: int, body: Buffer) -> Any:
    """The request in `body`, as the newest class. WireError if it does not parse."""
    return _decode(int(key), version, Direction.REQUEST, body)


def decode_response(key: int, version: int, body: Buffer) -> Any:
    """The response in `body`, as the newest class. WireError if it does not parse."""
    return _decode(int(key), version, Direction.RESPONSE, body)


def encode_request(key: int, version: int, message: Any) -> bytes:
    """The body of a request (newest class) in `version`. ValueError if that version cannot say it; struct.error or
    OverflowError for a number that its field does not hold."""
    return _encode(int(key), version, Direction.REQUEST, message)


def encode_response(key: int, version: int, message: Any) -> bytes:
    """The body of a response (newest class) in `version`. CannotEncode if that version cannot say it."""
    return _encode(int(key), version, Direction.RESPONSE, message)


def encode_response_in_pieces(key: int, version: int, message: Any) -> list[bytes]:
    """As `encode_response`, in pieces of PIECE_BYTES_MIN and more: megabytes are not copied together in one step. What
    has that length already (of `EncodedStructs`) is not copied at all."""
    parts = _parts(int(key), version, Direction.RESPONSE, message)
    pieces: list[bytes] = []
    begin = size = 0
    for end, part in enumerate(parts, 1):
        size += len(part)
        if size >= PIECE_BYTES_MIN:
            if len(part) >= PIECE_BYTES_MIN and end - begin > 1:
                pieces.append(b"".join(parts[begin : end - 1]))
                begin = end - 1
            pieces.append(b"".join(parts[begin:end]))
            begin, size = end, 0
    if begin < len(parts):
        pieces.append(b"".join(parts[begin:]))
    return pieces


def struct_writer(key: int, version: int, *path: str) -> Write:
    """`write(append, struct)` for the structs in a field of this API's response (`"topics", "partitions"`), from the
    newest class to `version`."""
    wire = versioned_class(key, version, Direction.RESPONSE)
    newest = newest_class(key, Direction.RESPONSE)
    for name in path:
        wire, newest = nested_class(wire, name), nested_class(newest, name)
    return compile_writer(wire, newest)


def build(cls: Any, **values: Any) -> Any:
    """An instance of a kio class: fields not given get their default or zero; lists become tuples, whole milliseconds
    become durations. TypeError for a field that the class does not have."""
    arguments = {}
    for field in fields_of(cls):
        arguments[field.name] = coerce(field, values.pop(field.name)) if field.name in values else field.default
    if values:
        raise TypeError(f"{cls.__name__} has no field {', '.join(values)}")
    return cls(**arguments)


def nested_class(cls: Any, field_name: str) -> Any:
    """The class of the structs in this field: `nested_class(response_class(ApiKey.METADATA), "topics")`."""
    return next(field.entity for field in fields_of(cls) if field.name == field_name)


def duration(value_ms: int) -> timedelta:
    """Milliseconds as kio's classes hold them."""
    return timedelta(milliseconds=value_ms)


@cache
def _reader(key: int, version: int, direction: Direction) -> tuple[Read, Quirk | None]:
    _check_key(key)
    newest = newest_class(key, direction)
    wire = versioned_class(key, version, direction)
    quirk = QUIRKS.get((key, direction))
    if quirk is not None and version in quirk.versions:
        return compile_reader(wire, wire), quirk
    return compile_reader(wire, newest), None


@cache
def _writer(key: int, version: int, direction: Direction) -> tuple[Write, Quirk | None]:
    _check_key(key)
    newest = newest_class(key, direction)
    wire = versioned_class(key, version, direction)
    quirk = QUIRKS.get((key, direction))
    if quirk is not None and version in quirk.versions:
        return compile_writer(wire, wire), quirk
    return compile_writer(wire, newest), None


def _check_key(key: int) -> None:
    require(
        key not in (ApiKey.PRODUCE, ApiKey.FETCH), "Produce and Fetch have codecs of their own: wire.produce, .fetch"
    )


def _decode(key: int, version: int, direction: Direction, body: Buffer) -> Any:
    read, quirk = _reader(key, version, direction)
    try:
        message, _ = read(memoryview(body), 0)
    except struct.error:
        raise WireError(f"{ApiKey(key).name} version {version} ends too soon ({len(body)} bytes)") from None
    except WireError as error:
        raise WireError(f"{ApiKey(key).name} version {version}: {error}") from None
    if quirk is None:
        return message
    return quirk.upgrade(message, newest_class(key, direction), version)


def _encode(key: int, version: int, direction: Direction, message: Any) -> bytes:
    return b"".join(_parts(key, version, direction, message))


def _parts(key: int, version: int, direction: Direction, message: Any) -> list[bytes]:
    write, quirk = _writer(key, version, direction)
    if quirk is not None:
        message = quirk.downgrade(message, versioned_class(key, version, direction), version)
    parts: list[bytes] = []
    if direction is Direction.REQUEST:
        write(parts.append, message)
        return parts
    try:
        write(parts.append, message)
    except (struct.error, ValueError, OverflowError) as error:
        raise CannotEncode(f"{ApiKey(key).name} response version {version}: {error}") from None
    return parts
