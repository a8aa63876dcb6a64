"""A consumer's positions: records are returned in order, and the positions advance with them."""

from __future__ import annotations

import pytest

from kraft.client.core.assigned import Assignment, ConsumerPartition
from kraft.client.core.fetched import FetchedBytes, FetchPosition
from kraft.client.core.records import CommittedOffset, KafkaError
from kraft.seam import WireError
from kraft.wire.records import Record, encode_batch
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control

A, B = ("orders", 0), ("orders", 1)


def batch(base: int, count: int) -> bytes:
    records = [Record(0, 1_000, None, b"%d" % (base + index)) for index in range(count)]
    return bytes(encode_batch(records, base_offset=base, leader_epoch=4))


def marker(base: int) -> bytes:
    control = ControlRecord(type=ControlRecordType.COMMIT, coordinator_epoch=0)
    return bytes(
        encode_control(control, base_offset=base, leader_epoch=4, timestamp_ms=1, producer_id=1, producer_epoch=0)
    )


def reading(*partitions: tuple[str, int], at: int = 0) -> Assignment:
    made = Assignment()
    made.replace(partitions)
    for assigned in made.partitions.values():
        assigned.seek(FetchPosition(at))
    return made


def arrive(made: Assignment, place: tuple[str, int], data: bytes) -> None:
    assigned = made.partitions[place]
    assert assigned.fetch is not None
    assigned.arrived(FetchedBytes(data, assigned.fetch))


def offsets(made: Assignment, count: int) -> list[int]:
    return [record.offset for record in made.take(count)]


def given(made: Assignment, place: tuple[str, int] = A) -> int:
    return made.given()[place].offset


def consumed(made: Assignment, place: tuple[str, int] = A) -> int:
    return made.consumed()[place].offset


def test_records_are_returned_in_order_across_batches_and_fetches() -> None:
    made = reading(A)
    arrive(made, A, batch(0, 3) + batch(3, 2))
    arrive(made, A, batch(5, 2))
    assert [offsets(made, 2), offsets(made, 3), offsets(made, 10), offsets(made, 1)] == [
        [0, 1],
        [2, 3, 4],
        [5, 6],
        [],
    ]
    assert given(made) == 7


def test_the_fetch_position_follows_fetched_data_not_returned_records() -> None:
    made = reading(A)
    arrive(made, A, batch(0, 3))
    assert made.partitions[A].fetch == FetchPosition(3, 4)
    assert given(made) == 0


def test_returned_records_count_as_consumed_only_after_the_next_poll() -> None:
    made = reading(A)
    arrive(made, A, batch(0, 4))
    made.mark_consumed()
    made.take(2)
    assert (given(made), consumed(made)) == (2, 0)
    made.mark_consumed()
    made.take(1)
    assert (given(made), consumed(made)) == (3, 2)


def test_the_committed_position_has_the_leader_epoch_of_the_last_record() -> None:
    made = reading(A)
    arrive(made, A, batch(0, 2))
    made.take(1)
    assert made.given()[A] == CommittedOffset(1, 4)


def test_a_position_skips_control_records() -> None:
    made = reading(A)
    arrive(made, A, batch(0, 1) + marker(1))
    assert offsets(made, 1) == [0]
    assert offsets(made, 1) == []
    assert given(made) == 2
    arrive(made, A, marker(2))
    assert offsets(made, 1) == []
    assert given(made) == 3


def test_a_seek_drops_buffered_records() -> None:
    made = reading(A)
    arrive(made, A, batch(0, 4))
    made.take(1)
    version = made.partitions[A].version
    made.partitions[A].seek(FetchPosition(9))
    assert offsets(made, 5) == []
    assert (given(made), made.partitions[A].fetch) == (9, FetchPosition(9))
    assert made.partitions[A].version > version


def test_fetched_data_invalidates_other_responses_for_the_same_position() -> None:
    made = reading(A)
    version = made.partitions[A].version
    arrive(made, A, b"")
    assert made.partitions[A].version == version, "the fetch position is unchanged"
    arrive(made, A, batch(0, 3))
    assert made.partitions[A].version > version


def test_a_partition_has_no_position_between_a_seek_by_time_and_the_end_of_its_offset_lookup() -> None:
    made = reading(A)
    made.partitions[A].seek_by_time(-2)
    assert (made.given(), made.partitions[A].fetch, made.partitions[A].start) == ({}, None, -2)


def test_a_paused_partition_keeps_its_buffered_records() -> None:
    made = reading(A, B)
    arrive(made, A, batch(0, 1))
    arrive(made, B, batch(0, 1))
    made.partitions[A].is_paused = True
    assert [record.partition for record in made.take(5)] == [1]
    made.partitions[A].is_paused = False
    assert [record.partition for record in made.take(5)] == [0]


def test_taking_fetched_records_starts_with_a_different_partition_each_time() -> None:
    made = reading(A, B)
    arrive(made, A, batch(0, 9))
    arrive(made, B, batch(0, 9))
    turns = [made.take(3)[0].partition for _ in range(4)]
    assert sorted(turns) == [0, 0, 1, 1]


def test_partitions_kept_in_a_new_assignment_keep_position_and_records() -> None:
    made = reading(A, B)
    arrive(made, A, batch(0, 3))
    made.take(1)
    made.replace([A])
    assert offsets(made, 5) == [1, 2]
    made.replace([B])
    made.replace([A])
    assert made.partitions[A].fetch is None


def test_waiting_bytes_count_only_data_that_was_not_returned() -> None:
    assigned = ConsumerPartition()
    assigned.seek(FetchPosition(0))
    data = batch(0, 2)
    assigned.arrived(FetchedBytes(data + batch(2, 2), FetchPosition(0)))
    assert assigned.waiting_bytes > len(data)
    assigned.take(A, 1)
    assert assigned.waiting_bytes == len(batch(2, 2))


# damaged batches


def rotten(base: int, count: int) -> bytes:
    data = bytearray(batch(base, count))
    data[-1] ^= 1
    return bytes(data)


def test_records_before_a_damaged_batch_are_returned_before_it_is_reported_and_refetched() -> None:
    made = reading(A)
    arrive(made, A, batch(0, 3) + rotten(3, 2) + batch(5, 1))
    arrive(made, A, batch(6, 1))
    version = made.partitions[A].version
    assert offsets(made, 10) == [0, 1, 2]
    with pytest.raises(KafkaError, match=r"^CORRUPT_MESSAGE: orders-0: the batch at offset 3 fails its CRC-32C"):
        made.take(10)
    assert made.partitions[A].fetch == FetchPosition(3, 4)
    assert made.partitions[A].version > version, "responses to requests in flight are ignored"
    assert given(made) == 3
    arrive(made, A, batch(3, 2) + batch(5, 2))
    assert offsets(made, 10) == [3, 4, 5, 6]


def test_a_damaged_batch_loses_no_records_of_other_partitions() -> None:
    made = reading(A, B)
    seen: list[tuple[int, int]] = []
    told: list[str] = []
    arrive(made, A, batch(0, 2) + rotten(2, 1))
    arrive(made, B, batch(0, 2) + batch(2, 2))
    for _ in range(4):
        made.mark_consumed()
        try:
            seen += [(record.partition, record.offset) for record in made.take(3)]
        except KafkaError as refused:
            told.append(str(refused).split(":")[1])
    assert sorted(seen) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert told == [" orders-0"]
    assert (consumed(made, A), consumed(made, B)) == (2, 4)


@pytest.mark.parametrize("at", [11, 16], ids=["length", "magic"])
def test_a_damaged_batch_header_is_reported_once_it_comes_first(at: int) -> None:
    data = bytearray(batch(3, 1) + batch(4, 1))
    data[at] ^= 255
    made = reading(A)
    arrive(made, A, batch(0, 3) + bytes(data))
    assert made.partitions[A].fetch == FetchPosition(3, 4)
    with pytest.raises(WireError):
        arrive(made, A, bytes(data))
    assert offsets(made, 10) == [0, 1, 2]
