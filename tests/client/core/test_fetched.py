"""Decoding fetched bytes into records: incomplete batches, positions inside a batch, aborted transactions, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.fetched import PIECE_RECORDS_MAX, FetchedBytes, FetchPosition
from kraft.client.core.records import ConsumerRecord
from kraft.seam import WireError
from kraft.wire.records import Record, decode_batch, encode_batch
from kraft.wire.records.compression import Compression
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control

TP = ("orders", 0)
START = FetchPosition(0)


def batch(base: int, *values: bytes, epoch: int = 1, producer: int = -1, transactional: bool = False) -> bytes:
    records = [Record(index, 1_000 + index, None, value) for index, value in enumerate(values)]
    sequence = 0 if producer >= 0 else -1
    return bytes(
        encode_batch(
            records,
            base_offset=base,
            leader_epoch=epoch,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def marker(base: int, producer: int, kind: ControlRecordType) -> bytes:
    control = ControlRecord(type=kind, coordinator_epoch=0)
    return bytes(
        encode_control(
            control, base_offset=base, leader_epoch=1, timestamp_ms=1_000, producer_id=producer, producer_epoch=0
        )
    )


def read(
    data: bytes,
    position: FetchPosition = START,
    *,
    aborted: tuple[tuple[int, int], ...] = (),
    read_committed: bool = False,
) -> tuple[list[ConsumerRecord], FetchPosition]:
    """Return all visible records and the final position."""
    fetched = FetchedBytes(data, position, aborted=aborted, read_committed=read_committed)
    end = fetched.end_position()
    found: list[ConsumerRecord] = []
    while (records := fetched.next_batch(TP)) is not None:
        found += records
    assert fetched.position == end
    return found, end


def values_of(
    data: bytes, offset: int = 0, *, read_committed: bool = False, aborted: tuple[tuple[int, int], ...] = ()
) -> list[tuple[int, bytes | None]]:
    found, _ = read(data, FetchPosition(offset), read_committed=read_committed, aborted=aborted)
    return [(record.offset, record.value) for record in found]


def test_decoded_records_have_partition_offset_time_and_epoch() -> None:
    found, position = read(batch(5, b"a", b"b", epoch=3), FetchPosition(5))
    assert [(r.topic, r.partition, r.offset, r.timestamp_ms, r.leader_epoch) for r in found] == [
        ("orders", 0, 5, 1_000, 3),
        ("orders", 0, 6, 1_001, 3),
    ]
    assert position == FetchPosition(7, 3)


def test_records_before_the_fetch_position_are_left_out() -> None:
    data = batch(0, b"a", b"b") + batch(2, b"c", b"d")
    assert values_of(data, 3) == [(3, b"d")]


@pytest.mark.parametrize("cut", range(1, 61, 7))
def test_a_partial_last_batch_is_left_to_the_next_fetch(cut: int) -> None:
    whole, torn = batch(0, b"a"), batch(1, b"b")
    found, position = read(whole + torn[:cut])
    assert [record.value for record in found] == [b"a"]
    assert position.offset == 1


def test_an_empty_fetch_leaves_the_position_unchanged() -> None:
    found, position = read(b"", FetchPosition(9, 4))
    assert (found, position) == ([], FetchPosition(9, 4))


def test_a_damaged_batch_is_an_error_with_its_offset() -> None:
    data = bytearray(batch(0, b"abc"))
    data[-1] ^= 1
    with pytest.raises(WireError, match=r"orders-0: the batch at offset 0"):
        values_of(bytes(data))


LAST_OFFSET_DELTA = 23
"""Position of the first byte of the field lastOffsetDelta in a batch."""


@pytest.mark.parametrize("position", [3, 4])
def test_a_damaged_batch_with_a_too_small_last_offset_is_not_skipped(position: int) -> None:
    """The damaged header claims a last offset that is before the requested position."""
    data = bytearray(batch(3, b"a", b"b", b"c") + batch(6, b"d"))
    data[LAST_OFFSET_DELTA] |= 0x80
    with pytest.raises(WireError, match=r"orders-0: the batch at offset 3 fails its CRC-32C"):
        read(bytes(data), FetchPosition(position, 1))


TRANSACTIONS = (
    batch(0, b"kept", producer=1, transactional=True)
    + batch(1, b"dropped", producer=2, transactional=True)
    + marker(2, 2, ControlRecordType.ABORT)
    + marker(3, 1, ControlRecordType.COMMIT)
    + batch(4, b"later", producer=2, transactional=True)
    + batch(5, b"plain")
)


def test_read_committed_skips_aborted_transactions_and_nothing_else() -> None:
    found = values_of(TRANSACTIONS, read_committed=True, aborted=((2, 1),))
    assert found == [(0, b"kept"), (4, b"later"), (5, b"plain")]


def test_read_uncommitted_returns_all_records_except_markers() -> None:
    assert [offset for offset, _ in values_of(TRANSACTIONS)] == [0, 1, 4, 5]


def test_the_fetch_position_advances_past_transaction_markers() -> None:
    data = batch(0, b"a", producer=1, transactional=True) + marker(1, 1, ControlRecordType.COMMIT)
    found, position = read(data, FetchPosition(1), read_committed=True)
    assert (found, position.offset) == ([], 2)


def test_each_transaction_of_a_producer_is_skipped_only_if_it_was_aborted() -> None:
    data = (
        batch(0, b"first", producer=2, transactional=True)
        + marker(1, 2, ControlRecordType.ABORT)
        + batch(2, b"second", producer=2, transactional=True)
        + marker(3, 2, ControlRecordType.COMMIT)
        + batch(4, b"third", producer=2, transactional=True)
        + marker(5, 2, ControlRecordType.ABORT)
    )
    assert values_of(data, read_committed=True, aborted=((2, 4), (2, 0))) == [(2, b"second")]


def test_a_damaged_record_value_is_returned_if_crc_checks_are_disabled() -> None:
    data = bytearray(batch(0, b"abc"))
    data[-2] ^= 1
    records = FetchedBytes(bytes(data), FetchPosition(0), check_crcs=False).next_batch(TP)
    assert records is not None
    assert records[0].value == b"ab" + bytes([ord("c") ^ 1])


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=20_000),
            st.none() | st.binary(max_size=200),
            st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=200)), max_size=70).map(tuple),
            st.integers(-1, 2**45),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(list(Compression)),
)
def test_decoded_records_equal_those_of_the_general_codec(given_records: list, compression: Compression) -> None:
    written = [Record(0, time, key, value, heads) for key, value, heads, time in given_records]
    data = bytes(encode_batch(written, base_offset=40, leader_epoch=3, compression=compression))
    found, _ = read(data, FetchPosition(40))
    expected = decode_batch(data)
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in found] == [tuple(r) for r in expected]


@given(st.integers(61, 200), st.integers(0, 255))
def test_damaged_records_raise_wire_error_or_decode_and_never_crash(at: int, byte: int) -> None:
    data = bytearray(batch(0, b"abc" * 10, b"def" * 10, b"ghi" * 20))
    data[min(at, len(data) - 1)] = byte
    fetched = FetchedBytes(bytes(data), FetchPosition(0), check_crcs=False)
    try:
        assert len(fetched.next_batch(TP) or []) == 3
    except WireError:
        assert fetched.position.offset == 0


def test_a_batch_of_very_many_records_is_decoded_in_pieces_from_any_offset() -> None:
    count = 2 * PIECE_RECORDS_MAX + 1
    data = bytes(encode_batch([Record(0, 1_000, None, b"v")] * count, compression=Compression.ZSTD)) + batch(
        count, b"z"
    )
    for start in (0, PIECE_RECORDS_MAX + 7, count):
        fetched = FetchedBytes(data, FetchPosition(start))
        pieces = []
        while (records := fetched.next_batch(TP)) is not None:
            pieces.append([record.offset for record in records])
        assert max(map(len, pieces)) <= PIECE_RECORDS_MAX
        assert [offset for piece in pieces for offset in piece] == list(range(start, count + 1))
        assert fetched.position.offset == count + 1


def test_decoding_a_large_batch_again_raises_wire_error_at_the_same_damaged_piece() -> None:
    count = PIECE_RECORDS_MAX + 2
    data = bytearray(encode_batch([Record(0, 1_000, None, b"v")] * count))
    data[-1] = 2
    fetched = FetchedBytes(bytes(data), START, check_crcs=False)
    assert len(fetched.next_batch(TP) or []) == PIECE_RECORDS_MAX
    for _ in range(2):
        with pytest.raises(WireError):
            while fetched.next_batch(TP) is not None:
                pass
        assert fetched.position.offset == PIECE_RECORDS_MAX
