"""The accumulator of a transactional producer. A failed batch does not change the producer epoch: only the
transaction's state machine does that.
"""

from __future__ import annotations

import pytest

from kraft.client.core.accumulator import Accumulator, AccumulatorSettings
from kraft.client.core.batch import OutgoingBatch, ProducerIdentity, record_bytes_max
from kraft.client.core.records import DeliveryFailed, TopicPartition
from kraft.client.core.requests import produce_version
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import read_header

A, B = ("orders", 0), ("orders", 1)
FIRST, SECOND = ProducerIdentity(4000, 3), ProducerIdentity(4000, 4)


def accumulator(**settings: int) -> Accumulator:
    return Accumulator(AccumulatorSettings(is_transactional=True, **settings), FIRST)


def add(batches: Accumulator, place: TopicPartition = A, value: bytes = b"v") -> None:
    batches.add(place, None, value, (), 0, record_bytes_max(None, value, ()), lambda: 0)


def sent(batches: Accumulator, place: TopicPartition = A) -> tuple[OutgoingBatch, tuple[int, int, int]]:
    """Take the partition's next batch. Return the batch, and the (producer id, epoch, base sequence) in its encoded
    header."""
    assert place in batches.ready(0)
    batch, encoded = batches.take(place)
    header = read_header(encoded)
    assert header.is_transactional
    return batch, (header.producer_id, header.producer_epoch, header.base_sequence)


def test_batches_of_a_producer_without_transactions_are_not_transactional() -> None:
    batches = Accumulator(AccumulatorSettings(), FIRST)
    add(batches)
    assert not read_header(batches.take(A)[1]).is_transactional


def test_a_new_producer_identity_restarts_the_sequence_of_every_partition_at_0_even_if_idle() -> None:
    batches = accumulator()
    for place in (A, B):
        add(batches, place)
        batch, head = sent(batches, place)
        assert head == (4000, 3, 0)
        batches.answered(batch, ErrorCode.NONE, base_offset=0)
    add(batches, A)
    assert sent(batches, A)[1] == (4000, 3, 1)
    with pytest.raises(InvariantError):
        batches.renew(SECOND)
    batches.answered(next(batches.pending()), ErrorCode.NONE, base_offset=1)
    batches.renew(SECOND)
    for place in (A, B):
        add(batches, place)
        assert sent(batches, place)[1] == (4000, 4, 0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_RECORD,
    ],
)
def test_after_a_rejected_transactional_batch_nothing_is_sent_until_the_producer_has_a_new_epoch(
    code: ErrorCode,
) -> None:
    batches = accumulator()
    add(batches)
    batch, _ = sent(batches)
    add(batches)
    batches.answered(batch, code)
    assert isinstance(batch.outcome, DeliveryFailed)
    assert batches.identity == FIRST
    assert batches.ready(10**9) == [], "its sequence has a gap, until the transaction is aborted"
    assert batches.fail_waiting(ErrorCode.INVALID_RECORD, "aborted") == (1, False)
    batches.renew(SECOND)
    add(batches)
    assert sent(batches)[1] == (4000, 4, 0)


def test_an_out_of_order_batch_behind_an_unacknowledged_batch_is_retried_with_the_same_sequence() -> None:
    batches = accumulator()
    add(batches)
    batches.answered(sent(batches)[0], ErrorCode.NONE, base_offset=0)  # so that two batches may be in flight
    add(batches)
    first, _ = sent(batches)
    add(batches)
    second, head = sent(batches)
    batches.answered(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert second.outcome is None
    batches.answered(first, ErrorCode.NONE, base_offset=1)
    assert sent(batches)[1] == head


def test_fail_waiting_fails_all_waiting_batches_frees_memory_and_returns_whether_any_was_sent() -> None:
    batches = accumulator(batch_bytes=80)
    for _ in range(3):
        add(batches, A, b"x" * 30)
    first, _ = sent(batches)
    waiting = [batch for batch in batches.pending() if batch is not first]
    assert batches.fail_waiting(ErrorCode.INVALID_RECORD, "aborted") == (len(waiting), False)
    assert [isinstance(b.outcome, DeliveryFailed) and b.outcome.certain for b in waiting] == [True] * len(waiting)
    assert first.outcome is None
    batches.answered(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert batches.fail_waiting(ErrorCode.INVALID_RECORD, "aborted") == (1, True)
    assert batches.buffered_bytes == 0
    assert batches.partitions() == []


def test_open_batches_do_not_wait_for_linger_ms_when_their_transaction_ends() -> None:
    batches = accumulator(linger_ms=1_000)
    add(batches)
    assert batches.ready(0) == []
    batches.close_waiting()
    assert batches.ready(0) == [A]


def test_produce_requests_before_transaction_version_2_have_at_most_version_11() -> None:
    assert produce_version(13, {"orders": None}) == 12
    assert produce_version(13, {"orders": None}, is_before_v2_transactions=True) == 11
    assert produce_version(9, {"orders": None}, is_before_v2_transactions=True) == 9
