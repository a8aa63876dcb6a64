"""Read the variable-length integers at many positions of a buffer at once.

Two bytes are looked at together: a table of their 65,536 values has the number and its width. Longer integers, which
are few, are read byte by byte for their positions alone.
Source: KIP-98 (varint and varlong, zig-zag).
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kraft.seam import Buffer
from kraft.wire.varints import VARINT_BYTES_MAX, VARLONG_BYTES_MAX

Ints = NDArray[np.int64]

_VALUE_MAX = MappingProxyType({VARINT_BYTES_MAX: 0xFFFFFFFF, VARLONG_BYTES_MAX: 0xFFFFFFFFFFFFFFFF})
_WIDTH_BITS = 2


class BrokenRecord(Exception):
    """Record `index`, counted over all blocks, cannot be read."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


def _tables() -> tuple[Ints, Ints]:
    """By the two bytes at a position, little-endian: zig-zag number and width in one (number << 2 | width, 0 if it is
    longer than two bytes), and the size of a record whose length stands there (0 if longer or negative)."""
    pair = np.arange(1 << 16, dtype=np.int64)
    first, second = pair & 255, pair >> 8
    raw = np.where(first < 128, first, first & 127 | second << 7)
    width = np.where(first < 128, 1, np.where(second < 128, 2, 0))
    number = np.where(width > 0, raw >> 1 ^ -(raw & 1), 0)
    return number << _WIDTH_BITS | width, np.where((width > 0) & (number >= 0), number + width, 0)


_NUMBERS, RECORD_SIZES = _tables()


class Source:
    """A buffer as numpy sees it: `bytes`, and at each position but the last the two bytes from there on (`pairs`)."""

    __slots__ = ("bytes", "pairs")

    def __init__(self, data: Buffer) -> None:
        if len(data) < 2:
            data = bytes(data) + bytes(2)
        self.bytes: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self.pairs: NDArray[np.uint16] = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))


def read_varints(source: Source, positions: Ints, *, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Ints, Ints]:
    """(numbers, positions behind them) for rising positions. BrokenRecord, with the index in `positions`, for a number
    that is too long.

    Positions behind the buffer read whatever stands last: callers check that no record runs past its end."""
    last = len(source.bytes) - 1
    packed = _NUMBERS[source.pairs[np.minimum(positions, last - 1)]]
    if len(positions) and positions[-1] == last:
        packed[-1] = _NUMBERS[source.bytes[last]]
    numbers = packed >> _WIDTH_BITS
    packed &= (1 << _WIDTH_BITS) - 1
    if not packed.all():
        longer = np.flatnonzero(packed == 0)
        numbers[longer], packed[longer] = _read_long(source, positions[longer], longer, bytes_max)
    packed += positions
    return numbers, packed


def _read_long(source: Source, positions: Ints, indices: Ints, bytes_max: int) -> tuple[Ints, Ints]:
    """(numbers, widths), byte by byte."""
    raw = np.zeros(len(positions), np.uint64)
    widths = np.zeros(len(positions), np.int64)
    going_on = np.ones(len(positions), np.bool_)
    for byte in range(bytes_max):
        value = source.bytes.take(positions + byte, mode="clip").astype(np.uint64)
        # the last byte has as many bits as the type has left, and never the mark of a further one
        if byte == bytes_max - 1 and (wrong := going_on & (value > _VALUE_MAX[bytes_max] >> 7 * byte)).any():
            raise BrokenRecord(int(indices[wrong.argmax()]), f"an integer is longer than {bytes_max} bytes can be")
        raw |= np.where(going_on, (value & np.uint64(127)) << np.uint64(7 * byte), np.uint64(0))
        widths += going_on
        going_on &= value >= 128
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), widths
