"""From fetched bytes to records: partial batches, positions inside a batch, aborted transactions, damage."""

from __future__ import annotations

import pytest

from kraft.client.core.fetched import decode_fetched
from kraft.client.core.requests import FetchedPartition, FetchPosition
from kraft.seam import WireError
from kraft.wire.control_records import ControlRecord, ControlRecordType, encode_control
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import Record, encode_batch

TP = ("orders", 0)


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


def part(data: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedPartition:
    return FetchedPartition(ErrorCode.NONE, 100, 100, 0, aborted, None, None, -1, data)


def values_of(data: bytes, offset: int = 0, *, read_committed: bool = False, aborted=()) -> list[tuple[int, bytes]]:
    found, _ = decode_fetched(TP, part(data, aborted), FetchPosition(offset), read_committed=read_committed)
    return [(record.offset, record.value) for record in found]


def test_every_record_comes_with_its_place_time_and_epoch() -> None:
    found, position = decode_fetched(TP, part(batch(5, b"a", b"b", epoch=3)), FetchPosition(5), read_committed=False)
    assert [(r.topic, r.partition, r.offset, r.timestamp_ms, r.leader_epoch) for r in found] == [
        ("orders", 0, 5, 1_000, 3),
        ("orders", 0, 6, 1_001, 3),
    ]
    assert position == FetchPosition(7, 3)


def test_records_before_the_position_are_left_out() -> None:
    data = batch(0, b"a", b"b") + batch(2, b"c", b"d")
    assert values_of(data, 3) == [(3, b"d")]


@pytest.mark.parametrize("cut", range(1, 61, 7))
def test_a_partial_last_batch_is_for_the_next_fetch(cut: int) -> None:
    whole, torn = batch(0, b"a"), batch(1, b"b")
    found, position = decode_fetched(TP, part(whole + torn[:cut]), FetchPosition(0), read_committed=False)
    assert [record.value for record in found] == [b"a"]
    assert position.offset == 1


def test_no_bytes_leave_the_position_where_it_was() -> None:
    found, position = decode_fetched(TP, part(b""), FetchPosition(9, 4), read_committed=False)
    assert (found, position) == ([], FetchPosition(9, 4))


def test_a_damaged_batch_is_an_error_that_names_it() -> None:
    data = bytearray(batch(0, b"abc"))
    data[-1] ^= 1
    with pytest.raises(WireError, match=r"orders-0: the batch at offset 0"):
        values_of(bytes(data))


TRANSACTIONS = (
    batch(0, b"kept", producer=1, transactional=True)
    + batch(1, b"dropped", producer=2, transactional=True)
    + marker(2, 2, ControlRecordType.ABORT)
    + marker(3, 1, ControlRecordType.COMMIT)
    + batch(4, b"later", producer=2, transactional=True)
    + batch(5, b"plain")
)


def test_read_committed_drops_what_was_aborted_and_nothing_else() -> None:
    found = values_of(TRANSACTIONS, read_committed=True, aborted=((2, 1),))
    assert found == [(0, b"kept"), (4, b"later"), (5, b"plain")]


def test_read_uncommitted_gives_everything_but_the_markers() -> None:
    assert [offset for offset, _ in values_of(TRANSACTIONS)] == [0, 1, 4, 5]


def test_markers_move_the_position() -> None:
    data = batch(0, b"a", producer=1, transactional=True) + marker(1, 1, ControlRecordType.COMMIT)
    found, position = decode_fetched(TP, part(data), FetchPosition(1), read_committed=True)
    assert (found, position.offset) == ([], 2)
