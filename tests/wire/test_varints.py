from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import readers

from kraft.seam import WireError
from kraft.wire.varints import (
    encode_unsigned,
    encode_zigzag,
    read_unsigned,
    read_unsigned_long,
    read_zigzag,
    read_zigzag_long,
    skip_tagged_fields,
)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_varints_decode_to_what_was_encoded(value: int, tail: bytes) -> None:
    data = b"?" + encode_unsigned(value) + tail
    assert read_unsigned(data, 1) == (value, len(data) - len(tail))
    if value < 2**31:
        assert readers.read_unsigned_varint(data, 1)[0] == value


@given(st.integers(0, 2**64 - 1))
def test_unsigned_varlongs_decode_to_what_was_encoded(value: int) -> None:
    assert read_unsigned_long(encode_unsigned(value), 0)[0] == value


@given(st.integers(-(2**31), 2**31 - 1))
def test_signed_varints_decode_to_what_was_encoded(value: int) -> None:
    data = encode_zigzag(value)
    assert read_zigzag(data, 0) == (value, len(data))
    assert readers.read_signed_varint(data, 0)[0] == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_varlongs_decode_to_what_was_encoded(value: int) -> None:
    data = encode_zigzag(value)
    assert read_zigzag_long(data, 0) == (value, len(data))
    assert readers.read_signed_varlong(data, 0)[0] == value


@given(st.integers(0, 2**64 - 1))
def test_a_truncated_varint_is_a_wire_error(value: int) -> None:
    data = encode_unsigned(value)
    for cut in range(len(data)):
        with pytest.raises(WireError, match="past the end"):
            read_unsigned_long(data[:cut], 0)


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\0", b"\xff\xff\xff\xff\x1f"])
def test_a_varint_that_is_too_long_or_too_large_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError, match="too long"):
        read_unsigned(data, 0)


def test_tagged_fields_are_skipped_if_their_tags_ascend() -> None:
    assert skip_tagged_fields(b"\0rest", 0, 5) == 1
    assert skip_tagged_fields(b"\2\1\2ab\5\0rest", 0, 11) == 7
    with pytest.raises(WireError, match="tag 1 comes after tag 1"):
        skip_tagged_fields(b"\2\1\0\1\0", 0, 5)
    with pytest.raises(WireError, match="runs past the end"):
        skip_tagged_fields(b"\1\1\5ab", 0, 5)
