"""Batches: filled in order, sealed once, one in flight per partition, and honest about what may have been written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.accumulator import (
    BATCH_OVERHEAD_BYTES,
    NO_IDENTITY,
    SEQUENCE_MODULUS,
    Accumulator,
    AccumulatorSettings,
    PendingRecord,
    ProducerIdentity,
)
from kraft.wire.compression import Compression
from kraft.wire.records import decode_batch, read_header

TP, OTHER = ("orders", 0), ("orders", 1)
ME = ProducerIdentity(7, 2)


def record(value: bytes = b"v", key: bytes | None = None) -> PendingRecord:
    return PendingRecord(key, value, (("h", b"1"),), 1_000, object())


def accumulator(**settings: int) -> Accumulator:
    return Accumulator(AccumulatorSettings(**settings))


def filled(count: int, **settings: int) -> Accumulator:
    made = accumulator(**settings)
    for number in range(count):
        made.add(TP, record(b"%d" % number), now_ms=0)
    return made


def test_records_of_one_partition_share_a_batch_until_it_is_full() -> None:
    size = record(b"0").size_bytes()
    made = accumulator(batch_bytes=BATCH_OVERHEAD_BYTES + 2 * size)
    assert made.add(TP, record(b"0"), 0) is None
    assert made.add(TP, record(b"1"), 0) is None
    closed = made.add(TP, record(b"2"), 0)
    assert closed is not None
    assert closed.closed
    assert [len(batch.records) for batch in made.pending()] == [2, 1]


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    made = accumulator(batch_bytes=100)
    made.add(TP, record(b"x" * 500), 0)
    made.add(TP, record(b"y"), 0)
    assert [len(batch.records) for batch in made.pending()] == [1, 1]


def test_a_batch_waits_for_its_linger_unless_it_is_full_or_flushed() -> None:
    made = filled(1, linger_ms=50)
    assert made.partitions_ready(49) == []
    assert made.next_deadline_ms() == 50
    assert made.partitions_ready(50) == [TP]
    made.flush(True)
    assert made.partitions_ready(0) == [TP]


def test_a_closed_batch_does_not_linger() -> None:
    made = filled(2, linger_ms=1000, batch_bytes=1)
    assert made.partitions_ready(0) == [TP]


def test_one_batch_per_partition_is_in_flight() -> None:
    made = filled(3, batch_bytes=1)
    first = made.take(TP, ME)
    assert made.partitions_ready(0) == []
    made.done(first)
    assert made.partitions_ready(0) == [TP]


def test_a_sealed_batch_keeps_its_bytes_and_sequence_for_every_retry() -> None:
    made = filled(2)
    batch = made.take(TP, ME)
    encoded, sequence = batch.encoded, batch.base_sequence
    made.add(TP, record(b"late"), 0)
    made.retry(batch, 10, certainly_not_written=False)
    assert made.partitions_ready(9) == []
    again = made.take(TP, ProducerIdentity(8, 0))
    assert again is batch
    assert (again.encoded, again.base_sequence, again.identity) == (encoded, sequence, ME)
    assert len(again.records) == 2


def test_what_is_encoded_is_what_was_handed_over() -> None:
    made = Accumulator(AccumulatorSettings(compression=Compression.LZ4))
    made.add(TP, record(b"one", key=b"k"), 0)
    made.add(TP, record(b"two"), 0)
    data = made.take(TP, ME).encoded
    assert data is not None
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
    assert header.compression is Compression.LZ4
    assert [(r.key, r.value, r.headers) for r in decode_batch(data)] == [
        (b"k", b"one", (("h", b"1"),)),
        (None, b"two", (("h", b"1"),)),
    ]


def test_sequences_follow_each_other_per_partition() -> None:
    made = filled(2, batch_bytes=1)
    made.add(OTHER, record(), 0)
    first = made.take(TP, ME)
    made.done(first)
    assert [first.base_sequence, made.take(TP, ME).base_sequence, made.take(OTHER, ME).base_sequence] == [0, 1, 0]


def test_sequences_wrap_at_two_to_the_31() -> None:
    made = filled(1)
    made._next_sequence[TP] = SEQUENCE_MODULUS - 1
    batch = made.take(TP, ME)
    made.done(batch)
    made.add(TP, record(), 0)
    assert (batch.base_sequence, made.take(TP, ME).base_sequence) == (SEQUENCE_MODULUS - 1, 0)


def test_a_new_producer_id_begins_at_sequence_0_but_sealed_batches_keep_theirs() -> None:
    made = filled(2, batch_bytes=1)
    sealed = made.take(TP, ME)
    made.retry(sealed, 0, certainly_not_written=False)
    made.restart_sequences()
    assert made.take(TP, ProducerIdentity(9, 0)).base_sequence == 0
    made.done(sealed)
    assert made.take(TP, ProducerIdentity(9, 0)).base_sequence == 0


def test_a_plain_producer_has_no_sequences() -> None:
    batch = filled(1).take(TP, NO_IDENTITY)
    assert batch.base_sequence == -1
    assert batch.encoded is not None
    assert read_header(batch.encoded).producer_id == -1


def test_a_batch_is_in_doubt_from_when_it_left_until_it_certainly_was_not_written() -> None:
    made = filled(1)
    batch = next(made.pending())
    assert not batch.in_doubt
    made.take(TP, ME)
    assert batch.in_doubt
    made.retry(batch, 0, certainly_not_written=True)
    assert not batch.in_doubt


def test_a_batch_that_was_in_doubt_once_stays_so() -> None:
    made = filled(1)
    batch = made.take(TP, ME)
    made.retry(batch, 0, certainly_not_written=False)
    made.take(TP, ME)
    made.retry(batch, 0, certainly_not_written=True)
    assert batch.in_doubt


def test_batches_expire_but_not_while_in_flight() -> None:
    made = filled(2, batch_bytes=1, delivery_timeout_ms=100)
    first = made.take(TP, ME)
    assert made.expired(99) == []
    assert [batch.records[0].value for batch in made.expired(100)] == [b"1"]
    made.retry(first, 100, certainly_not_written=False)
    assert [batch.records[0].value for batch in made.expired(100)] == [b"0", b"1"]


def test_a_retry_is_expedited_when_a_new_leader_is_known() -> None:
    made = filled(1)
    made.retry(made.take(TP, ME), 500, certainly_not_written=False)
    assert made.next_deadline_ms() == 500
    made.expedite(TP)
    assert made.partitions_ready(1) == [TP]
    made.expedite(OTHER)


def test_the_buffer_is_bounded_but_takes_one_record_of_any_size() -> None:
    made = accumulator(buffer_bytes=100)
    assert made.has_room(record(b"x" * 1000))
    made.add(TP, record(b"x" * 1000), 0)
    assert not made.has_room(record())
    made.done(made.take(TP, ME))
    assert made.buffered_bytes == 0
    assert made.has_room(record())


def test_topics_without_a_leader_are_named() -> None:
    leaders = {TP: 1}
    assert accumulator().leaders_unknown([TP, OTHER], leaders.get) == {"orders"}


def test_nothing_waits_in_an_empty_accumulator() -> None:
    assert accumulator().next_deadline_ms() is None


@given(
    st.lists(st.tuples(st.sampled_from([TP, OTHER]), st.sampled_from(["add", "take", "done", "retry"])), max_size=80)
)
def test_records_leave_in_order_and_sequences_have_no_gap(steps: list[tuple[tuple[str, int], str]]) -> None:
    made = accumulator(batch_bytes=BATCH_OVERHEAD_BYTES + 100)
    flying, left, given_to = {}, {TP: [], OTHER: []}, {TP: 0, OTHER: 0}
    for place, step in steps:
        if step == "add":
            made.add(place, record(b"%d" % given_to[place]), 0)
            given_to[place] += 1
        elif step == "take" and place in made.partitions_ready(10**6):
            flying[place] = made.take(place, ME)
        elif step == "done" and place in flying:
            left[place].append(flying.pop(place))
            made.done(left[place][-1])
        elif step == "retry" and place in flying:
            made.retry(flying.pop(place), 0, certainly_not_written=False)
    for batches in left.values():
        values = [int(r.value or b"") for batch in batches for r in batch.records]
        assert values == list(range(len(values)))
        expected = 0
        for batch in batches:
            assert batch.base_sequence == expected
            expected += len(batch.records)
    waiting = sum(r.size_bytes() for batch in made.pending() for r in batch.records)
    assert made.buffered_bytes == waiting
