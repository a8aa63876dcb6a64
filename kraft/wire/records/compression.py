"""The four codecs of record batches: one block in and out, with an output limit.

Invariants: output exceeds `output_bytes_max` by at most one piece of `PIECE_BYTES`, whatever the input claims. Bad
input always raises WireError. Snappy is read in both framings (raw, as librdkafka writes it, and the Java client's
xerial blocks) and written as xerial, which every reader accepts. LZ4 is the frame format with independent blocks. zstd
frames may lack a content size. gzip members may be concatenated.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType

import cramjam
import lz4.frame
import zstandard

from kraft.seam import Buffer, WireError


class Compression(IntEnum):
    """The codec of a batch: attribute bits 0-2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, number: int) -> Compression:
        """Return the codec with this number; WireError for 5 to 7."""
        try:
            return _BY_NUMBER[number]
        except KeyError:
            raise WireError(f"compression codec {number} does not exist") from None

    @classmethod
    def named(cls, name: str) -> Compression:
        """Return the codec with this configuration name: none or uncompressed, gzip, snappy, lz4, zstd."""
        return cls.NONE if name == "uncompressed" else cls[name.upper()]


_BY_NUMBER = MappingProxyType({int(codec): codec for codec in Compression})

PIECE_BYTES = 256 * 1024
_GZIP_WINDOW_BITS = 31
_GZIP_SLICE_BYTES = 16 * 1024
_ZSTD_WINDOW_BYTES_MAX = 1 << 27
"""Maximum zstd window: the largest one that Java's writer uses, at its highest level."""
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEAD_BYTES_MIN = 7
_LZ4_BLOCK = struct.Struct("<I")
_LZ4_CONTENT_SIZE = struct.Struct("<Q")
_LZ4_LENGTH_MASK = 0x7FFF_FFFF
"""Mask for the length of an LZ4 block. The highest bit, outside the mask, means that the block is not compressed."""
_SNAPPY_EXPANSION_MAX = 64
"""Maximum expansion by snappy: an element of one byte gives at most 64 bytes."""
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")


class OpensTooLarge(WireError):
    """The block's decompressed size exceeds the caller's limit. The part up to the limit was not damaged."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` into one block of this codec. `level`: on the codec's own scale; None for its default."""
    if codec is Compression.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
        return packer.compress(data) + packer.flush()
    if codec is Compression.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec is Compression.LZ4:
        # the Java reader refuses blocks that depend on each other
        packed: bytes = lz4.frame.compress(data, compression_level=level or 0, block_linked=False, store_size=False)
        return packed
    if codec is Compression.ZSTD:
        return bytes(zstandard.ZstdCompressor(level=3 if level is None else level).compress(data))
    return bytes(data)


def decompress(codec: Compression, data: Buffer, *, output_bytes_max: int) -> bytes:
    """Decompress a block. Raises WireError if it is damaged or its content exceeds `output_bytes_max` bytes."""
    if codec is Compression.LZ4:
        opened = _open_lz4(data, output_bytes_max)
        if opened is not None and len(opened) <= output_bytes_max:
            return opened
    return b"".join(iter_decompressed(codec, data, output_bytes_max=output_bytes_max))


def iter_decompressed(codec: Compression, data: Buffer, *, output_bytes_max: int) -> Iterator[bytes]:
    """Decompress a block lazily, in pieces of about PIECE_BYTES, so that memory stays small however much the block
    expands."""
    left = output_bytes_max
    try:
        for piece in _DECOMPRESSORS[codec](memoryview(data), output_bytes_max):
            left -= len(piece)
            if left < 0:
                raise _too_much(output_bytes_max)
            yield piece
    except (zlib.error, RuntimeError, zstandard.ZstdError, cramjam.DecompressionError, EOFError, ValueError) as error:
        raise WireError(f"the {codec.name.lower()} block is damaged: {error}") from None


def _too_much(output_bytes_max: int) -> OpensTooLarge:
    return OpensTooLarge(f"a compressed batch opens to more than {output_bytes_max} bytes")


def _copy(data: memoryview, output_bytes_max: int) -> Iterator[bytes]:
    if len(data) > output_bytes_max:
        raise _too_much(output_bytes_max)
    yield bytes(data)


def _decompress_gzip(data: memoryview, _: int) -> Iterator[bytes]:
    """Decompress gzip. zlib copies its unread input after each call, so it gets the block in slices. Otherwise the time
    for a block of very many short members would grow with the square of its size."""
    rest: Buffer = b""
    position, size = 0, len(data)
    while position < size or rest:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof:
            if not rest:
                rest = data[position : position + _GZIP_SLICE_BYTES]
                position += len(rest)
            is_last = position == size
            piece = member.decompress(rest, PIECE_BYTES)
            rest = member.unconsumed_tail
            if not piece and not rest and is_last and not member.eof:
                raise WireError("the gzip block ends too soon")
            yield piece
        rest = member.unused_data


def _compress_xerial(data: memoryview) -> bytes:
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += _INT32.pack(len(block)), block
    return b"".join(parts)


def _decompress_snappy(data: memoryview, output_bytes_max: int) -> Iterator[bytes]:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _decompress_snappy_block(data, output_bytes_max)
        return
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise WireError("the snappy block ends within a length")
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise WireError(f"a snappy block of {size} bytes is announced, {len(data) - position} are left")
        yield _decompress_snappy_block(data[position : position + size], output_bytes_max)
        position += size


def _decompress_snappy_block(data: memoryview, output_bytes_max: int) -> bytes:
    # the length that the block claims is checked before it is used
    claimed = cramjam.snappy.decompress_raw_len(data)
    if claimed > output_bytes_max:
        raise _too_much(output_bytes_max)
    if claimed > len(data) * _SNAPPY_EXPANSION_MAX:
        raise WireError(f"a snappy block of {len(data)} bytes claims to hold {claimed}")
    return bytes(cramjam.snappy.decompress_raw(data))


def _decompress_lz4(data: memoryview, _: int) -> Iterator[bytes]:
    frame = lz4.frame.LZ4FrameDecompressor()
    rest: Buffer = data
    while not frame.eof:
        piece = frame.decompress(rest, PIECE_BYTES)
        rest = b""
        if not piece and not frame.eof:
            raise WireError("the lz4 frame ends too soon")
        yield piece


def _decompress_zstd(data: memoryview, _: int) -> Iterator[bytes]:
    opener = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    with opener.stream_reader(data, read_across_frames=True) as reader:
        while piece := reader.read(PIECE_BYTES):
            yield piece


def _open_lz4(data: Buffer, output_bytes_max: int) -> bytes | None:
    """Decompress LZ4 in one call, several times faster than in pieces, if the size of the output is known to be
    bounded. None: decompress in pieces, which also reports any damage."""
    if not _opens_to_at_most(data, output_bytes_max + PIECE_BYTES):
        return None
    try:
        opened: bytes = lz4.frame.decompress(data)
    except (RuntimeError, ValueError):
        return None
    return opened


def _opens_to_at_most(data: Buffer, bound: int) -> bool:
    """Return whether this is exactly one LZ4 frame whose blocks cannot exceed the limit. Source: LZ4 frame format."""
    size = len(data)
    if size < _LZ4_HEAD_BYTES_MIN or bytes(data[:4]) != _LZ4_MAGIC:
        return False
    flags, block_bytes_max = data[4], 1 << (8 + 2 * (data[5] >> 4 & 7))  # 64 KiB to 4 MiB
    position = _LZ4_HEAD_BYTES_MIN + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    if flags & 8 and (size < position or _LZ4_CONTENT_SIZE.unpack_from(data, 6)[0] > bound):
        return False  # the claimed size is allocated
    block_end = 4 if flags & 16 else 0
    while position + 4 <= size and bound >= 0:
        (length,) = _LZ4_BLOCK.unpack_from(data, position)
        position += 4
        if not length:
            return position + (4 if flags & 4 else 0) == size
        position += (length & _LZ4_LENGTH_MASK) + block_end
        bound -= block_bytes_max
    return False


_DECOMPRESSORS: Mapping[Compression, Callable[[memoryview, int], Iterator[bytes]]] = MappingProxyType(
    {
        Compression.NONE: _copy,
        Compression.GZIP: _decompress_gzip,
        Compression.SNAPPY: _decompress_snappy,
        Compression.LZ4: _decompress_lz4,
        Compression.ZSTD: _decompress_zstd,
    }
)
