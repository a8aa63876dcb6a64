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
    open_records,
    read_header,
    validate_produce_batch,
    write_crc,
)
from kraft.wire.records.validation import RECORDS_MAX
from kraft.wire.varints import encode_zigzag
from tests.wire.strategies import records

NOW_MS = 1_000_000
ITEMS = [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS + 5, None, b"w")]
RULES: dict[str, Any] = {
    "max_message_bytes": 1000,
    "is_log_append_time": False,
}


def refusal(batch: bytearray, **rules: Any) -> ErrorCode | None:
    header = first_batch(batch)
    if isinstance(header, BatchRefused):
        return header.error
    found = validate_produce_batch(batch, header, **{**RULES, **rules})
    return None if found is None else found.error


def patched(form: str, position: int, value: int, **arguments: Any) -> bytearray:
    """Return a valid batch with one field changed and its CRC updated."""
    last_offset_delta = arguments.pop("last_offset_delta", len(ITEMS) - 1)
    batch = encode_batch(ITEMS, **arguments)
    struct.pack_into(">i", batch, 23, last_offset_delta)
    struct.pack_into(form, batch, position, value)
    write_crc(batch, 0)
    return batch


@given(records(), st.sampled_from(Compression))
def test_validation_accepts_every_batch_that_a_client_encodes(items: list[Record], codec: Compression) -> None:
    rules = {**RULES, "max_message_bytes": 1 << 20}
    batch = encode_batch(items, compression=codec)
    header = first_batch(batch)
    assert header == read_header(batch)
    assert isinstance(header, BatchHeader)
    assert validate_produce_batch(batch, header, **rules) is None
    assert check(batch) == max(-1, *(item.timestamp for item in items))


def test_validation_accepts_exactly_one_batch_of_magic_2() -> None:
    good = encode_batch(ITEMS)
    old = bytearray(good)
    old[16] = 1
    for data in (None, b"", good[:5], good[:40], good + good, old):
        found = first_batch(data)
        assert isinstance(found, BatchRefused)
        assert found.error is ErrorCode.INVALID_RECORD, data


def test_validation_ignores_an_incomplete_batch_after_the_first() -> None:
    good = encode_batch(ITEMS)
    for tail in (b"x", bytes(11), struct.pack(">qi", 0, 500) + bytes(100)):
        assert first_batch(good + tail) == read_header(good)


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 4, 10, 48])
def test_validation_refuses_an_absurd_batch_size_as_corrupt(length: int) -> None:
    batch = encode_batch(ITEMS)
    struct.pack_into(">i", batch, 8, length)
    found = first_batch(batch)
    assert isinstance(found, BatchRefused)
    assert found.error is ErrorCode.CORRUPT_MESSAGE


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
        (encode_batch(ITEMS), {"is_log_append_time": True}, None),
        (encode_batch(ITEMS, log_append_time_ms=5), {"is_log_append_time": True}, ErrorCode.INVALID_TIMESTAMP),
        (encode_batch(ITEMS, log_append_time_ms=-1), {}, ErrorCode.INVALID_TIMESTAMP),
        (encode_batch(ITEMS, log_append_time_ms=NOW_MS), {}, None),
        (patched(">i", 57, RECORDS_MAX + 1, last_offset_delta=RECORDS_MAX), {}, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_header_checks_of_a_produced_batch_give_kafkas_error_codes(
    batch: bytearray, rules: dict[str, Any], error: ErrorCode | None
) -> None:
    assert refusal(batch, **rules) == error


def check(batch: bytearray, **rules: Any) -> int | BatchRefused:
    header = read_header(batch)
    return check_records(open_records(batch, 0, header, output_bytes_max=1 << 20), header, **rules)


def refused(batch: bytearray, **rules: Any) -> BatchRefused:
    result = check(batch, **rules)
    assert isinstance(result, BatchRefused)
    return result


@pytest.mark.parametrize("codec", Compression)
def test_a_compacted_topic_refuses_records_without_a_key_by_index(codec: Compression) -> None:
    batch = encode_batch(ITEMS * 4, compression=codec)
    assert check(batch) == NOW_MS + 5
    refusal = refused(batch, keys_required=True)
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refusal.record_errors] == [1, 3, 5, 7]
    assert {what for _, what in refusal.record_errors} == {"Compacted topic cannot accept message without key"}
    assert refusal.message.startswith("One or more records have been rejected due to 4 record errors in total")


@pytest.mark.parametrize(
    ("bounds", "untimely"),
    [
        ((NOW_MS, NOW_MS + 5), []),
        ((NOW_MS, NOW_MS + 4), [1]),
        ((NOW_MS + 1, NOW_MS + 5), [0]),
        ((NOW_MS + 6, NOW_MS + 9), [0, 1]),
        ((-(2**64), 2**64), []),
    ],
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_records_outside_the_timestamp_bounds_are_refused_by_index(
    bounds: tuple[int, int], untimely: list[int], codec: Compression
) -> None:
    batch = encode_batch(ITEMS, compression=codec)
    result = check(batch, timestamp_min=bounds[0], timestamp_max=bounds[1])
    if not untimely:
        assert result == NOW_MS + 5
        return
    assert isinstance(result, BatchRefused)
    assert result.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == untimely
    for index, what in result.record_errors:
        assert str(what).startswith(f"Timestamp {NOW_MS + 5 * index} of message with offset {index} is out of range.")
        assert f"within [{bounds[0]}, {bounds[1]}]" in str(what)


def test_timestamp_bounds_do_not_apply_to_a_record_without_a_timestamp() -> None:
    batch = encode_batch([Record(0, -1, None, b"v"), Record(1, NOW_MS, None, b"w")])
    assert check(batch, timestamp_min=NOW_MS, timestamp_max=NOW_MS) == NOW_MS
    assert check(encode_batch([Record(0, -1, None, b"v")]), timestamp_min=NOW_MS, timestamp_max=NOW_MS) == -1


def test_a_batch_of_timestamps_before_1970_has_no_latest_timestamp() -> None:
    assert check(encode_batch([Record(0, -70, None, b"v"), Record(1, -50, None, b"w")])) == -1


def test_batch_with_a_bad_timestamp_and_a_missing_key_gets_the_timestamp_error_and_lists_both() -> None:
    refusal = refused(encode_batch(ITEMS), keys_required=True, timestamp_max=NOW_MS - 1)
    assert refusal.error is ErrorCode.INVALID_TIMESTAMP
    assert [(index, str(what)[:9]) for index, what in refusal.record_errors] == [(0, "Timestamp"), (1, "Compacted")]


@pytest.mark.parametrize(
    "times", [(2**63 - 1, -1), (2**63 - 1, 1), (-(2**63), 1), (-(2**63), -1), (5, 2**63 - 6), (5, 2**63 - 5)]
)
def test_a_timestamp_beyond_64_bits_is_invalid(times: tuple[int, int]) -> None:
    base, delta = times
    batch = encode_batch([Record(0, 0, None, b""), Record(1, delta, None, b"")])
    struct.pack_into(">q", batch, 27, base)
    if -(2**63) <= base + delta < 2**63:
        assert check(batch) == max(-1, base, base + delta)
    else:
        assert refused(batch).error is ErrorCode.INVALID_RECORD


def test_a_batch_in_which_the_client_set_an_append_time_is_refused_with_every_record_listed() -> None:
    batch = encode_batch(ITEMS, log_append_time_ms=5)
    refusal = validate_produce_batch(batch, read_header(batch), **{**RULES, "is_log_append_time": True})
    assert refusal is not None
    assert [index for index, _ in refusal.record_errors] == [0, 1]


def test_records_with_offset_gaps_are_invalid() -> None:
    refusal = refused(encode_batch([Record(0, 5, None, b""), Record(2, 5, None, b"")], offsets=[0, 2]))
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert "record 1 has offset delta 2" in refusal.message


def test_produced_records_that_do_not_parse_are_invalid() -> None:
    assert refused(patched(">i", 57, 7)).error is ErrorCode.INVALID_RECORD


@given(records(), st.data())
def test_produce_validation_of_any_bytes_never_raises(items: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(items)
    for _ in range(data.draw(st.integers(1, 6))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    cut = batch[: data.draw(st.integers(0, len(batch)))]
    for candidate in (batch, cut):
        header = first_batch(candidate)
        if isinstance(header, BatchHeader):
            validate_produce_batch(candidate, header, **RULES)
            check_records(bytes(candidate[61:]), header, timestamp_min=0, timestamp_max=NOW_MS)


BASES = st.sampled_from([-(2**63), -(2**63) + 1, -2, -1, 0, NOW_MS, 2**63 - 2, 2**63 - 1]) | st.integers(
    -(2**63), 2**63 - 1
)
DELTAS = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)


@given(
    base=BASES,
    deltas=st.lists(DELTAS, min_size=1, max_size=3),
    timestamp_min=BASES,
    timestamp_max=BASES | st.just(2**63 + NOW_MS),
)
def test_timestamp_bounds_apply_with_any_base_timestamp(
    base: int, deltas: list[int], timestamp_min: int, timestamp_max: int
) -> None:
    bodies = [b"\0" + encode_zigzag(delta) + encode_zigzag(at) + b"\1\1\0" for at, delta in enumerate(deltas)]
    block = b"".join(encode_zigzag(len(body)) + body for body in bodies)
    header = read_header(encode_batch(ITEMS))._replace(base_timestamp=base, record_count=len(deltas))
    found = check_records(block, header, timestamp_min=timestamp_min, timestamp_max=timestamp_max)
    times = [base + delta for delta in deltas]
    untimely = [at for at, time in enumerate(times) if not timestamp_min <= time <= timestamp_max and time != -1]
    if not all(-(2**63) <= time < 2**63 for time in times):
        assert isinstance(found, BatchRefused)
        assert found.error is ErrorCode.INVALID_RECORD
    elif untimely:
        assert isinstance(found, BatchRefused)
        assert (found.error, [at for at, _ in found.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, untimely)
    else:
        assert found == max(-1, *times)
