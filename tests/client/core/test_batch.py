"""A producer's batch encodes its records byte for byte in Kafka's format, and reports its outcome to the deliveries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.batch import NO_IDENTITY, OutgoingBatch, ProducerIdentity, record_bytes_max
from kraft.client.core.records import DeliveryFailed, DeliveryReport
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import BATCH_HEADER_BYTES, Record, check_crc, decode_batch, encode_batch, read_header
from kraft.wire.records.compression import Compression

TP = ("orders", 3)
ME = ProducerIdentity(7, 2)
optional_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3).map(tuple)
records = st.lists(st.tuples(optional_bytes, optional_bytes, headers, st.integers(0, 2**41)), min_size=1, max_size=8)


def filled(*values: bytes) -> OutgoingBatch:
    batch = OutgoingBatch(TP, 0, 1_000)
    for value in values:
        batch.add(None, value, (), 5_000)
    return batch


@given(records, st.sampled_from(list(Compression)))
def test_a_producer_batch_decodes_to_the_same_records_as_a_batch_of_the_general_codec(
    given_records: list, compression: Compression
) -> None:
    batch = OutgoingBatch(TP, 0, 1_000)
    for record in given_records:
        batch.add(*record)
    batch.base_sequence = 40
    expected = encode_batch(
        [Record(0, time, key, value, heads) for key, value, heads, time in given_records],
        compression=compression,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
    )
    data = batch.encode(ME, compression)
    assert decode_batch(data) == decode_batch(expected)
    assert read_header(data) == read_header(bytes(expected))
    assert check_crc(data, 0, read_header(data))


@given(records)
def test_a_producer_batch_has_its_exact_size_before_encoding_and_never_exceeds_the_upper_bound(
    given_records: list,
) -> None:
    batch = OutgoingBatch(TP, 0, 1_000)
    bound = BATCH_HEADER_BYTES
    for key, value, heads, time in given_records:
        batch.add(key, value, heads, time)
        bound += record_bytes_max(key, value, heads)
    size = batch.size_bytes
    assert len(batch.encode(NO_IDENTITY, Compression.NONE)) == size <= bound


def test_a_producer_batch_can_be_encoded_again_with_another_identity() -> None:
    batch = filled(b"a", b"b")
    first = batch.encode(ME, Compression.GZIP)
    batch.base_sequence = 9
    again = batch.encode(ProducerIdentity(7, 3), Compression.GZIP)
    assert (read_header(again).producer_epoch, read_header(again).base_sequence) == (3, 9)
    assert decode_batch(again) == decode_batch(first)


def test_every_delivery_reports_its_own_offset() -> None:
    batch = filled(b"a", b"b")
    batch.settle((100, -1))
    assert [placed.outcome for placed in batch.deliveries] == [
        DeliveryReport("orders", 3, 100, 5_000),
        DeliveryReport("orders", 3, 101, 5_000),
    ]


@pytest.mark.parametrize(("base", "offset"), [(-1, -1), (4, 5)])
def test_a_delivery_reports_the_log_append_time_even_if_its_offset_is_unknown(base: int, offset: int) -> None:
    batch = filled(b"a", b"b")
    batch.settle((base, 9_999))
    assert batch.deliveries[1].outcome == DeliveryReport("orders", 3, offset, 9_999)


def test_only_the_first_outcome_that_is_set_for_a_producer_batch_has_an_effect() -> None:
    batch = filled(b"a")
    failure = DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, "late", certain=False)
    batch.settle(failure)
    batch.settle((7, -1))
    assert batch.deliveries[0].outcome is failure


def test_splitting_a_batch_keeps_record_order_and_moves_its_deliveries() -> None:
    values = [b"%d" % number for number in range(7)]
    batch = filled(*values)
    held = list(batch.deliveries)
    told: list[str] = []
    batch.when_settled(lambda: told.append("moved"))
    parts = batch.split(10**6, Compression.NONE)
    assert told == ["moved"]
    assert all(2 * part.record_count <= len(values) + 1 for part in parts)
    assert [r.value for part in parts for r in decode_batch(part.encode(ME, Compression.NONE))] == values
    for number, part in enumerate(parts):
        part.settle((number * 1000, -1))
    offsets = [placed.outcome.offset for placed in held]  # type: ignore[union-attr]
    assert offsets == [number * 1000 + at for number, part in enumerate(parts) for at in range(part.record_count)]
