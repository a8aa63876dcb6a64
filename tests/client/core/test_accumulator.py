"""The producer's accumulator. Batches are filled in order and sent when allowed, several at once. A failed delivery
reports correctly whether its record may be in the log.
"""

from __future__ import annotations

import pytest

from kraft.client.core.accumulator import Accumulator, AccumulatorSettings
from kraft.client.core.batch import NO_IDENTITY, OutgoingBatch, ProducerIdentity, RecordInBatch, record_bytes_max
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
    """Return an accumulator in which every record has its own batch."""
    made = accumulator(batch_bytes=1, **settings)
    for number in range(count):
        put(made, b"%d" % number)
    return made


def known_one_by_one(count: int, **settings: int) -> Accumulator:
    """Return an accumulator in which every record has its own batch. One batch, with sequence number 0, is already
    acknowledged."""
    made = one_by_one(1, **settings)
    made.answered(take(made), ErrorCode.NONE, base_offset=0)
    for number in range(count):
        put(made, b"%d" % number)
    return made


def take(made: Accumulator, place: tuple[str, int] = TP) -> OutgoingBatch:
    assert place in made.ready(10**9)
    return made.take(place)[0]


def values(batch: OutgoingBatch) -> list[bytes | None]:
    return [record.value for record in decode_batch(batch.encode(ME, Compression.NONE))]


def test_records_share_a_producer_batch_until_it_is_full() -> None:
    made = accumulator(batch_bytes=61 + 2 * record_bytes_max(None, b"0", ()))
    for value in (b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"a", b"b"):
        put(made, value)
    counts = [batch.record_count for batch in made.pending()]
    assert sum(counts) == 12
    assert len(counts) > 1


def test_a_record_larger_than_batch_size_gets_its_own_batch() -> None:
    made = accumulator(batch_bytes=100)
    put(made, b"x" * 500)
    put(made, b"y")
    assert [batch.record_count for batch in made.pending()] == [1, 1]


def test_a_batch_waits_for_linger_ms_unless_lingering_is_disabled() -> None:
    made = accumulator(linger_ms=50)
    put(made, b"v")
    assert made.ready(49) == []
    assert made.next_deadline_ms() == 50
    assert made.ready(50) == [TP]
    with made.without_linger():
        assert made.ready(0) == [TP]
    assert made.ready(0) == []


def test_a_full_batch_does_not_linger() -> None:
    assert one_by_one(2, linger_ms=1_000).ready(0) == [TP]


def test_a_partition_sends_at_most_the_allowed_number_of_batches_in_flight() -> None:
    made = known_one_by_one(4, in_flight_max=3)
    batches = [take(made) for _ in range(3)]
    assert made.ready(0) == []
    assert [batch.base_sequence for batch in batches] == [1, 2, 3]
    made.answered(batches[0], ErrorCode.NONE, base_offset=10)
    assert take(made).base_sequence == 4


def test_the_first_batch_on_a_connection_is_sent_alone_until_acknowledged() -> None:
    """A broker that has no state of the producer and rejects the first batch would accept the next one."""
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


def test_the_first_batch_of_a_new_sequence_is_sent_alone() -> None:
    made = known_one_by_one(3)
    made.answered(take(made), REFUSED)
    assert take(made).base_sequence == 0
    assert made.ready(10**6) == []


def test_new_batches_use_the_connection_of_batches_in_flight_but_a_retry_may_use_another() -> None:
    made = one_by_one(4)
    old, new = object(), object()
    made.answered(made.take(TP, old)[0], ErrorCode.NONE, base_offset=0)
    first, second = (made.take(TP, old)[0] for _ in range(2))
    assert (made.may_send_on(TP, old), made.may_send_on(TP, new)) == (True, False)
    made.answered(first, RETRIABLE)
    assert made.may_send_on(TP, new), "it is the oldest"
    assert made.take(TP, new)[0] is first
    made.answered(second, RETRIABLE)
    made.answered(first, ErrorCode.NONE, base_offset=0)
    assert made.may_send_on(TP, new), "nothing is in flight any more"


def test_a_batch_is_not_sent_before_the_producer_id_is_known() -> None:
    made = accumulator(None)
    put(made, b"v")
    assert made.needs_identity(TP)
    made.identity = ME
    assert not made.needs_identity(TP)
    header = read_header(made.take(TP)[1])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)


def test_batches_of_a_non_idempotent_producer_have_no_sequence_numbers() -> None:
    made = accumulator(NO_IDENTITY)
    put(made, b"v")
    header = read_header(made.take(TP)[1])
    assert (header.producer_id, header.base_sequence) == (-1, -1)


def test_a_sent_batch_accepts_no_more_records_and_its_retry_has_the_same_bytes() -> None:
    made = accumulator()
    put(made, b"a")
    batch, data = made.take(TP)
    put(made, b"late")
    made.answered(batch, RETRIABLE, retry_at_ms=10)
    assert made.ready(9) == []
    assert made.ready(10) == [TP]
    assert made.take(TP) == (batch, data)


def test_a_retry_waits_for_older_batches_and_no_new_batch_overtakes_it() -> None:
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


def test_batch_sequence_numbers_restart_at_0_after_the_largest_32_bit_number() -> None:
    made = known_one_by_one(2)
    made._queues[TP]._next_sequence = SEQUENCE_MODULUS - 1
    assert [take(made).base_sequence, take(made).base_sequence] == [SEQUENCE_MODULUS - 1, 0]


def test_a_duplicate_sequence_response_is_a_success_with_unknown_offset() -> None:
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
def test_a_delivery_failure_is_certain_only_if_no_attempt_may_be_in_the_log(
    codes: list[ErrorCode], certain: bool
) -> None:
    made = one_by_one(1)
    for code in codes:
        batch = take(made)
        made.answered(batch, code)
    failure = batch.deliveries[0].outcome
    assert isinstance(failure, DeliveryFailed)
    assert failure.certain is certain


def test_after_a_rejected_batch_the_sequence_restarts_with_the_next_producer_epoch() -> None:
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


def test_a_batch_that_may_be_in_the_log_is_not_resent_with_a_new_epoch() -> None:
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


def test_an_out_of_order_error_after_an_acknowledged_batch_restarts_the_sequence() -> None:
    made = one_by_one(2)
    made.answered(take(made), ErrorCode.NONE, base_offset=0)
    second = take(made)
    made.answered(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    batch, data = made.take(TP)
    assert batch is second
    assert (read_header(data).producer_epoch, read_header(data).base_sequence) == (3, 0)


def test_a_sequence_restart_in_one_partition_does_not_change_the_epoch_of_other_partitions() -> None:
    made = one_by_one(1)
    put(made, b"x", OTHER)
    put(made, b"y", OTHER)
    made.answered(take(made, OTHER), ErrorCode.NONE)
    made.answered(take(made), REFUSED)
    header = read_header(made.take(OTHER)[1])
    assert (header.producer_epoch, header.base_sequence) == (2, 1)


def test_a_new_producer_id_is_needed_after_the_last_epoch() -> None:
    made = accumulator(ProducerIdentity(7, PRODUCER_EPOCH_MAX), batch_bytes=1)
    put(made, b"a")
    put(made, b"b")
    made.answered(take(made), REFUSED)
    assert made.needs_identity(TP)
    made.identity = ProducerIdentity(8, 0)
    header = read_header(made.take(TP)[1])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 0, 0)


def test_a_batch_rejected_for_its_producer_epoch_makes_the_producer_need_a_new_producer_id() -> None:
    made = one_by_one(2)
    made.answered(take(made), ErrorCode.INVALID_PRODUCER_EPOCH)
    assert made.needs_identity(TP)


def test_a_batch_too_large_for_the_broker_is_split_and_keeps_its_sequence_numbers() -> None:
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


def test_a_single_record_too_large_for_the_broker_fails() -> None:
    made = one_by_one(1)
    batch = take(made)
    made.answered(batch, ErrorCode.MESSAGE_TOO_LARGE)
    failure = batch.deliveries[0].outcome
    assert isinstance(failure, DeliveryFailed)
    assert failure.certain


def test_a_waiting_batch_expires_and_its_failure_is_certain_only_if_it_was_never_sent() -> None:
    made = one_by_one(2, delivery_timeout_ms=100)
    first, second = list(made.pending())
    made.answered(take(made), ErrorCode.NETWORK_EXCEPTION, retry_at_ms=10**6)
    assert not made.expire(99)
    assert made.expire(100)
    assert [batch.deliveries[0].outcome.certain for batch in (first, second)] == [False, True]  # type: ignore[union-attr]
    assert made.buffered_bytes == 0


def test_a_batch_in_flight_expires_but_keeps_its_memory_until_the_response() -> None:
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


def test_an_expired_batch_without_a_response_restarts_the_sequence() -> None:
    made = one_by_one(1, delivery_timeout_ms=100)
    batch = take(made)
    made.expire(100)
    put(made, b"young", now_ms=100)
    made.answered(batch, ErrorCode.NETWORK_EXCEPTION)
    header = read_header(made.take(TP)[1])
    assert (header.producer_epoch, header.base_sequence) == (3, 0)


def test_a_retry_backoff_ends_when_a_new_leader_is_known() -> None:
    made = one_by_one(1)
    made.answered(take(made), RETRIABLE, retry_at_ms=500)
    assert made.next_deadline_ms() == 500
    made.expedite(TP)
    assert made.ready(1) == [TP]
    made.expedite(OTHER)


def test_buffer_memory_is_bounded_but_an_empty_buffer_takes_any_record() -> None:
    made = accumulator(buffer_bytes=100)
    assert made.has_room(1_000)
    put(made, b"x" * 1_000)
    assert not made.has_room(1)
    made.answered(take(made), ErrorCode.NONE)
    assert made.buffered_bytes == 0
    assert made.has_room(1)


def test_fail_all_settles_every_pending_batch() -> None:
    made = one_by_one(3)
    sent = take(made)
    every = [placed for batch in made.pending() for placed in batch.deliveries]
    made.fail_all(ErrorCode.REQUEST_TIMED_OUT, "closed")
    assert [placed.outcome.certain for placed in every] == [False, True, True]  # type: ignore[union-attr]
    assert made.ready(10**9) == []
    made.answered(sent, ErrorCode.NONE)
    assert made.buffered_bytes == 0


def test_an_empty_accumulator_has_no_deadline_and_no_partitions() -> None:
    made = accumulator()
    assert made.next_deadline_ms() is None
    assert made.partitions() == []
    assert made.waiting_bytes(TP) == 0
