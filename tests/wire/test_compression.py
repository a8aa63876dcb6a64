from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc
import zlib
from random import Random

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import WireError
from kraft.wire.records import compression
from kraft.wire.records.compression import (
    PIECE_BYTES,
    Compression,
    OpensTooLarge,
    compress,
    decompress,
    iter_decompressed,
)

COMPRESSED = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog " * 5000
LIMIT = 10 << 20
DECOMPRESSOBJ = zlib.decompressobj


@given(st.binary(max_size=5000), st.integers(0, 200), st.sampled_from(Compression))
def test_every_codec_decompresses_what_it_compressed(data: bytes, repeat: int, codec: Compression) -> None:
    original = data * repeat
    assert decompress(codec, compress(codec, original), output_bytes_max=LIMIT) == original


@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompression_accepts_output_of_the_maximum_size_and_rejects_a_byte_more(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    assert len(packed) < len(TEXT)
    assert decompress(codec, packed, output_bytes_max=len(TEXT)) == TEXT
    for limit in (len(TEXT) - 1, 1000, 0):
        with pytest.raises(WireError, match="opens to more than"):
            decompress(codec, packed, output_bytes_max=limit)


def test_output_limit_applies_to_an_uncompressed_block_too() -> None:
    with pytest.raises(WireError, match="opens to more than"):
        decompress(Compression.NONE, b"abc", output_bytes_max=2)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_truncated_compressed_block_is_a_wire_error_or_decompresses_to_a_prefix(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    for cut in range(0, len(packed), max(1, len(packed) // 50)):
        with contextlib.suppress(WireError):
            assert TEXT.startswith(decompress(codec, packed[:cut], output_bytes_max=LIMIT))


@given(st.sampled_from(COMPRESSED), st.binary(max_size=200), st.data())
def test_damaged_compressed_blocks_raise_only_wire_errors(
    codec: Compression, noise: bytes, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, TEXT[:3000]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (bytes(packed), bytes(packed) + noise, noise):
        with contextlib.suppress(WireError):
            assert len(decompress(codec, damaged, output_bytes_max=1 << 20)) <= 1 << 20


def test_snappy_is_read_in_both_framings() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, raw, output_bytes_max=LIMIT) == TEXT
    xerial = compress(Compression.SNAPPY, TEXT)
    assert xerial.startswith(b"\x82SNAPPY\0")
    assert decompress(Compression.SNAPPY, xerial, output_bytes_max=LIMIT) == TEXT
    assert decompress(Compression.SNAPPY, xerial[:16], output_bytes_max=LIMIT) == b""


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"\0\0", "within a length"),
        (b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 100) + b"abc", "100 bytes is announced"),
        (b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -1) + b"abc", "-1 bytes is announced"),
        (b"\xff\xff\x03" + b"abc", "claims to hold 65535"),
    ],
)
def test_wrong_snappy_lengths_are_wire_errors(block: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decompress(Compression.SNAPPY, block, output_bytes_max=LIMIT)


def test_concatenated_gzip_members_are_decompressed() -> None:
    data = gzip.compress(b"first") + gzip.compress(b"") + gzip.compress(b"second")
    assert decompress(Compression.GZIP, data, output_bytes_max=LIMIT) == b"firstsecond"


@pytest.mark.parametrize("size", [16 * 1024 + shift for shift in (-1, 0, 1, 5)])
def test_gzip_members_across_input_slices_are_decompressed_completely(size: int) -> None:
    noise = Random(size).randbytes(3 * size)
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    members = packer.compress(noise) + packer.flush() + gzip.compress(b"last")
    for data, whole in ((members, noise + b"last"), (members[size:], None), (members + members, 2 * (noise + b"last"))):
        if whole is None:
            with pytest.raises(WireError):
                decompress(Compression.GZIP, data, output_bytes_max=LIMIT)
        else:
            assert decompress(Compression.GZIP, data, output_bytes_max=LIMIT) == whole
    for end in (size, 2 * size, len(members) - 1):
        with pytest.raises(WireError, match="too soon"):
            decompress(Compression.GZIP, members[:end], output_bytes_max=LIMIT)


def test_short_gzip_members_take_time_proportional_to_their_number() -> None:
    def fed_bytes(count: int) -> int:
        fed = 0

        class Member:
            def __init__(self, bits: int) -> None:
                self._member = DECOMPRESSOBJ(bits)

            def decompress(self, data: bytes, most: int) -> bytes:
                nonlocal fed
                fed += len(data)
                return self._member.decompress(data, most)

            def __getattr__(self, name: str) -> object:
                return getattr(self._member, name)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(zlib, "decompressobj", Member)
            assert decompress(Compression.GZIP, gzip.compress(b"") * count, output_bytes_max=LIMIT) == b""
        return fed

    assert fed_bytes(20_000) < 2.5 * fed_bytes(10_000)


def test_a_gzip_block_that_ends_too_soon_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="ends too soon"):
        decompress(Compression.GZIP, gzip.compress(TEXT)[:-9], output_bytes_max=LIMIT)


def test_lz4_is_written_with_independent_blocks_and_also_read_with_dependent_blocks() -> None:
    packed = compress(Compression.LZ4, TEXT)
    assert lz4.frame.get_frame_info(packed)["block_linked"] is False
    linked = lz4.frame.compress(TEXT, block_linked=True)
    assert decompress(Compression.LZ4, linked, output_bytes_max=LIMIT) == TEXT


@pytest.mark.parametrize("repeat", [0, 1, 100, 40_000])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block_linked": True},
        {"block_checksum": True},
        {"content_checksum": True},
        {"store_size": False},
        {"block_checksum": True, "content_checksum": True, "store_size": False, "block_linked": False},
    ],
    ids=str,
)
def test_every_lz4_frame_form_decompresses_to_the_same_data_in_one_call_as_in_pieces(
    options: dict[str, bool], block_size: int, repeat: int
) -> None:
    data = Random(1).randbytes(3) * repeat
    packed = lz4.frame.compress(data, block_size=block_size, **options)
    assert compression._open_lz4(packed, 8 << 20) == data
    assert b"".join(iter_decompressed(Compression.LZ4, packed, output_bytes_max=8 << 20)) == data


@pytest.mark.parametrize("behind", [b"x", b"\0" * 4, lz4.frame.compress(TEXT)], ids=["byte", "zeros", "frame"])
def test_lz4_frame_with_data_after_it_is_decompressed_in_pieces_instead_of_one_call(behind: bytes) -> None:
    packed = lz4.frame.compress(TEXT) + behind
    assert compression._open_lz4(packed, 1 << 20) is None
    assert decompress(Compression.LZ4, packed, output_bytes_max=1 << 20) == TEXT


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD], ids=str)
def test_lz4_decompression_bomb_is_not_decompressed_in_one_call(codec: Compression) -> None:
    bomb = compress(codec, bytes(100 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(OpensTooLarge):
            decompress(codec, bomb, output_bytes_max=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_the_claimed_size_of_an_lz4_frame_is_not_trusted() -> None:
    packed = bytearray(lz4.frame.compress(TEXT, store_size=True))
    packed[6:14] = struct.pack("<Q", 1 << 40)
    with pytest.raises(WireError, match="damaged"):
        decompress(Compression.LZ4, packed, output_bytes_max=LIMIT)


def test_an_lz4_frame_that_ends_too_soon_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="ends too soon"):
        decompress(Compression.LZ4, compress(Compression.LZ4, TEXT)[:-6], output_bytes_max=LIMIT)


def test_concatenated_zstd_frames_without_content_size_are_read() -> None:
    packer = zstandard.ZstdCompressor(write_content_size=False)
    data = packer.compress(b"first") + packer.compress(TEXT)
    assert decompress(Compression.ZSTD, data, output_bytes_max=LIMIT) == b"first" + TEXT


def test_a_zstd_decompression_bomb_is_stopped() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))
    assert len(bomb) < 10_000
    with pytest.raises(WireError, match="opens to more than"):
        decompress(Compression.ZSTD, bomb, output_bytes_max=1 << 20)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_block_compressed_at_any_level_decompresses_to_the_same_data(codec: Compression) -> None:
    for level in (1, 9):
        assert decompress(codec, compress(codec, TEXT, level), output_bytes_max=LIMIT) == TEXT


def test_compression_codecs_have_kafkas_names_and_numbers() -> None:
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Compression.named(name) for name in names] == [Compression.of(number) for number in range(5)]
    assert Compression.named("uncompressed") is Compression.NONE
    for number in (5, 6, 7):
        with pytest.raises(WireError, match=f"codec {number}"):
            Compression.of(number)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_block_is_decompressed_lazily_in_small_pieces(codec: Compression) -> None:
    original = bytes(4 << 20)
    pieces = iter_decompressed(codec, compress(codec, original), output_bytes_max=LIMIT)
    first = next(pieces)
    rest = list(pieces)
    assert max(map(len, [first, *rest])) <= PIECE_BYTES
    assert first + b"".join(rest) == original
