"""Pure: convert rows from Spark into columns to encode, and determine the topic and partition of each row.

The columns of a DataFrame are those of Spark's own Kafka sink: `value` (required), `key`, `headers`, `topic`,
`partition`; and also `timestamp`. As in Spark's sink, other columns are ignored. Rows are counted from 0 in each Spark
partition, and an error about a row gives its number.
Source: Spark's KafkaWriter (column names and types).
"""

from __future__ import annotations

import difflib
import struct
from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from kraft.client.spark.sink.column_encoder import Columns, Longs, data_of, encode_header, encode_headers, lengths

Ints = npt.NDArray[np.int64]

NO_PARTITION = -1
"""Partition number of a row that leaves the choice to the partitioner."""
PIECE_BYTES_MAX = 8 * 1024 * 1024
"""Approximate size of the pieces in which rows are handled, which limits the memory for copies of rows."""
_TEXT_OR_BYTES = ("string", "binary")
_HEADERS = ("array<struct<key:string,value:binary>>",)
_TYPES = MappingProxyType(
    {
        "value": _TEXT_OR_BYTES,
        "key": _TEXT_OR_BYTES,
        "headers": _HEADERS,
        "topic": ("string",),
        "partition": ("int",),
        "timestamp": ("timestamp",),
    }
)


class RowError(ValueError):
    """A DataFrame or row cannot be written. The message names it and says what to do."""


class SinkColumns(NamedTuple):
    """Position of each of the sink's columns in a row; None if the DataFrame does not have the column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None


class SinkRows(NamedTuple):
    """Rows as columns, in their original order. `topics`: the topic names that occur. `topic_of`: each row's index in
    `topics`. `partition_of`: the partition that each row names, or NO_PARTITION."""

    columns: Columns
    topics: Sequence[str]
    topic_of: Ints
    partition_of: Ints


class MarkOrigin(NamedTuple):
    """Identity of the write that a task's records come from: the parts of a mark before the row's number."""

    query_id: str
    batch_id: int
    partition: int


MARK_HEADER = "spark"
"""Name of the header that `markRecords` adds. Its value is the query id, batch id, Spark partition and row number,
joined by `/`."""


def find_columns(schema: Iterable[tuple[str, str]], topic: str | None) -> SinkColumns:
    """Find the sink's columns among the columns of a DataFrame, given as (name, Spark's simple type). `topic`: value of
    the option.

    Raises RowError for a missing required column, a wrong type, or a name that occurs twice."""
    fields = list(schema)
    names = [name for name, _ in fields]
    places: dict[str, int] = {}
    for at, (name, kind) in enumerate(fields):
        if name not in _TYPES:
            continue
        if name in places:
            raise RowError(f"the frame has two columns `{name}`; select one of them")
        if kind.split(" ")[0] not in _TYPES[name]:  # the simple type of a string may have a collation
            expected = " or ".join(one.upper() for one in _TYPES[name])
            raise RowError(f"column `{name}` is {kind.upper()}, expected {expected}: cast it before the write")
        places[name] = at
    if "value" not in places:
        raise RowError(
            f"the frame has no column `value`{_nearest('value', names)}; its columns: {', '.join(names) or 'none'}"
        )
    if topic is None and "topic" not in places:
        near = _nearest("topic", names)
        raise RowError(f"no topic is given{near}: set the option `topic`, or add a column `topic`")
    if topic is not None:
        places.pop("topic", None)
    return SinkColumns(**places)


def _nearest(name: str, names: Sequence[str]) -> str:
    lowered = {one.lower(): one for one in names}
    found = difflib.get_close_matches(name, lowered, 1, 0.7)
    return f" (is it `{lowered[found[0]]}`?)" if found else ""


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in slices of about PIECE_BYTES_MAX, each with at least one row."""
    rows = batch.num_rows
    step = max(1, rows if batch.nbytes <= PIECE_BYTES_MAX else rows * PIECE_BYTES_MAX // batch.nbytes)
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def read_rows(
    batch: pa.RecordBatch,
    columns: SinkColumns,
    *,
    topic: str | None,
    first_row: int,
    now_ms: int,
    origin: MarkOrigin | None = None,
) -> SinkRows:
    """Convert the rows of an Arrow batch. `first_row` is the number of the batch's first row in the Spark partition.
    `now_ms`: timestamp for rows that have none. `origin`: if given, each record gets a mark. Raises RowError for a row
    that cannot be written."""
    names, topic_of = (
        ([topic], np.zeros(batch.num_rows, np.int64))
        if topic is not None
        else (_topics(batch.column(columns.topic), first_row))
    )
    lists = None if columns.headers is None else batch.column(columns.headers)
    try:
        marks = None if origin is None else encode_marks(origin, first_row, batch.num_rows)
        headers = None if lists is None and marks is None else encode_headers(lists, marks)
    except ValueError as error:
        raise RowError(f"rows {first_row} to {first_row + batch.num_rows - 1}: {error}") from error
    encoded = Columns(
        None if columns.key is None else as_bytes(batch.column(columns.key)),
        as_bytes(batch.column(columns.value)),
        headers,
        _times(None if columns.timestamp is None else batch.column(columns.timestamp), batch.num_rows, now_ms),
    )
    return SinkRows(
        encoded,
        names,
        topic_of,
        _partitions(None if columns.partition is None else batch.column(columns.partition), batch.num_rows, first_row),
    )


def encode_marks(origin: MarkOrigin, first_row: int, rows: int) -> pa.BinaryArray:
    """Return each row's mark as an encoded header `spark`: QUERY/BATCH/PARTITION/ROW."""
    numbers = pc.cast(pa.array(np.arange(first_row, first_row + rows)), pa.string()).cast(pa.binary())
    start = pa.scalar(f"{origin.query_id}/{origin.batch_id}/{origin.partition}/".encode(), pa.binary())
    values = pc.binary_join_element_wise(start, numbers, pa.scalar(b"", pa.binary()))
    return encode_header(MARK_HEADER.encode(), values)


def as_bytes(column: pa.Array) -> pa.BinaryArray:
    """Convert a column of strings or bytes in any Arrow layout to type `binary`."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _topics(column: pa.Array, first_row: int) -> tuple[list[str], Ints]:
    if column.null_count:
        row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise RowError(f"row {row} has no topic: the column `topic` is null there, and the option `topic` is not given")
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)


def _times(column: pa.Array | None, rows: int, now_ms: int) -> Longs:
    if column is None:
        return np.full(rows, now_ms, np.int64)
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    filled = np.asarray(pc.fill_null(micros, now_ms * 1000), np.int64)
    return np.floor_divide(filled, 1000)


def _partitions(column: pa.Array | None, rows: int, first_row: int) -> Ints:
    if column is None:
        return np.full(rows, NO_PARTITION, np.int64)
    known = np.asarray(pc.fill_null(column, 0), np.int64)
    if len(known) and known.min() < 0:
        at = int(np.flatnonzero(known < 0)[0])
        raise RowError(f"row {first_row + at} names partition {known[at]}; partitions are counted from 0")
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, NO_PARTITION, known)


class Checksum:
    """Count and checksum of rows in their order. They do not depend on how Spark divided the rows into
    Arrow batches."""

    def __init__(self) -> None:
        self.rows = 0
        self._parts: dict[str, int] = {}

    def update(self, batch: pa.RecordBatch, columns: SinkColumns) -> None:
        """Add the rows of a batch. Only the columns that are written count."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        for name, place in zip(columns._fields, columns, strict=True):
            if place is not None:
                self._update(name, batch.column(place))

    def _update(self, name: str, column: pa.Array) -> None:
        if name == "headers":
            self._add("header counts", np.asarray(pc.fill_null(pc.list_value_length(column), -1), np.int64))
            entries = column.flatten()
            self._update("header names", pc.struct_field(entries, 0))
            self._update("header values", pc.struct_field(entries, 1))
        elif name in ("partition", "timestamp"):
            numbers = column if name == "partition" else column.cast(pa.int64())
            self._add(name, np.asarray(pc.fill_null(numbers, -1), np.int64))
        else:
            content = as_bytes(column)
            self._add(name, data_of(content))
            self._add(f"{name} sizes", lengths(content))

    def _add(self, name: str, data: Any) -> None:
        self._parts[name] = crc32c(memoryview(data).cast("B"), self._parts.get(name, 0))

    @property
    def value(self) -> int:
        """The checksum as an unsigned 32-bit number."""
        checked = 0
        for name in sorted(self._parts):
            checked = crc32c(name.encode() + struct.pack(">I", self._parts[name]), checked)
        return checked
