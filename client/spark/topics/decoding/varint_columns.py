"""Read the varints at many positions of a buffer at once.

A table of all 65,536 values of two bytes gives the number and its width. Longer varints are rare; only those are read
byte by byte.
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
    """A record cannot be read. `index` is its number, counted over all blocks."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


def _tables() -> tuple[Ints, Ints]:
    """Return two tables, indexed by the two bytes at a position (little-endian).

    The first table has the number and the width of the zig-zag varint there, as number << 2 | width; 0 if the varint is
    longer than two bytes. The second table has the size of a record whose length is there; 0 if the length is longer
    than two bytes or negative."""
    pair = np.arange(1 << 16, dtype=np.int64)
    first, second = pair & 255, pair >> 8
    raw = np.where(first < 128, first, first & 127 | second << 7)
    width = np.where(first < 128, 1, np.where(second < 128, 2, 0))
    number = np.where(width > 0, raw >> 1 ^ -(raw & 1), 0)
    return number << _WIDTH_BITS | width, np.where((width > 0) & (number >= 0), number + width, 0)


_NUMBERS, RECORD_SIZES = _tables()


class NumpyBuffer:
    """A buffer as numpy arrays: `bytes` has each byte; `pairs` has, for each position but the last, the two bytes that
    begin there."""

    __slots__ = ("bytes", "pairs")

    def __init__(self, data: Buffer) -> None:
        if len(data) < 2:
            data = bytes(data) + bytes(2)
        self.bytes: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self.pairs: NDArray[np.uint16] = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))


def read_varints(source: NumpyBuffer, positions: Ints, *, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Ints, Ints]:
    """Return (numbers, positions after them) for the varints at rising positions. Raises BrokenRecord, with the index
    in `positions`, for a varint that is too long.

    A position beyond the buffer gives the number in the buffer's last bytes. So callers must check that no record
    extends beyond the buffer."""
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


def _read_long(source: NumpyBuffer, positions: Ints, indices: Ints, bytes_max: int) -> tuple[Ints, Ints]:
    """Return (numbers, widths) of varints, read byte by byte."""
    raw = np.zeros(len(positions), np.uint64)
    widths = np.zeros(len(positions), np.int64)
    going_on = np.ones(len(positions), np.bool_)
    for byte in range(bytes_max):
        value = source.bytes.take(positions + byte, mode="clip").astype(np.uint64)
        # the last byte has only the type's remaining bits, and no continuation bit
        if byte == bytes_max - 1 and (wrong := going_on & (value > _VALUE_MAX[bytes_max] >> 7 * byte)).any():
            raise BrokenRecord(int(indices[wrong.argmax()]), f"an integer is longer than {bytes_max} bytes can be")
        raw |= np.where(going_on, (value & np.uint64(127)) << np.uint64(7 * byte), np.uint64(0))
        widths += going_on
        going_on &= value >= 128
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), widths
