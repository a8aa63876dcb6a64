"""The column encoder of the Spark sink, checked with the record codec that decodes record by record."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.batch import NO_IDENTITY, ProducerIdentity
from kraft.client.core.partitioner import murmur2
from kraft.client.spark.sink.batches import OpenBatches, SealedBatch, SequenceLost
from kraft.client.spark.sink.column_encoder import (
    Columns,
    OpenRecords,
    RowPlacement,
    append,
    encode_headers,
    record_sizes_max,
)
from kraft.client.spark.sink.partition_choice import RUN_BYTES, PartitionChoice, murmur2_of
from kraft.client.spark.sink.rows import MarkOrigin, SinkRows, encode_marks
from kraft.wire.records import BATCH_HEADER_BYTES, Record, check_crc, decode_batch, read_header
from kraft.wire.records.compression import Compression

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SIZES = (0, 1, 12, 63, 64, 127, 128, 8_191, 8_192, 70_000)
contents = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from(SIZES).map(lambda size: b"x" * size))
times = st.one_of(st.integers(-1, 2**41), st.sampled_from([-1, 0, 2**41, 2**62]))
headers = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=9), contents), max_size=3))
rows_of_all_kinds = st.lists(st.tuples(contents, contents, headers, times), min_size=1, max_size=30)


def columns_of(rows: list[tuple[Any, Any, Any, int]], *, with_keys: bool = True, with_headers: bool = True) -> Columns:
    keys, values, lists, stamps = zip(*rows, strict=True)
    entries = [None if one is None else [{"key": key, "value": value} for key, value in one] for one in lists]
    return Columns(
        pa.array(keys, pa.binary()) if with_keys else None,
        pa.array(values, pa.binary()),
        encode_headers(pa.array(entries, HEADERS)) if with_headers else None,
        np.array(stamps, np.int64),
    )


def sealed(records: OpenRecords, **how: Any) -> SealedBatch:
    return SealedBatch(("topic", 0), records, now_ms=0, deadline_ms=1, **how)


def decoded(records: OpenRecords) -> list[Record]:
    return decode_batch(sealed(records).encode(NO_IDENTITY, Compression.NONE))


def expected(rows: list[tuple[Any, Any, Any, int]], offset: int = 0) -> list[Record]:
    return [
        Record(offset + at, time, key, value, tuple(lists or ())) for at, (key, value, lists, time) in enumerate(rows)
    ]


@given(rows_of_all_kinds, st.integers(0, 30))
def test_sink_encoder_rows_appended_in_two_parts_decode_to_the_same_rows(rows: list[Any], cut: int) -> None:
    cut = min(cut, len(rows))
    records = OpenRecords()
    for part in (rows[:cut], rows[cut:]):
        if part:
            append(columns_of(part), [RowPlacement(records, 0, len(part))])
    assert decoded(records) == expected(rows)


@given(rows_of_all_kinds)
def test_sink_encoder_rows_without_keys_or_headers_decode_without_them(rows: list[Any]) -> None:
    records = OpenRecords()
    append(columns_of(rows, with_keys=False, with_headers=False), [RowPlacement(records, 0, len(rows))])
    assert decoded(records) == expected([(None, value, None, time) for _, value, _, time in rows])


@given(rows_of_all_kinds)
def test_sink_encoder_size_bound_is_at_least_the_record_size_and_at_most_14_bytes_more(rows: list[Any]) -> None:
    columns = columns_of(rows)
    bounds = record_sizes_max(columns)
    for row, bound in enumerate(bounds):
        records = OpenRecords()
        indices = np.array([row], np.int64)
        append(columns.taken(indices), [RowPlacement(records, 0, 1)])
        size = len(records.buffer) - BATCH_HEADER_BYTES
        assert size <= bound <= size + 14


def test_sink_encoder_encodes_only_the_rows_of_sliced_columns() -> None:
    rows: list[Any] = [(b"k%d" % n, b"v" * n, [("h", b"%d" % n)] if n % 3 else None, n) for n in range(50)]
    keys = pa.array([row[0] for row in rows], pa.binary()).slice(7, 20)
    values = pa.array([row[1] for row in rows], pa.binary()).slice(7, 20)
    entries = [None if row[2] is None else [{"key": k, "value": v} for k, v in row[2]] for row in rows]
    lists = pa.array(entries, HEADERS).slice(7, 20)
    records = OpenRecords()
    append(Columns(keys, values, encode_headers(lists), np.arange(7, 27)), [RowPlacement(records, 0, 20)])
    assert decoded(records) == expected(rows[7:27])


def test_sink_encoder_batch_of_a_million_records_has_consecutive_offsets() -> None:
    records = OpenRecords()
    for _ in range(10):
        columns = Columns(None, pa.array([b"v"] * 100_000, pa.binary()), None, np.zeros(100_000, np.int64))
        append(columns, [RowPlacement(records, 0, 100_000)])
    assert [record.offset for record in decoded(records)] == list(range(1_000_000))


def test_sink_encoder_rejects_a_header_without_a_name() -> None:
    with pytest.raises(ValueError, match="a header has no name"):
        encode_headers(pa.array([[{"key": None, "value": b"v"}]], HEADERS))


def test_sink_encoder_puts_marks_before_the_headers_of_each_row() -> None:
    lists = pa.array([None, [{"key": "a", "value": None}]], HEADERS)
    marks = encode_marks(MarkOrigin("query", 3, 1), 9, 2)
    for given_lists, rest in ((lists, [(), (("a", None),)]), (None, [(), ()])):
        records = OpenRecords()
        block = encode_headers(given_lists, marks)
        values = pa.array([b"v", b"w"], pa.binary())
        append(Columns(None, values, block, np.zeros(2, np.int64)), [RowPlacement(records, 0, 2)])
        found = [record.headers for record in decoded(records)]
        assert found == [(("spark", b"query/3/1/9"), *rest[0]), (("spark", b"query/3/1/10"), *rest[1])]


# batches


@pytest.mark.parametrize("codec", list(Compression))
def test_sealed_batch_decodes_to_its_producer_identity_and_records_for_each_codec(codec: Compression) -> None:
    rows: list[Any] = [(None, b"value %d" % n, None, 1_000 + n) for n in range(200)]
    records = OpenRecords()
    append(columns_of(rows), [RowPlacement(records, 0, len(rows))])
    batch = sealed(records, compression=codec, transaction=ProducerIdentity(7, 2))
    batch.base_sequence = 40
    encoded = batch.encode(ProducerIdentity(7, 2), codec)
    header = read_header(encoded)
    assert check_crc(encoded, 0, header)
    assert header.compression is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 2, 40, 239)
    assert (header.base_timestamp, header.max_timestamp, header.is_transactional) == (1_000, 1_199, True)
    assert decode_batch(encoded) == expected(rows)
    assert batch.size_bytes == len(encoded)


def test_sealed_batch_of_a_transaction_rejects_another_producer_identity() -> None:
    records = OpenRecords()
    append(columns_of([(None, b"v", None, 0)]), [RowPlacement(records, 0, 1)])
    batch = sealed(records, transaction=ProducerIdentity(7, 2))
    with pytest.raises(SequenceLost):
        batch.encode(ProducerIdentity(7, 3), Compression.NONE)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_sealed_batch_keeps_record_order_when_split(codec: Compression) -> None:
    rows: list[Any] = [(b"k", b"v" * (n % 50), [("h", b"%d" % n)], n) for n in range(101)]
    records = OpenRecords()
    append(columns_of(rows), [RowPlacement(records, 0, len(rows))])
    batch = sealed(records, compression=codec, transaction=ProducerIdentity(1, 1))
    batch.base_sequence = 5
    parts = batch.split(1_000, codec)
    assert all(part.record_count <= len(rows) // 2 + 1 for part in parts)
    found = [record for part in parts for record in decode_batch(part.encode(ProducerIdentity(1, 1), codec))]
    assert [record._replace(offset=0) for record in found] == [one._replace(offset=0) for one in expected(rows)]
    assert all(read_header(part.encode(ProducerIdentity(1, 1), codec)).is_transactional for part in parts)


class Kept:
    def __init__(self) -> None:
        self.batches: list[tuple[tuple[str, int], OpenRecords]] = []

    def send(self, topic_partition: tuple[str, int], records: OpenRecords) -> None:
        self.batches.append((topic_partition, records))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 300)), max_size=40),
        max_size=6,
    )
)
def test_open_batches_keep_row_order_per_partition_and_respect_the_size_limit(chunks: list[Any]) -> None:
    kept = Kept()
    filling = OpenBatches(kept, batch_bytes=600, open_bytes_max=3_000)
    names = ["a", "b", "c"]
    wanted: dict[tuple[str, int], list[bytes]] = {}
    number = 0
    for chunk in chunks:
        values = []
        for topic, partition, size in chunk:
            values.append(b"%06d" % number + b"x" * size)
            wanted.setdefault((names[topic], partition), []).append(values[-1])
            number += 1
        columns = Columns(None, pa.array(values, pa.binary()), None, np.full(len(values), 5, np.int64))
        targets = np.array([(topic, partition) for topic, partition, _ in chunk], np.int64).reshape(-1, 2)
        filling.add(columns, names, targets[:, 0], targets[:, 1])
        open_bytes = sum(filling.open_bytes(name, partition) for name in names for partition in range(4))
        assert open_bytes <= 3_000
    filling.finish()
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic_partition, records in kept.batches:
        assert len(records.buffer) <= 600 or records.count == 1
        found.setdefault(topic_partition, []).extend(record.value or b"" for record in decoded(records))
    assert found == wanted


def test_open_batches_put_an_oversized_record_into_its_own_batch() -> None:
    kept = Kept()
    filling = OpenBatches(kept, batch_bytes=1_000, open_bytes_max=10_000)
    values = pa.array([b"a", b"b" * 5_000, b"c"], pa.binary())
    zeros = np.zeros(3, np.int64)
    filling.add(Columns(None, values, None, zeros), ["t"], zeros, zeros)
    filling.finish()
    assert [records.count for _, records in kept.batches] == [1, 1, 1]


# partitions


@given(st.lists(st.one_of(st.none(), st.binary(max_size=300)), max_size=40), st.integers(0, 5))
def test_murmur2_of_a_column_of_keys_equals_the_hash_of_each_key(keys: list[bytes | None], start: int) -> None:
    column = pa.array(keys, pa.binary()).slice(start)
    assert murmur2_of(column).tolist() == [murmur2(key or b"") for key in keys[start:]]


def choice(partitions: dict[str, int]) -> PartitionChoice:
    drawn = iter(range(10_000))
    return PartitionChoice(
        partitions.__getitem__,
        lambda topic: range(partitions[topic]),
        lambda bound: next(drawn) % bound,
        lambda topic, partition: 0,
    )


def rows_of(keys: list[bytes | None], named: list[int]) -> SinkRows:
    columns = Columns(
        pa.array(keys, pa.binary()), pa.array([b"v"] * len(keys), pa.binary()), None, np.zeros(len(keys), np.int64)
    )
    return SinkRows(columns, ["t"], np.zeros(len(keys), np.int64), np.array(named, np.int64))


def test_partition_column_overrides_the_key_and_a_key_overrides_the_sticky_partition() -> None:
    rows = rows_of([b"key", b"key", None, None], [2, -1, 4, -1])
    chosen = choice({"t": 5}).choose(rows, np.full(4, 10), 0).tolist()
    assert chosen == [2, (murmur2(b"key") & 0x7FFFFFFF) % 5, 4, 0]


def test_rows_without_keys_switch_partition_after_a_run_of_bytes() -> None:
    chooser = choice({"t": 3})
    chosen: list[int] = []
    for first in (0, 25):
        sizes = np.full(25, RUN_BYTES // 10)
        chosen += chooser.choose(rows_of([None] * 25, [-1] * 25), sizes, first).tolist()
    runs = [chosen[0]]
    for before, after in pairwise(chosen):
        if before != after:
            runs.append(after)
    assert runs == [0, 1, 2, 0, 1]
    assert all(chosen.count(partition) >= 11 for partition in range(3))
