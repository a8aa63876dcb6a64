"""Decoding only the values of a batch gives the same values as decoding its records, and refuses the same batches."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import WireError
from kraft.wire.records import BATCH_HEADER_BYTES, Record, decode_batch, decode_values, encode_batch, encode_values

texts = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple)
records = st.builds(Record, st.just(0), st.integers(0, 1 << 40) | st.just(7), texts, texts, headers)


@given(st.lists(records, min_size=1, max_size=20), st.integers(0, 1 << 40))
def test_decoded_values_equal_those_of_decoded_records(items: list[Record], base_offset: int) -> None:
    batch = encode_batch(items, base_offset=base_offset)
    assert decode_values(batch) == [record.value or b"" for record in decode_batch(batch)]
    assert decode_values(b"xyz" + batch, 3) == decode_values(batch)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=400))
def test_encoded_plain_values_decode_to_the_same_values(values: list[bytes]) -> None:
    assert decode_values(encode_batch([Record(0, 5, None, value) for value in values])) == values


@pytest.mark.parametrize("seed", range(10))
def test_values_of_one_size_are_decoded_although_different_records_are_between_them(seed: int) -> None:
    chance = random.Random(seed)
    sizes = chance.sample(range(200), 2)
    items: list[Record] = []
    for _ in range(3_000):
        value = chance.randbytes(sizes[0])
        kind = chance.randrange(200) if seed else 200
        if kind == 0:
            items.append(Record(0, 5, None, chance.randbytes(sizes[1])))
        elif kind == 1:
            items.append(Record(0, 5, b"", value))
        elif kind == 2:
            items.append(Record(0, 6, None, value))
        elif kind == 3:
            items.append(Record(0, 5, None, value, (("", None),)))
        elif kind == 4:
            items.append(Record(0, 5, None, None))
        else:
            items.append(Record(0, 5, None, value))
    batch = encode_batch(items)
    assert decode_values(batch) == [record.value or b"" for record in items]
    assert decode_values(batch) == [record.value or b"" for record in decode_batch(batch)]


@pytest.mark.parametrize("seed", range(10))
def test_one_damaged_record_among_many_of_one_size_is_refused_as_by_the_general_decoder(seed: int) -> None:
    chance = random.Random(seed)
    plain = encode_batch([Record(0, 5, None, chance.randbytes(20)) for _ in range(300)])
    for _ in range(100):
        batch = bytearray(plain)
        batch[chance.randrange(BATCH_HEADER_BYTES, len(batch))] ^= 1 << chance.randrange(8)
        assert outcome(decode_values, batch) == outcome(
            lambda whole: [record.value or b"" for record in decode_batch(whole)], batch
        )


def outcome(read: Callable[[bytearray], list[bytes]], batch: bytearray) -> object:
    try:
        return read(batch)
    except WireError:
        return WireError


def test_decoding_ten_thousand_similar_values_executes_about_one_line_of_code_for_each() -> None:
    values = [number.to_bytes(80) for number in range(10_000)]
    batch = encode_values(values, timestamp_ms=5, base_offset=0, leader_epoch=1)
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = decode_values(batch)
    finally:
        sys.settrace(before)
    assert found == values
    assert lines < 2 * len(values)


@pytest.mark.parametrize("seed", range(10))
def test_damaged_records_are_refused_as_by_the_general_decoder(seed: int) -> None:
    chance = random.Random(seed)
    plain = encode_batch([Record(0, 5, None, chance.randbytes(chance.randrange(150))) for _ in range(8)])
    for _ in range(500):
        batch = bytearray(plain)
        for _ in range(chance.randint(1, 3)):
            batch[chance.randrange(BATCH_HEADER_BYTES, len(batch))] = chance.randrange(256)
        try:
            expected: object = [record.value or b"" for record in decode_batch(batch)]
        except WireError:
            expected = WireError
        try:
            found: object = decode_values(batch)
        except WireError:
            found = WireError
        assert found == expected


@given(st.lists(st.binary(max_size=20_000), min_size=1, max_size=300), st.integers(0, 1 << 40), st.integers(0, 1 << 30))
def test_plain_values_are_encoded_as_by_the_general_encoder(values: list[bytes], base_offset: int, epoch: int) -> None:
    general = encode_batch(
        [Record(0, 77, None, value) for value in values], base_offset=base_offset, leader_epoch=epoch
    )
    assert encode_values(values, timestamp_ms=77, base_offset=base_offset, leader_epoch=epoch) == general
