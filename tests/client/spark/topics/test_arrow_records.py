"""Tests of the Arrow decoder of topic records on valid responses, compared with the general record codec."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.spark.topics.arrow_records import COLUMNS, Walked, arrow_batches, schema_of, to_arrow
from kraft.seam import WireError
from kraft.wire.records import Compression, Record, encode_batch, iter_headers
from tests.client.spark.topics.record_logs import (
    Log,
    logs,
    plain_batch,
    rows_of_arrow,
    rows_of_log,
    walked,
)


@given(logs())
def test_arrow_decoder_gives_the_same_rows_as_the_general_record_codec(log: Log) -> None:
    answer = walked(bytes(log.data))
    assert rows_of_arrow(to_arrow([answer], COLUMNS)) == rows_of_log(log.data)
    assert answer.next_offset == (log.next_offset if log.data else 0)


@given(logs(), st.data())
def test_arrow_decoder_of_a_range_gives_only_rows_within_it(log: Log, data: st.DataObject) -> None:
    offsets = [row[4] for row in rows_of_log(log.data)] or [100]
    start = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(-1, 1))
    end = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(-1, 1))
    answer = walked(log.data, start, end)
    rows = rows_of_log(log.data, start, end)
    assert rows_of_arrow(to_arrow([answer], COLUMNS)) == rows
    assert [row for batch in arrow_batches([answer], COLUMNS, rows_max=2) for row in rows_of_arrow(batch)] == rows


@given(logs())
def test_arrow_decoder_with_read_committed_skips_aborted_transactions_up_to_their_markers(log: Log) -> None:
    answer = walked(log.data, aborted=list(reversed(log.aborted)))
    assert rows_of_arrow(to_arrow([answer], COLUMNS)) == log.committed


@given(logs(), st.data())
def test_arrow_decoder_gives_the_same_rows_for_several_fetch_responses_together(log: Log, data: st.DataObject) -> None:
    answers: list[Walked] = []
    position = 0
    for start, header in iter_headers(log.data):
        if start + header.size_bytes == len(log.data) or data.draw(st.booleans()):
            piece = memoryview(log.data)[position : start + header.size_bytes]
            answers.append(walked(piece, answers[-1].next_offset if answers else 0))
            position = start + header.size_bytes
    assert rows_of_arrow(to_arrow(answers, COLUMNS)) == rows_of_log(log.data)
    batches = list(arrow_batches(answers, COLUMNS, rows_max=3, bytes_max=50))
    assert [row for batch in batches for row in rows_of_arrow(batch)] == rows_of_log(log.data)
    assert all(0 < batch.num_rows <= 3 for batch in batches)


def test_arrow_decoder_joins_small_fetch_responses_into_one_batch() -> None:
    pieces = [plain_batch([b"%d" % number, b""], base_offset=2 * number) for number in range(20)]
    answers = [walked(piece, 2 * number) for number, piece in enumerate(pieces)]
    assert rows_of_arrow(to_arrow(answers, COLUMNS)) == rows_of_log(b"".join(pieces))
    assert [batch.num_rows for batch in arrow_batches(answers, COLUMNS)] == [40]


@given(logs(), st.permutations(COLUMNS), st.integers(1, len(COLUMNS)))
def test_arrow_decoder_gives_any_subset_of_columns_with_the_same_values_in_the_requested_order(
    log: Log, columns: list[str], count: int
) -> None:
    whole = to_arrow([walked(log.data, 101)], COLUMNS)
    batch = to_arrow([walked(log.data, 101)], columns[:count])
    assert batch.equals(whole.select(columns[:count]))
    assert batch.schema.equals(schema_of(columns[:count]))


SIZES: dict[str, Callable[[int], int]] = {
    "equal": lambda index: 100,
    "varying": lambda index: 20 + index * 7919 % 160,
    "equal but for one": lambda index: 20_000 if index % 100 == 5 else 100,
    "growing in steps": lambda index: 30 + index // 40,
    "over 64 KiB now and then": lambda index: 70_000 if index % 150 == 149 else 5,
    "around twelve bytes": lambda index: index % 14,
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    ("batch_count", "record_count"), [(1, 1200), (3, 399), (60, 17), (130, 1)], ids=["one", "few", "many", "single"]
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4], ids=["plain", "lz4"])
def test_record_starts_found_by_fast_paths_equal_those_found_by_the_reference_loop(
    sizes: str, batch_count: int, record_count: int, codec: Compression
) -> None:
    size = SIZES[sizes]
    data = b"".join(
        plain_batch(
            [bytes([index % 251]) * size(index) for index in range(record_count + number % 3)],
            base_offset=number * 2000,
            compression=codec,
        )
        for number in range(batch_count)
    )
    assert rows_of_arrow(to_arrow([walked(data)], COLUMNS)) == rows_of_log(data)


def test_arrow_batches_have_about_equal_size_within_the_row_limit() -> None:
    data = b"".join(plain_batch([b"v"] * 10, base_offset=number * 10) for number in range(25))
    sizes = [batch.num_rows for batch in arrow_batches([walked(data)], COLUMNS, rows_max=100)]
    assert sizes == [90, 80, 80]
    large = plain_batch([b"v"] * 250)
    assert [batch.num_rows for batch in arrow_batches([walked(large)], ["value"], rows_max=100)] == [100, 100, 50]


def test_arrow_batch_ends_at_the_byte_limit() -> None:
    data = b"".join(plain_batch([b"v" * 1000], base_offset=number) for number in range(10))
    sizes = [batch.num_rows for batch in arrow_batches([walked(data)], COLUMNS, bytes_max=2500)]
    assert sizes == [3, 3, 3, 1]


def test_record_blocks_are_decompressed_only_when_their_arrow_batch_is_requested() -> None:
    good = encode_batch([Record(0, 1, None, b"v" * 100)], compression=Compression.ZSTD)
    bad = encode_batch([Record(0, 1, None, b"v" * 100)], base_offset=1, compression=Compression.ZSTD)
    bad[61:65] = bytes(4)
    batches = arrow_batches([walked(good + bad, check_crcs=False)], COLUMNS, rows_max=1)
    assert next(batches).num_rows == 1
    with pytest.raises(WireError, match="offset 1 on: the zstd block is damaged"):
        next(batches)


def test_offset_column_of_a_batch_without_gaps_is_built_without_reading_records() -> None:
    batch = bytearray(plain_batch([b"v"] * 5))
    batch[70:] = bytes(len(batch) - 70)
    answer = walked(batch, 101, 104, check_crcs=False)
    columns = ("timestampType", "offset", "partition", "topic")
    assert to_arrow([answer], columns).to_pylist() == [
        {"timestampType": 0, "offset": offset, "partition": 3, "topic": "orders"} for offset in (101, 102, 103)
    ]


def test_arrow_decoder_without_responses_gives_an_empty_table_and_no_batches() -> None:
    assert to_arrow([], COLUMNS).num_rows == to_arrow([walked(b"")], COLUMNS).num_rows == 0
    assert to_arrow([], COLUMNS).schema.equals(schema_of(COLUMNS))
    assert list(arrow_batches([walked(b"")], COLUMNS)) == []


def test_arrow_decoder_raises_key_error_for_an_unknown_column() -> None:
    with pytest.raises(KeyError, match="valeu"):
        to_arrow([], ["valeu"])


def test_walk_computes_the_next_offset_from_batch_headers_despite_gaps_and_markers() -> None:
    compacted = bytes(
        encode_batch([Record(0, 1, None, b"v"), Record(0, 1, None, b"v")], base_offset=10, offsets=[10, 19])
    )
    answer = walked(compacted, 10, 100)
    assert (answer.next_offset, answer.reached_end, answer.record_count) == (20, False, 2)
    assert answer.byte_count == len(compacted)
    assert walked(compacted, 10, 20).reached_end
    assert not walked(compacted, 10, 21).reached_end
    # offsets 20 to 29 are removed, as the batch after them shows
    later = bytes(encode_batch([Record(0, 1, None, b"v")], base_offset=30))
    answer = walked(compacted + later, 10, 25)
    assert (answer.next_offset, answer.reached_end, answer.record_count) == (25, True, 2)


def test_walk_skips_a_batch_that_ends_before_the_range() -> None:
    data = plain_batch([b"a", b"b"], base_offset=10) + plain_batch([b"c"], base_offset=12)
    answer = walked(data, 12)
    assert (answer.record_count, answer.whole_batches, answer.next_offset) == (1, 2, 13)
    assert to_arrow([answer], ["value"]).to_pylist() == [{"value": b"c"}]


def test_walk_of_a_response_with_only_earlier_batches_does_not_move_the_fetch_offset_back() -> None:
    answer = walked(plain_batch([b"a", b"b"], base_offset=10), 20)
    assert (answer.record_count, answer.whole_batches, answer.next_offset) == (0, 1, 20)


def test_walk_treats_a_transaction_as_aborted_from_the_batch_with_its_first_offset() -> None:
    records = [Record(0, 1, None, b"a"), Record(0, 1, None, b"b")]
    data = encode_batch(records, base_offset=10, producer_id=7, transactional=True)
    data += encode_batch(records, base_offset=12, producer_id=7, transactional=True)
    for first_offset, count in ((9, 0), (10, 0), (11, 0), (12, 2), (13, 2), (14, 4)):
        assert walked(data, 10, aborted=[(7, first_offset)]).record_count == count
    assert walked(data, 10, aborted=[(8, 10)]).record_count == 4


def test_walk_of_a_response_with_only_an_incomplete_batch_makes_no_progress() -> None:
    batch = plain_batch([b"a" * 100])
    for size in (0, 11, 60, 61, len(batch) - 1):
        answer = walked(batch[:size], 100)
        assert (answer.whole_batches, answer.next_offset, answer.record_count) == (0, 100, 0)


def test_arrow_decoder_keeps_the_earliest_and_latest_timestamps_of_spark_exact() -> None:
    limit = (2**63 - 1) // 1000
    for times in ([0, limit], [limit, 0], [limit, -limit], [-2, -1]):
        data = bytes(encode_batch([Record(0, time, None, None) for time in times]))
        column = to_arrow([walked(data)], ["timestamp"]).column(0).cast(pa.int64())
        assert column.to_pylist() == [None if time == -1 else time * 1000 for time in times]


def test_arrow_decoder_types_equal_those_that_spark_declares() -> None:
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema

    pair = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    spark_types = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(pair),
    }
    assert tuple(spark_types) == COLUMNS
    declared = types.StructType([types.StructField(name, kind) for name, kind in spark_types.items()])
    assert schema_of(COLUMNS).equals(to_arrow_schema(declared, timezone="UTC"))
    batch = to_arrow([walked(plain_batch([b"v"]))], COLUMNS)
    assert batch.schema.equals(to_arrow_schema(declared, timezone="UTC"))


def test_importing_the_arrow_decoder_loads_neither_trio_nor_pandas_nor_pyspark() -> None:
    program = """
import sys
from kraft.client.spark.topics.arrow_records import COLUMNS, to_arrow, walk
from kraft.wire.records import Record, encode_batch
data = bytes(encode_batch([Record(0, 1, b"k", b"v" * 20, (("h", None),)), Record(1, -1, None, b"")]))
answer = walk(data, topic="t", partition=0, start=1, end=2, aborted=None, check_crcs=True)
assert to_arrow([answer], COLUMNS).num_rows == 1
assert to_arrow([], COLUMNS).num_rows == 0
print(sorted({"trio", "pandas", "pyspark"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
