"""Tests of the rows that Spark passes to the sink: the columns used, rejected rows, and the checksum of a repeated
batch.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kraft.client.spark.sink.marks import Mark, parse_mark
from kraft.client.spark.sink.rows import Checksum, RowError, SinkColumns, find_columns, pieces, read_rows

HEADERS = "array<struct<key:string,value:binary>>"
ALL = [
    ("offset", "bigint"),
    ("value", "binary"),
    ("key", "string collate UNICODE"),
    ("topic", "string"),
    ("partition", "int"),
    ("timestamp", "timestamp"),
    ("headers", HEADERS),
]


def test_sink_finds_its_columns_in_a_dataframe_with_other_columns() -> None:
    assert find_columns(ALL, None) == SinkColumns(value=1, key=2, headers=6, topic=3, partition=4, timestamp=5)
    assert find_columns(ALL, "orders").topic is None


@pytest.mark.parametrize(
    ("schema", "topic", "text"),
    [
        ([("key", "string")], "t", r"no column `value`; its columns: key"),
        ([("Value", "string")], "t", r"is it `Value`\?"),
        ([], "t", "its columns: none"),
        ([("value", "int")], "t", r"column `value` is INT, expected STRING or BINARY: cast it"),
        ([("value", "string")], None, "set the option `topic`, or add a column `topic`"),
        ([("value", "string"), ("partition", "bigint")], "t", "column `partition` is BIGINT, expected INT"),
        ([("value", "string"), ("timestamp", "timestamp_ntz")], "t", "`timestamp` is TIMESTAMP_NTZ"),
        ([("value", "string"), ("headers", "string")], "t", "`headers` is STRING, expected ARRAY<STRUCT"),
        ([("value", "string"), ("value", "string")], "t", "two columns `value`"),
    ],
)
def test_sink_rejects_missing_mistyped_or_repeated_columns_with_the_reason(
    schema: list[tuple[str, str]], topic: str | None, text: str
) -> None:
    with pytest.raises(RowError, match=text):
        find_columns(schema, topic)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def read(rows: pa.RecordBatch, columns: SinkColumns, topic: str | None = "t") -> Any:
    return read_rows(rows, columns, topic=topic, first_row=100, now_ms=5_000)


def test_sink_reads_strings_topics_partitions_and_times_unchanged() -> None:
    stamps = pa.array([1_999, None, -1], pa.timestamp("us", tz="UTC"))
    rows = batch(
        value=pa.array(["ä", None, "c"]),
        topic=pa.array(["a", "b", "a"]),
        partition=pa.array([3, None, 0], pa.int32()),
        timestamp=stamps,
    )
    found = read(rows, SinkColumns(value=0, topic=1, partition=2, timestamp=3), None)
    assert found.columns.values.to_pylist() == ["ä".encode(), None, b"c"]
    assert [found.topics[index] for index in found.topic_of] == ["a", "b", "a"]
    assert found.partition_of.tolist() == [3, -1, 0]
    assert found.columns.timestamps.tolist() == [1, 5_000, -1]
    assert found.columns.keys is None
    assert found.columns.headers is None


@pytest.mark.parametrize("layout", [pa.large_string(), pa.string_view(), pa.large_binary()])
def test_sink_reads_strings_and_bytes_in_every_arrow_layout(layout: Any) -> None:
    found = read(batch(value=pa.array(["a", None], pa.string()).cast(layout)), SinkColumns(value=0))
    assert found.columns.values.to_pylist() == [b"a", None]


def test_sink_error_for_a_row_without_a_topic_gives_the_row_number() -> None:
    rows = batch(value=pa.array(["a", "b"]), topic=pa.array(["t", None]))
    with pytest.raises(RowError, match="row 101 has no topic"):
        read(rows, SinkColumns(value=0, topic=1), None)


def test_sink_error_for_a_row_with_a_negative_partition_gives_the_row_number() -> None:
    rows = batch(value=pa.array(["a", "b"]), partition=pa.array([0, -2], pa.int32()))
    with pytest.raises(RowError, match="row 101 names partition -2"):
        read(rows, SinkColumns(value=0, partition=1))


def test_sink_error_for_a_header_without_a_name_gives_the_row_numbers() -> None:
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    rows = batch(value=pa.array(["a"]), headers=pa.array([[{"key": None, "value": b"v"}]], kind))
    with pytest.raises(RowError, match="rows 100 to 100: a header has no name"):
        read(rows, SinkColumns(value=0, headers=1))


def test_sink_splits_large_arrow_batches_into_pieces_without_losing_rows() -> None:
    rows = batch(value=pa.array([b"%04d" % n + b"x" * 100_000 for n in range(300)]))
    parts = list(pieces(rows))
    assert len(parts) >= 3
    assert pa.Table.from_batches(parts).column(0).to_pylist() == rows.column(0).to_pylist()


CHECKED = SinkColumns(value=0, key=1, headers=2, partition=3, timestamp=4)


def checked(rows: list[dict[str, Any]], *cuts: int) -> tuple[int, int]:
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    whole = batch(
        value=pa.array([row.get("value") for row in rows], pa.binary()),
        key=pa.array([row.get("key") for row in rows], pa.string()),
        headers=pa.array([row.get("headers") for row in rows], kind),
        partition=pa.array([row.get("partition") for row in rows], pa.int32()),
        timestamp=pa.array([row.get("timestamp") for row in rows], pa.timestamp("us", tz="UTC")),
    )
    checksum = Checksum()
    for start, end in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        checksum.update(whole.slice(start, end - start), CHECKED)
    return checksum.rows, checksum.value


ROWS: list[dict[str, Any]] = [
    {"value": b"ab", "key": "c", "headers": [{"key": "h", "value": b"v"}], "partition": 1, "timestamp": 7},
    {"value": None, "key": None, "headers": None, "partition": None, "timestamp": None},
    {"value": b"", "key": "d", "headers": [], "partition": 0, "timestamp": 8},
    {"value": b"abc", "key": "", "headers": [{"key": "i", "value": None}], "partition": 0, "timestamp": 9},
]


def test_sink_checksum_is_independent_of_arrow_batch_boundaries() -> None:
    assert checked(ROWS) == checked(ROWS, 1) == checked(ROWS, 1, 2, 3) == checked(ROWS, 0, 3)


def test_sink_checksum_of_empty_batches_equals_that_of_no_batch() -> None:
    offsetless = pa.Array.from_buffers(pa.binary(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    for values in (pa.array([], pa.binary()), offsetless):
        checksum = Checksum()
        checksum.update(batch(value=values), SinkColumns(value=0))
        assert (checksum.rows, checksum.value) == (0, Checksum().value)


@pytest.mark.parametrize(
    "change",
    [
        {"value": b"a"},
        {"value": None},
        {"key": "d"},
        {"key": None},
        {"headers": [{"key": "h", "value": b"w"}]},
        {"headers": []},
        {"headers": None},
        {"partition": 2},
        {"timestamp": 8},
    ],
)
def test_checks_catch_a_replayed_row_that_differs_in_any_column(change: dict[str, Any]) -> None:
    changed = [{**ROWS[0], **change}, *ROWS[1:]]
    assert checked(changed) != checked(ROWS)


def test_checks_catch_replayed_rows_in_another_order_or_with_shifted_field_boundaries() -> None:
    assert checked([ROWS[1], ROWS[0], *ROWS[2:]]) != checked(ROWS)
    assert checked([{"value": b"ab"}, {"value": b"c"}]) != checked([{"value": b"a"}, {"value": b"bc"}])
    assert checked([{"value": b""}]) != checked([{"value": None}])


def test_mark_header_is_parsed_and_other_values_are_rejected() -> None:
    assert parse_mark(b"0b7f/3/1/250") == Mark("0b7f", 3, 1, 250)
    with pytest.raises(ValueError, match="is not a mark"):
        parse_mark(b"3/1")
