"""Kafka's primitive types to and from bytes: strings, byte strings, array lengths, UUIDs and durations, in the plain
encoding and in the compact one of flexible versions.

Writers return bytes. Readers take a buffer and a position and return (value, next position). They check every length
against the remaining bytes before they allocate. They raise WireError, or struct.error for an incomplete fixed-size
field.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from functools import lru_cache
from uuid import UUID

from kraft.seam import WireError
from kraft.wire.varints import encode_unsigned, read_unsigned

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
ZERO_UUID = bytes(16)
UUIDS_REMEMBERED = 16_384
_MILLISECOND = timedelta(milliseconds=1)
STRING_BYTES_MAX = 2**15 - 1
"""Longest string with a 16-bit length. Kafka refuses longer ones in the compact encoding too."""


class CannotEncode(ValueError):
    """A response of this node has a value that its version on the wire cannot express, or a message exceeds its size
    limit."""


def milliseconds(value: timedelta | int) -> int:
    """Return a duration in whole milliseconds; an int is returned unchanged."""
    return value // _MILLISECOND if isinstance(value, timedelta) else value


def uuid_bytes(value: UUID | None) -> bytes:
    """Return the 16 bytes of a UUID; zeroes for None."""
    return ZERO_UUID if value is None else value.bytes


@lru_cache(maxsize=UUIDS_REMEMBERED)
def uuid_or_none(raw: bytes) -> UUID | None:
    """Return the UUID of 16 bytes; None for zeroes. Cached, as topic ids recur and creating a UUID costs a
    microsecond."""
    return None if raw == ZERO_UUID else UUID(bytes=raw)


# writers


def compact_string(value: str | None) -> bytes:
    """Encode a string. Raises ValueError if its length exceeds 16 bits, because readers reject longer ones."""
    if value is None:
        return b"\0"
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(data)} bytes is too long, at most {STRING_BYTES_MAX} are allowed")
    return encode_unsigned(len(data) + 1) + data


def string(value: str | None) -> bytes:
    """Encode a string. Raises ValueError if its length exceeds 16 bits."""
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(data)} bytes does not fit a version with 16-bit lengths")
    return _INT16.pack(len(data)) + data


def compact_byte_string(value: bytes | None) -> bytes:
    return b"\0" if value is None else encode_unsigned(len(value) + 1) + value


def byte_string(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else _INT32.pack(len(value)) + value


def compact_array_count(values: object) -> bytes:
    return b"\0" if values is None else encode_unsigned(len(values) + 1)  # type: ignore[arg-type]


def array_count(values: object) -> bytes:
    return b"\xff\xff\xff\xff" if values is None else _INT32.pack(len(values))  # type: ignore[arg-type]


# readers


def read_bytes(data: memoryview, position: int, size: int) -> tuple[bytes, int]:
    """Read `size` bytes unchanged."""
    end = position + size
    if end > len(data):
        raise WireError(f"{size} bytes are announced at byte {position}, {len(data) - position} are left")
    return bytes(data[position:end]), end


def read_text(data: memoryview, position: int, size: int) -> tuple[str, int]:
    """Read `size` bytes of UTF-8."""
    raw, end = read_bytes(data, position, size)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        raise WireError(f"the string at byte {position} is not UTF-8") from None


def read_compact_string(data: memoryview, position: int) -> tuple[str | None, int]:
    size, position = read_unsigned(data, position)
    if not size:
        return None, position
    if size > STRING_BYTES_MAX + 1:
        raise WireError(f"the string at byte {position} has {size - 1} bytes, at most {STRING_BYTES_MAX} are allowed")
    end = position + size - 1
    if end > len(data):
        raise WireError(f"{size - 1} bytes are announced at byte {position}, {len(data) - position} are left")
    try:
        return str(data[position:end], "utf-8"), end
    except UnicodeDecodeError:
        raise WireError(f"the string at byte {position} is not UTF-8") from None


def read_string(data: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(data, position)
    return read_text(data, position + 2, size) if size >= 0 else (None, position + 2)


def read_compact_byte_string(data: memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = read_unsigned(data, position)
    return read_bytes(data, position, size - 1) if size else (None, position)


def read_byte_string(data: memoryview, position: int) -> tuple[bytes | None, int]:
    (size,) = _INT32.unpack_from(data, position)
    return read_bytes(data, position + 4, size) if size >= 0 else (None, position + 4)


def read_compact_array_count(data: memoryview, position: int) -> tuple[int, int]:
    """Read an array's length in the compact encoding; -1 for null."""
    count, position = read_unsigned(data, position)
    return _checked_count(data, position, count - 1)


def read_array_count(data: memoryview, position: int) -> tuple[int, int]:
    """Read an array's length in the plain encoding; -1 for null."""
    (count,) = _INT32.unpack_from(data, position)
    return _checked_count(data, position + 4, max(count, -1))


def _checked_count(data: memoryview, position: int, count: int) -> tuple[int, int]:
    if count > len(data) - position:
        raise WireError(f"an array of {count} is announced at byte {position}, {len(data) - position} bytes are left")
    return count, position
