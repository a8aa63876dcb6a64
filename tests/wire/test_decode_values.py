"""Values alone: the same as those of whole records, and refused where whole records are refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import WireError
from kraft.wire.records import BATCH_HEADER_BYTES, Record, decode_batch, decode_values, encode_batch, encode_values

texts = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple)
records = st.builds(Record, st.just(0), st.integers(0, 1 << 40) | st.just(7), texts, texts, headers)


@given(st.lists(records, min_size=1, max_size=20), st.integers(0, 1 << 40))
def test_values_are_those_of_the_records(items: list[Record], base_offset: int) -> None:
    batch = encode_batch(items, base_offset=base_offset)
    assert decode_values(batch) == [record.value or b"" for record in decode_batch(batch)]
    assert decode_values(b"xyz" + batch, 3) == decode_values(batch)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=400))
def test_plain_values_come_back(values: list[bytes]) -> None:
    assert decode_values(encode_batch([Record(0, 5, None, value) for value in values])) == values


@pytest.mark.parametrize("seed", range(10))
def test_damaged_records_are_refused_as_by_the_whole_reader(seed: int) -> None:
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
def test_plain_values_are_written_as_the_general_writer_writes_them(
    values: list[bytes], base_offset: int, epoch: int
) -> None:
    general = encode_batch(
        [Record(0, 77, None, value) for value in values], base_offset=base_offset, leader_epoch=epoch
    )
    assert encode_values(values, timestamp_ms=77, base_offset=base_offset, leader_epoch=epoch) == general
