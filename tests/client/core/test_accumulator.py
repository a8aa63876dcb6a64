"""Batches: filled in order, leaving when they may, several at once, and honest about what may have been written."""

from __future__ import annotations

import pytest

from kraft.client.core.accumulator import Accumulator, AccumulatorSettings
from kraft.client.core.batch import NO_IDENTITY, Batch, ProducerIdentity, RecordInBatch, record_bytes_max
from kraft.client.core.partition_queue import PRODUCER_EPOCH_MAX, SEQUENCE_MODULUS
from kraft.client.core.records import DeliveryFailed
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import decode_batch, read_header
from kraft.wire.records.compression import Compression

TP, OTHER = ("orders", 0), ("orders", 1)
ME = ProducerIdentity(7, 2)
RETRIABLE, REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD


def accumulator(identity: ProducerIdentity | None = ME, **settings: int) -> Accumulator:
    return Accumulator(AccumulatorSettings(**settings), identity)


def put(made: Accumulator, value: bytes, place: tuple[str, int] = TP, now_ms: int = 0) -> RecordInBatch:
    return made.add(place, None, value, (), 1_000, record_bytes_max(None, value, ()), lambda: now_ms)


def one_by_one(count: int, **settings: int) -> Accumulator:
    """Every record in a batch of its own."""
    made = accumulator(batch_bytes=1, **settings)
    for number in range(count):
        put(made, b"%d" % number)
    return made


def known_one_by_one(count: int, **settings: int) -> Accumulator:
    """The same behind a batch that was acknowledged, which had sequence 0."""
    made = one_by_one(1, **settings)
    made.answered(take(made), ErrorCode.NONE, base_offset=0)
    for number in range(count):
        put(made, b"%d" % number)
    return made


def take(made: Accumulator, place: tuple[str, int] = TP) -> Batch:
    assert place in made.ready(10**9)
    return made.take(place)[0]


def values(batch: Batch) -> list[bytes | None]:
    return [record.value for record in decode_batch(batch.encode(ME, Compression.NONE))]


def test_records_share_a_batch_until_it_is_full() -> None:
    made = accumulator(batch_bytes=61 + 2 * record_bytes_max(None, b"0", ()))
    for value in (b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"a", b"b"):
        put(made, value)
    counts = [batch.record_count for batch in made.pending()]
    assert sum(counts) == 12
    assert len(counts) > 1


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    made = accumulator(batch_bytes=100)
    put(made, b"x" * 500)
    put(made, b"y")
    assert [batch.record_count for batch in made.pending()] == [1, 1]


def test_a_batch_waits_for_its_linger_unless_somebody_is_in_a_hurry() -> None:
    made = accumulator(linger_ms=50)
    put(made, b"v")
    assert made.ready(49) == []
    assert made.next_deadline_ms() == 50
    assert made.ready(50) == [TP]
    with made.hurrying():
        assert made.ready(0) == [TP]
    assert made.ready(0) == []


def test_a_full_batch_does_not_linger() -> None:
    assert one_by_one(2, linger_ms=1_000).ready(0) == [TP]


def test_as_many_batches_of_a_partition_leave_as_may_be_on_their_way() -> None:
    made = known_one_by_one(4, in_flight_max=3)
    batches = [take(made) for _ in range(3)]
    assert made.ready(0) == []
    assert [batch.base_sequence for batch in batches] == [1, 2, 3]
    made.answered(batches[0], ErrorCode.NONE, base_offset=10)
    assert take(made).base_sequence == 4


def test_the_first_batch_over_a_connection_leaves_alone_until_it_is_acknowledged() -> None:
    """A broker that refuses it and knows nothing of the producer would take the next one."""
    made = one_by_one(6)
    old, new = object(), object()
    for refusal in (RETRIABLE, ErrorCode.NOT_ENOUGH_REPLICAS):
        first = made.take(TP, old)[0]
        assert made.ready(10**6) == []
        made.answered(first, refusal)
    made.answered(made.take(TP, old)[0], ErrorCode.NONE, base_offset=0)
    several = [made.take(TP, old)[0] for _ in range(2) if made.ready(10**6)]
    assert [batch.base_sequence for batch in several] == [1, 2]
    for batch in several:
        made.answered(batch, ErrorCode.NONE)
    assert made.take(TP, new)[0].base_sequence == 3
    assert made.ready(10**6) == []


def test_the_first_batch_of_a_new_sequence_leaves_alone() -> None:
    made = known_one_by_one(3)
    made.answered(take(made), REFUSED)
    assert take(made).base_sequence == 0
    assert made.ready(10**6) == []


def test_a_new_batch_follows_those_in_flight_by_their_connection_and_a_retry_goes_where_it_may() -> None:
    made = one_by_one(4)
    old, new = object(), object()
    made.answered(made.take(TP, old)[0], ErrorCode.NONE, base_offset=0)
    first, second = (made.take(TP, old)[0] for _ in range(2))
    assert (made.may_go(TP, old), made.may_go(TP, new)) == (True, False)
    made.answered(first, RETRIABLE)
    assert made.may_go(TP, new), "it is the oldest"
    assert made.take(TP, new)[0] is first
    made.answered(second, RETRIABLE)
    made.answered(first, ErrorCode.NONE, base_offset=0)
    assert made.may_go(TP, new), "nothing is in flight any more"


def test_nothing_leaves_before_there_is_a_producer_id() -> None:
    made = accumulator(None)
    put(made, b"v")
    assert made.needs_identity(TP)
    made.identity = ME
    assert not made.needs_identity(TP)
    header = read_header(made.take(TP)[1])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)


def test_a_plain_producer_has_no_sequences() -> None:
    made = accumulator(NO_IDENTITY)
    put(made, b"v")
    header = read_header(made.take(TP)[1])
    assert (header.producer_id, header.base_sequence) == (-1, -1)


def test_a_batch_that_left_takes_no_more_records_and_keeps_its_bytes_for_the_retry() -> None:
    made = accumulator()
    put(made, b"a")
    batch, data = made.take(TP)
    put(made, b"late")
    made.answered(batch, RETRIABLE, retry_at_ms=10)
    assert made.ready(9) == []
    assert made.ready(10) == [TP]
    assert made.take(TP) == (batch, data)


def test_a_retry_waits_for_older_ones_and_nothing_new_overtakes_it() -> None:
    made = known_one_by_one(4)
    first, second, third = take(made), take(made), take(made)
    made.answered(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert made.ready(10**6) == []
    made.answered(first, RETRIABLE)
    assert take(made) is first
    assert made.ready(10**6) == []
    made.answered(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    made.answered(first, ErrorCode.NONE, base_offset=0)
    assert take(made) is second
    assert made.ready(10**6) == []
    made.answered(second, ErrorCode.NONE, base_offset=1)
    assert take(made) is third
    assert third.base_sequence == 3


def test_sequences_wrap_at_two_to_the_31() -> None:
    made = known_one_by_one(2)
    made._queues[TP]._next_sequence = SEQUENCE_MODULUS - 1
    assert [take(made).base_sequence, take(made).base_sequence] == [SEQUENCE_MODULUS - 1, 0]


def test_a_duplicate_is_a_success_whose_offset_nobody_knows() -> None:
    made = one_by_one(1)
    batch = take(made)
    made.answered(batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert batch.deliveries[0].outcome.offset == -1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("codes", "certain"),
    [
        ([REFUSED], True),
        ([ErrorCode.NOT_ENOUGH_REPLICAS, REFUSED], True),
        ([ErrorCode.NOT_LEADER_OR_FOLLOWER, REFUSED], False),
        ([ErrorCode.NETWORK_EXCEPTION, REFUSED], False),
        ([ErrorCode.UNKNOWN_SERVER_ERROR], False),
    ],
)
def test_a_failure_is_certain_only_if_no_attempt_may_have_been_written(codes: list[ErrorCode], certain: bool) -> None:
    made = one_by_one(1)
    for code in codes:
        batch = take(made)
        made.answered(batch, code)
    failure = batch.deliveries[0].outcome
    assert isinstance(failure, DeliveryFailed)
    assert failure.certain is certain


def test_after_a_refused_batch_the_sequence_starts_again_under_the_next_epoch() -> None:
    made = known_one_by_one(3)
    first, second = take(made), take(made)
    made.answered(first, REFUSED)
    assert made.ready(10**6) == []
    made.answered(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    batch, data = made.take(TP)
    header = read_header(data)
    assert (batch, header.producer_epoch, header.base_sequence) == (second, 3, 0)
    made.answered(batch, ErrorCode.NONE)
    assert take(made).base_sequence == 1


def test_what_may_be_in_the_log_does_not_leave_under_a_new_epoch() -> None:
    made = known_one_by_one(3)
    first, second = take(made), take(made)
    made.answered(first, ErrorCode.NETWORK_EXCEPTION)
    made.answered(second, ErrorCode.NETWORK_EXCEPTION)
    assert take(made) is first
    made.answered(first, REFUSED)
    failure = second.deliveries[0].outcome
    assert isinstance(failure, DeliveryFailed)
    assert not failure.certain
    assert values(take(made)) == [b"2"]


def test_a_missing_predecessor_that_was_acknowledged_begins_a_new_sequence() -> None:
    made = one_by_one(2)
    made.answered(take(made), ErrorCode.NONE, base_offset=0)
    second = take(made)
    made.answered(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    batch, data = made.take(TP)
    assert batch is second
    assert (read_header(data).producer_epoch, read_header(data).base_sequence) == (3, 0)


def test_other_partitions_keep_their_epoch() -> None:
    made = one_by_one(1)
    put(made, b"x", OTHER)
    put(made, b"y", OTHER)
    made.answered(take(made, OTHER), ErrorCode.NONE)
    made.answered(take(made), REFUSED)
    header = read_header(made.take(OTHER)[1])
    assert (header.producer_epoch, header.base_sequence) == (2, 1)


def test_when_the_epochs_are_used_up_a_new_producer_id_is_needed() -> None:
    made = accumulator(ProducerIdentity(7, PRODUCER_EPOCH_MAX), batch_bytes=1)
    put(made, b"a")
    put(made, b"b")
    made.answered(take(made), REFUSED)
    assert made.needs_identity(TP)
    made.identity = ProducerIdentity(8, 0)
    header = read_header(made.take(TP)[1])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 0, 0)


def test_a_fenced_producer_asks_for_a_new_id() -> None:
    made = one_by_one(2)
    made.answered(take(made), ErrorCode.INVALID_PRODUCER_EPOCH)
    assert made.needs_identity(TP)


def test_a_batch_that_is_too_large_for_the_broker_leaves_in_parts_with_its_sequence_numbers() -> None:
    made = accumulator()
    held = [put(made, b"%d" % number) for number in range(4)]
    batch = take(made)
    put(made, b"4")
    made.answered(batch, ErrorCode.MESSAGE_TOO_LARGE)
    offset = 0
    while made.ready(10**6):
        part = take(made)
        assert part.base_sequence == offset
        made.answered(part, ErrorCode.NONE, base_offset=offset)
        offset += part.record_count
    assert [placed.outcome.offset for placed in held] == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert (offset, made.buffered_bytes) == (5, 0)


def test_a_single_record_that_is_too_large_is_given_up() -> None:
    made = one_by_one(1)
    batch = take(made)
    made.answered(batch, ErrorCode.MESSAGE_TOO_LARGE)
    failure = batch.deliveries[0].outcome
    assert isinstance(failure, DeliveryFailed)
    assert failure.certain


def test_what_waits_expires_and_is_certain_only_if_it_never_left() -> None:
    made = one_by_one(2, delivery_timeout_ms=100)
    first, second = list(made.pending())
    made.answered(take(made), ErrorCode.NETWORK_EXCEPTION, retry_at_ms=10**6)
    assert not made.expire(99)
    assert made.expire(100)
    assert [batch.deliveries[0].outcome.certain for batch in (first, second)] == [False, True]  # type: ignore[union-attr]
    assert made.buffered_bytes == 0


def test_what_is_on_its_way_expires_too_and_keeps_its_memory_until_its_answer() -> None:
    made = one_by_one(2, delivery_timeout_ms=100, in_flight_max=1)
    batch = take(made)
    put(made, b"young", now_ms=100)
    made.expire(100)
    failure = batch.deliveries[0].outcome
    assert isinstance(failure, DeliveryFailed)
    assert not failure.certain
    assert made.buffered_bytes > 0
    made.answered(batch, ErrorCode.NONE, base_offset=5)
    assert batch.deliveries[0].outcome is failure
    header = read_header(made.take(TP)[1])
    assert (header.producer_epoch, header.base_sequence) == (2, 1)


def test_an_expired_batch_without_an_answer_leaves_a_gap() -> None:
    made = one_by_one(1, delivery_timeout_ms=100)
    batch = take(made)
    made.expire(100)
    put(made, b"young", now_ms=100)
    made.answered(batch, ErrorCode.NETWORK_EXCEPTION)
    header = read_header(made.take(TP)[1])
    assert (header.producer_epoch, header.base_sequence) == (3, 0)


def test_a_retry_is_expedited_when_a_new_leader_is_known() -> None:
    made = one_by_one(1)
    made.answered(take(made), RETRIABLE, retry_at_ms=500)
    assert made.next_deadline_ms() == 500
    made.expedite(TP)
    assert made.ready(1) == [TP]
    made.expedite(OTHER)


def test_memory_is_bounded_but_takes_one_record_of_any_size() -> None:
    made = accumulator(buffer_bytes=100)
    assert made.has_room(1_000)
    put(made, b"x" * 1_000)
    assert not made.has_room(1)
    made.answered(take(made), ErrorCode.NONE)
    assert made.buffered_bytes == 0
    assert made.has_room(1)


def test_closing_settles_everything() -> None:
    made = one_by_one(3)
    sent = take(made)
    every = [placed for batch in made.pending() for placed in batch.deliveries]
    made.fail_all(ErrorCode.REQUEST_TIMED_OUT, "closed")
    assert [placed.outcome.certain for placed in every] == [False, True, True]  # type: ignore[union-attr]
    assert made.ready(10**9) == []
    made.answered(sent, ErrorCode.NONE)
    assert made.buffered_bytes == 0


def test_nothing_waits_in_an_empty_accumulator() -> None:
    made = accumulator()
    assert made.next_deadline_ms() is None
    assert made.partitions() == []
    assert made.waiting_bytes(TP) == 0
