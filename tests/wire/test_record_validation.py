from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import (
    BatchHeader,
    BatchRefused,
    Compression,
    Record,
    check_records,
    encode_batch,
    first_batch,
    read_header,
    validate_produce_batch,
    write_crc,
)
from tests.wire.strategies import records

NOW_MS = 1_000_000
ITEMS = [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS + 5, None, b"w")]
RULES: dict[str, Any] = {
    "max_message_bytes": 1000,
    "timestamp_min": 0,
    "timestamp_max": NOW_MS + 3_600_000,
    "is_log_append_time": False,
}


def refusal(batch: bytearray, **rules: Any) -> ErrorCode | None:
    header = first_batch(batch)
    if isinstance(header, BatchRefused):
        return header.error
    refused = validate_produce_batch(batch, header, **{**RULES, **rules})
    return None if refused is None else refused.error


def patched(form: str, position: int, value: int, **arguments: Any) -> bytearray:
    """A good batch with one field changed and the CRC made right again."""
    batch = encode_batch(ITEMS, **arguments)
    struct.pack_into(form, batch, position, value)
    write_crc(batch, 0)
    return batch


@given(records(), st.sampled_from(Compression))
def test_every_batch_that_a_client_writes_passes(items: list[Record], codec: Compression) -> None:
    rules = {**RULES, "max_message_bytes": 1 << 20, "timestamp_max": 2**62}
    batch = encode_batch(items, compression=codec)
    header = first_batch(batch)
    assert header == read_header(batch)
    assert isinstance(header, BatchHeader)
    assert validate_produce_batch(batch, header, **rules) is None
    assert check_records(batch, header, output_bytes_max=1 << 20) is None


def test_exactly_one_batch_of_magic_two_is_accepted() -> None:
    good = encode_batch(ITEMS)
    old = bytearray(good)
    old[16] = 1
    for data in (None, b"", good[:5], good[:40], good + good, old):
        refused = first_batch(data)
        assert isinstance(refused, BatchRefused)
        assert refused.error is ErrorCode.INVALID_RECORD, data


def test_a_short_tail_is_not_looked_at() -> None:
    good = encode_batch(ITEMS)
    for tail in (b"x", bytes(11), struct.pack(">qi", 0, 500) + bytes(100)):
        assert first_batch(good + tail) == read_header(good)


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 4, 10, 48])
def test_an_absurd_size_is_corrupt(length: int) -> None:
    batch = encode_batch(ITEMS)
    struct.pack_into(">i", batch, 8, length)
    refused = first_batch(batch)
    assert isinstance(refused, BatchRefused)
    assert refused.error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("batch", "rules", "error"),
    [
        (encode_batch(ITEMS), {}, None),
        (encode_batch(ITEMS, base_offset=5), {}, ErrorCode.INVALID_RECORD),
        (encode_batch(ITEMS), {"max_message_bytes": 70}, ErrorCode.MESSAGE_TOO_LARGE),
        (encode_batch(ITEMS)[:-1] + b"\x7f", {}, ErrorCode.CORRUPT_MESSAGE),
        (patched(">i", 23, -1), {}, ErrorCode.INVALID_RECORD),
        (patched(">i", 23, 5), {}, ErrorCode.INVALID_RECORD),
        (patched(">i", 57, 0), {}, ErrorCode.INVALID_RECORD),
        (patched(">i", 57, 1), {}, ErrorCode.INVALID_RECORD),
        (encode_batch(ITEMS, control=True), {}, ErrorCode.INVALID_RECORD),
        (encode_batch(ITEMS, producer_id=5, producer_epoch=0), {}, ErrorCode.INVALID_RECORD),
        (encode_batch(ITEMS, producer_id=5, producer_epoch=0, base_sequence=0), {}, None),
        (patched(">h", 21, 6), {}, ErrorCode.INVALID_RECORD),
        (encode_batch(ITEMS), {"timestamp_max": NOW_MS + 4}, ErrorCode.INVALID_TIMESTAMP),
        (encode_batch(ITEMS), {"timestamp_max": NOW_MS + 5}, None),
        (encode_batch(ITEMS), {"timestamp_min": NOW_MS + 1}, ErrorCode.INVALID_TIMESTAMP),
        (encode_batch(ITEMS), {"timestamp_min": NOW_MS}, None),
        (encode_batch([Record(0, -1, None, b"v")]), {"timestamp_min": NOW_MS}, None),
        (encode_batch(ITEMS), {"timestamp_max": 0, "is_log_append_time": True}, None),
        (encode_batch(ITEMS, log_append_time_ms=5), {"is_log_append_time": True}, ErrorCode.INVALID_TIMESTAMP),
        (encode_batch(ITEMS, log_append_time_ms=-1), {}, ErrorCode.INVALID_TIMESTAMP),
        (encode_batch(ITEMS, log_append_time_ms=NOW_MS), {}, None),
        (encode_batch(ITEMS, log_append_time_ms=2**60), {}, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_the_header_checks_give_kafkas_codes(batch: bytearray, rules: dict[str, Any], error: ErrorCode | None) -> None:
    assert refusal(batch, **rules) == error


def check(batch: bytearray, **rules: Any) -> BatchRefused | None:
    return check_records(batch, read_header(batch), output_bytes_max=1 << 20, **rules)


@pytest.mark.parametrize("codec", Compression)
def test_a_compacted_topic_refuses_records_without_a_key_and_names_them(codec: Compression) -> None:
    batch = encode_batch(ITEMS * 4, compression=codec)
    assert check(batch) is None
    refused = check(batch, keys_required=True)
    assert refused is not None
    assert refused.error is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.record_errors] == [1, 3, 5, 7]
    assert "records 1, 3, 5, 7 have no key" in refused.message


def test_a_bad_timestamp_wins_over_a_missing_key() -> None:
    refused = check(encode_batch(ITEMS * 4), keys_required=True, timestamp_max=NOW_MS - 1)
    assert refused is not None
    assert refused.error is ErrorCode.INVALID_TIMESTAMP
    assert len(refused.record_errors) == 8
    assert "and others" in refused.message


def test_records_that_do_not_follow_each_other_are_invalid() -> None:
    batch = encode_batch([Record(0, 5, None, b""), Record(2, 5, None, b"")], offsets=[0, 2])
    refused = check(batch)
    assert refused is not None
    assert refused.error is ErrorCode.INVALID_RECORD
    assert "record 1 of the batch has offset delta 2" in refused.message


def test_records_that_do_not_parse_are_invalid() -> None:
    refused = check(patched(">i", 57, 7))
    assert refused is not None
    assert refused.error is ErrorCode.INVALID_RECORD


@given(records(), st.data())
def test_any_bytes_are_refused_or_accepted_but_never_raise(items: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(items)
    for _ in range(data.draw(st.integers(1, 6))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    cut = batch[: data.draw(st.integers(0, len(batch)))]
    for candidate in (batch, cut):
        header = first_batch(candidate)
        if isinstance(header, BatchHeader):
            validate_produce_batch(candidate, header, **RULES)
            check_records(candidate, header, output_bytes_max=1 << 20)
