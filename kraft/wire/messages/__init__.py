"""Pure: Kafka's messages, read and written in every version, with kio's generated classes, one per API.

A handler sees only the newest class within the served range (with topic names, even where that version has only ids).
Conversion from and to the version on the wire is compiled once per pair of classes (`compiled_readers`,
`compiled_writers`). The few messages that need more than dropped and defaulted fields are in `quirks`. Produce and
Fetch have their own codecs (`produce`, `fetch`). Classes are imported on first use.
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
from kraft.wire.messages.quirks import QUIRKS, MessageDirection, Quirk
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
"""Minimum size of a piece of an encoded response: more bytes than a connection joins into one send."""

LAST_WITH_TOPIC_NAMES = MappingProxyType({ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9})
"""Last version of each API that identifies a topic by name; later versions have only its id. The newest class has both
fields; each may be None."""


def newest_version(key: int) -> int:
    """Return the newest version of this API that a broker's or a controller's listener serves, or that our clients
    send."""
    api = ApiKey(key)
    return (BROKER_APIS.get(api) or CONTROLLER_APIS.get(api) or CLIENT_APIS[api]).max


def request_class(key: int) -> Any:
    """Return the request class of the newest served version."""
    return newest_class(key, MessageDirection.REQUEST)


def response_class(key: int) -> Any:
    """Return the response class of the newest served version."""
    return newest_class(key, MessageDirection.RESPONSE)


@cache
def newest_class(key: int, direction: MessageDirection) -> Any:
    """Return the class that handlers see: kio's class of the newest served version, or one with additional fields."""
    newest = versioned_class(key, newest_version(key), direction)
    last_with_names = LAST_WITH_TOPIC_NAMES.get(ApiKey(key))
    return newest if last_with_names is None else merged(newest, versioned_class(key, last_with_names, direction))


@cache
def versioned_class(key: int, version: int, direction: MessageDirection) -> Any:
    """Return kio's class of an API, version and direction; imports it on first use."""
    import kio.index

    load = kio.index.load_request_schema if direction is MessageDirection.REQUEST else kio.index.load_response_schema
    return load(key, version)


def decode_request(key: int, version: int, body: Buffer) -> Any:
    """Decode a request into the newest class. Raises WireError if it does not parse."""
    return _decode(int(key), version, MessageDirection.REQUEST, body)


def decode_response(key: int, version: int, body: Buffer) -> Any:
    """Decode a response into the newest class. Raises WireError if it does not parse."""
    return _decode(int(key), version, MessageDirection.RESPONSE, body)


def encode_request(key: int, version: int, message: Any) -> bytes:
    """Encode a request of the newest class in `version`. Raises ValueError if that version cannot express the request.
    Raises struct.error or OverflowError for a number outside its field's range."""
    return _encode(int(key), version, MessageDirection.REQUEST, message)


def encode_response(key: int, version: int, message: Any) -> bytes:
    """Encode a response of the newest class in `version`. Raises CannotEncode if that version cannot express the
    response."""
    return _encode(int(key), version, MessageDirection.RESPONSE, message)


def encode_response_in_pieces(key: int, version: int, message: Any) -> list[bytes]:
    """Encode a response in pieces of at least PIECE_BYTES_MIN, so that megabytes are not copied together in one step.
    Pre-encoded pieces of that length (`EncodedStructs`) are not copied at all."""
    parts = _parts(int(key), version, MessageDirection.RESPONSE, message)
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
    """Return `write(append, struct)` for the structs in a field of this API's response (`"topics", "partitions"`), from
    the newest class to `version`."""
    wire = versioned_class(key, version, MessageDirection.RESPONSE)
    newest = newest_class(key, MessageDirection.RESPONSE)
    for name in path:
        wire, newest = nested_class(wire, name), nested_class(newest, name)
    return compile_writer(wire, newest)


def build(cls: Any, **values: Any) -> Any:
    """Create an instance of a kio class. Omitted fields get their default or zero; lists become tuples, and whole
    milliseconds become durations. Raises TypeError for a field that the class does not have."""
    arguments = {}
    for field in fields_of(cls):
        arguments[field.name] = coerce(field, values.pop(field.name)) if field.name in values else field.default
    if values:
        raise TypeError(f"{cls.__name__} has no field {', '.join(values)}")
    return cls(**arguments)


def nested_class(cls: Any, field_name: str) -> Any:
    """Return the class of the structs in this field: `nested_class(response_class(ApiKey.METADATA), "topics")`."""
    return next(field.entity for field in fields_of(cls) if field.name == field_name)


def duration(value_ms: int) -> timedelta:
    """Convert milliseconds to the duration type of kio's classes."""
    return timedelta(milliseconds=value_ms)


@cache
def _reader(key: int, version: int, direction: MessageDirection) -> tuple[Read, Quirk | None]:
    _check_key(key)
    newest = newest_class(key, direction)
    wire = versioned_class(key, version, direction)
    quirk = QUIRKS.get((key, direction))
    if quirk is not None and version in quirk.versions:
        return compile_reader(wire, wire), quirk
    return compile_reader(wire, newest), None


@cache
def _writer(key: int, version: int, direction: MessageDirection) -> tuple[Write, Quirk | None]:
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


def _decode(key: int, version: int, direction: MessageDirection, body: Buffer) -> Any:
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


def _encode(key: int, version: int, direction: MessageDirection, message: Any) -> bytes:
    return b"".join(_parts(key, version, direction, message))


def _parts(key: int, version: int, direction: MessageDirection, message: Any) -> list[bytes]:
    write, quirk = _writer(key, version, direction)
    if quirk is not None:
        message = quirk.downgrade(message, versioned_class(key, version, direction), version)
    parts: list[bytes] = []
    if direction is MessageDirection.REQUEST:
        write(parts.append, message)
        return parts
    try:
        write(parts.append, message)
    except (struct.error, ValueError, OverflowError) as error:
        raise CannotEncode(f"{ApiKey(key).name} response version {version}: {error}") from None
    return parts
