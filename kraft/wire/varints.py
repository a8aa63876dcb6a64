"""Variable-length integers: unsigned (compact lengths, tags) and zig-zag (record fields).

Invariants: a reader never reads past the buffer (IndexError becomes WireError). It refuses an encoding longer than the
type permits: 5 bytes for 32 bits, 10 for 64.
"""

from __future__ import annotations

from kraft.seam import Buffer, WireError

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10

_ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def encode_unsigned(value: int) -> bytes:
    """Encode `value` (not negative) as an unsigned varint."""
    if value < 128:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_zigzag(value: int) -> bytes:
    """Encode a signed `value` as a zig-zag varint or varlong."""
    return encode_unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def read_unsigned(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, next position) of an unsigned varint of at most 32 bits."""
    try:
        byte = buffer[position]
    except IndexError:
        raise _cut_off(position) from None
    return (byte, position + 1) if byte < 128 else _read_long(buffer, position, VARINT_BYTES_MAX, 0xFFFFFFFF)


def read_unsigned_long(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, next position) of an unsigned varint of at most 64 bits."""
    try:
        byte = buffer[position]
    except IndexError:
        raise _cut_off(position) from None
    return (byte, position + 1) if byte < 128 else _read_long(buffer, position, VARLONG_BYTES_MAX, 0xFFFFFFFFFFFFFFFF)


def read_zigzag(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, next position) of a signed varint of 32 bits."""
    value, position = read_unsigned(buffer, position)
    return value >> 1 ^ -(value & 1), position


def read_zigzag_long(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, next position) of a signed varint of 64 bits."""
    value, position = read_unsigned_long(buffer, position)
    return value >> 1 ^ -(value & 1), position


def _cut_off(position: int) -> WireError:
    return WireError(f"a variable-length integer at byte {position} runs past the end")


def _read_long(buffer: Buffer, position: int, bytes_max: int, value_max: int) -> tuple[int, int]:
    value = 0
    try:
        for index in range(bytes_max):
            byte = buffer[position + index]
            value |= (byte & 127) << (7 * index)
            if byte < 128:
                if value > value_max:
                    break
                return value, position + index + 1
    except IndexError:
        raise _cut_off(position) from None
    raise WireError(f"the variable-length integer at byte {position} is too long")


def skip_tagged_fields(buffer: Buffer, position: int, end: int) -> int:
    """Return the position after a section of tagged fields. Raises WireError if it does not end by `end` or its tags do
    not ascend."""
    count, position = read_unsigned(buffer, position)
    last_tag = -1
    for _ in range(count):
        tag, position = read_unsigned(buffer, position)
        if tag <= last_tag:
            raise WireError(f"tag {tag} comes after tag {last_tag}")
        last_tag = tag
        size, position = read_unsigned(buffer, position)
        position += size
        if position > end:
            raise WireError(f"tagged field {tag} of {size} bytes runs past the end")
    return position
