from __future__ import annotations

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import InvariantError, WireError
from kraft.wire.records import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    Compression,
    Record,
    check_crc,
    decode_batch,
    encode_batch,
    iter_batch,
    iter_headers,
    patch,
    patch_create_time,
    patch_log_append_time,
    read_header,
    write_crc,
)
from kraft.wire.varints import encode_zigzag
from tests.wire.strategies import records

ONE = Record(0, 1000, b"key", b"value", (("name", b"content"), ("null", None)))


@given(records(base_offset=77), st.sampled_from(Compression))
def test_encoded_batches_decode_to_the_same_records(items: list[Record], codec: Compression) -> None:
    batch = encode_batch(items, base_offset=77, leader_epoch=5, compression=codec)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert decode_batch(batch) == items
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.next_offset, header.last_offset) == (77, 77 + len(items), 76 + len(items))
    assert header.record_count == len(items)
    assert header.compression is codec
    assert header.max_timestamp == max(item.timestamp for item in items)
    assert header.partition_leader_epoch == 5


@given(records(), st.integers(0, 50), st.integers(0, 50))
def test_a_batch_is_decoded_at_any_position_and_with_bytes_after_it(
    items: list[Record], before: int, after: int
) -> None:
    batch = bytes(before) + encode_batch(items) + bytes(after)
    assert decode_batch(batch, before) == items
    assert check_crc(batch, before, read_header(batch, before))


@given(records(), st.data())
def test_an_incomplete_batch_is_a_wire_error(items: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(items)
    cut = batch[: data.draw(st.integers(0, len(batch) - 1))]
    with pytest.raises(WireError):
        decode_batch(cut)
    if len(cut) >= BATCH_HEADER_BYTES:
        assert not check_crc(cut, 0, read_header(cut))


@given(records(), st.sampled_from(Compression), st.data())
def test_a_mutated_batch_raises_only_wire_errors(items: list[Record], codec: Compression, data: st.DataObject) -> None:
    batch = encode_batch(items, compression=codec)
    for _ in range(data.draw(st.integers(1, 5))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        decode_batch(batch, output_bytes_max=1 << 20)


@given(records(), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_patching_offset_and_epoch_keeps_the_crc_right(items: list[Record], base_offset: int, epoch: int) -> None:
    batch = bytearray(7) + encode_batch(items)
    view = memoryview(batch)
    patch(view, 7, base_offset=base_offset, partition_leader_epoch=epoch)
    header = read_header(view, 7)
    assert check_crc(view, 7, header)
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, epoch)
    assert [record.offset for record in decode_batch(view, 7)] == [base_offset + i for i in range(len(items))]


def test_stamping_the_append_time_applies_to_every_record_and_updates_the_crc() -> None:
    batch = encode_batch([ONE, ONE])
    patch_log_append_time(batch, 0, 123456)
    header = read_header(batch)
    assert header.is_log_append_time
    assert header.base_timestamp == 1000
    assert check_crc(batch, 0, header)
    assert {record.timestamp for record in decode_batch(batch)} == {123456}
    patch_create_time(batch, 0, 1234)
    header = read_header(batch)
    assert not header.is_log_append_time
    assert header.max_timestamp == 1234
    assert check_crc(batch, 0, header)
    assert {record.timestamp for record in decode_batch(batch)} == {1000}
    stamped = encode_batch([ONE], log_append_time_ms=77)
    assert decode_batch(stamped)[0].timestamp == 77


def test_attributes_and_producer_fields_of_an_encoded_batch_are_read_from_its_header() -> None:
    batch = encode_batch([ONE] * 3, producer_id=9, producer_epoch=2, base_sequence=2**31 - 2, transactional=True)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 2**31 - 2)
    assert header.last_sequence == 0, "after 2^31 - 1 comes 0"
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.codec == 0
    assert read_header(encode_batch([ONE])).last_sequence == -1


def test_the_batch_header_layout_matches_the_specification() -> None:
    batch = encode_batch([ONE], base_offset=1, leader_epoch=2, producer_id=3, producer_epoch=4, base_sequence=5)
    assert struct.unpack_from(">qiib", batch) == (1, len(batch) - 12, 2, 2)
    assert struct.unpack_from(">hiqqqhii", batch, 21) == (0, 0, 1000, 1000, 3, 4, 5, 1)


def test_a_batch_may_have_offset_gaps() -> None:
    items = [Record(10, 5, None, b"a"), Record(13, 4, None, b"b"), Record(20, 3, None, b"c")]
    batch = encode_batch(items, base_offset=10, offsets=[10, 13, 20])
    assert decode_batch(batch) == items
    assert read_header(batch).next_offset == 21


def test_encoding_a_batch_without_records_is_an_invariant_error() -> None:
    with pytest.raises(InvariantError):
        encode_batch([])


def test_batch_headers_are_read_up_to_an_incomplete_batch() -> None:
    batches = [encode_batch([ONE] * count, base_offset=count) for count in (1, 2, 3)]
    data = b"".join(batches)
    found = list(iter_headers(data + batches[0][:-1]))
    assert [position for position, _ in found] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [header.record_count for _, header in found] == [1, 2, 3]
    assert [header.base_offset for _, header in iter_headers(data, len(batches[0]))] == [2, 3]
    assert list(iter_headers(data[:60])) == []
    with pytest.raises(WireError, match="magic"):
        list(iter_headers(data + bytes(80)))


def test_batch_header_with_an_old_magic_or_an_absurd_length_is_a_wire_error() -> None:
    batch = encode_batch([ONE])
    batch[16] = 1
    with pytest.raises(WireError, match="magic 1"):
        read_header(batch)
    batch = encode_batch([ONE])
    struct.pack_into(">i", batch, 8, 48)
    with pytest.raises(WireError, match="announces 48"):
        read_header(batch)
    with pytest.raises(WireError, match="needs 61 bytes"):
        read_header(bytes(60))


def with_block(block: bytes, *, count: int = 1) -> bytearray:
    """Return a batch with these bytes as its records."""
    batch = encode_batch([ONE])[:BATCH_HEADER_BYTES] + block
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch, 0)
    return batch


def record(*fields: bytes, length: int | None = None) -> bytes:
    body = b"\0" + b"".join(fields)
    return encode_zigzag(len(body) if length is None else length) + body


N = encode_zigzag


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (record(N(0), N(0), N(-1), N(-1), N(0)) + b"x", "1 bytes are left over"),
        (record(N(0), N(0), N(-1), N(-1), N(0), b"x"), "ends 1 bytes before its end"),
        (record(N(0), N(0), N(-1), N(-1), N(0), length=50), "50 bytes is announced"),
        (record(N(0), N(0), N(-1), N(-1), N(0), length=-1), "-1 bytes is announced"),
        (record(N(0), N(0), N(50), N(-1), N(0)), "50 bytes are announced"),
        (record(N(0), N(0), N(-1), N(-1), N(-3)), "-3 headers"),
        (record(N(0), N(0), N(-1), N(-1), N(9)), "9 headers"),
        (record(N(0), N(0), N(-1), N(-1), N(1), N(-1), N(-1)), "no name"),
        (b"\xff" * 11, "too long"),
        (b"", "past the end"),
    ],
)
def test_a_damaged_record_is_a_wire_error_with_the_reason(block: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode_batch(with_block(block))


def test_a_wrong_record_count_is_a_wire_error() -> None:
    whole = record(N(0), N(0), N(-1), N(-1), N(0))
    assert len(decode_batch(with_block(whole * 3, count=3))) == 3
    with pytest.raises(WireError):
        decode_batch(with_block(whole * 3, count=2))
    with pytest.raises(WireError):
        decode_batch(with_block(whole * 3, count=4))


def test_a_record_longer_than_the_limit_is_refused_before_it_is_collected() -> None:
    with pytest.raises(WireError, match="5000 may be opened"):
        decode_batch(with_block(record(length=1 << 30), count=1000), output_bytes_max=5000)


def test_records_of_a_large_batch_are_decoded_one_by_one_in_little_memory() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(2000))] * 5000, compression=Compression.ZSTD)
    tracemalloc.start()
    try:
        assert sum(1 for _ in iter_batch(batch)) == 5000
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 << 20


def test_a_codec_that_does_not_exist_is_a_wire_error() -> None:
    header = read_header(encode_batch([ONE]))
    with pytest.raises(WireError, match="codec 6"):
        header._replace(attributes=6).compression  # noqa: B018
    assert isinstance(header, BatchHeader)


def test_a_header_name_that_is_not_utf8_is_read_with_replacements() -> None:
    block = record(N(0), N(0), N(-1), N(-1), N(1), N(2), b"\xffa", N(-1))
    assert decode_batch(with_block(block))[0].headers == (("\ufffda", None),)
