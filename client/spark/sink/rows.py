"""Pure: the rows that Spark hands to a sink → columns to encode, with the topic and partition that each row names.

The columns are those of Spark's own Kafka sink: `value` (required), `key`, `headers`, `topic`, `partition`; `timestamp`
as well. Columns of other names are ignored, as there. Rows are counted from 0 in each Spark partition, and an error
about a row names its number.
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
"""Of a row that leaves the choice to the partitioner."""
PIECE_BYTES_MAX = 8 * 1024 * 1024
"""Rows are handled in pieces of about this size, which bounds the memory that their copies take."""
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
    """A frame or a row that cannot be written; the text says which, and what to do."""


class SinkColumns(NamedTuple):
    """Positions of the sink's columns in the rows; None where there is no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None


class Rows(NamedTuple):
    """Rows in their order. `topics`: the names that occur; `topic_of` and `partition_of` for each row: the index of its
    topic there, and the partition that it names or NO_PARTITION."""

    columns: Columns
    topics: Sequence[str]
    topic_of: Ints
    partition_of: Ints


class MarkOrigin(NamedTuple):
    """Of which write a task's records are: the parts of a mark before the row's number."""

    query_id: str
    batch_id: int
    partition: int


MARK_HEADER = "spark"
"""Name of the header that `markRecords` adds: query id, batch id, Spark partition and row number, joined by `/`."""


def find_columns(schema: Iterable[tuple[str, str]], topic: str | None) -> SinkColumns:
    """Where the sink's columns are among (name, Spark's simple type) of a frame. `topic`: of the option, else None.

    RowError for a required column that is missing, a wrong type, a name that occurs twice."""
    fields = list(schema)
    names = [name for name, _ in fields]
    places: dict[str, int] = {}
    for at, (name, kind) in enumerate(fields):
        if name not in _TYPES:
            continue
        if name in places:
            raise RowError(f"the frame has two columns `{name}`; select one of them")
        if kind.split(" ")[0] not in _TYPES[name]:  # a string may have a collation
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
    """The batch in slices of about PIECE_BYTES_MAX, and of one row at least."""
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
) -> Rows:
    """The rows of a batch, the first of which is row `first_row` of its Spark partition. `now_ms`: the time of rows
    that have none. `origin`: mark each record with it. RowError for a row that cannot be written."""
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
    return Rows(
        encoded,
        names,
        topic_of,
        _partitions(None if columns.partition is None else batch.column(columns.partition), batch.num_rows, first_row),
    )


def encode_marks(origin: MarkOrigin, first_row: int, rows: int) -> pa.BinaryArray:
    """The encoded header `spark` of each row: QUERY/BATCH/PARTITION/ROW."""
    numbers = pc.cast(pa.array(np.arange(first_row, first_row + rows)), pa.string()).cast(pa.binary())
    start = pa.scalar(f"{origin.query_id}/{origin.batch_id}/{origin.partition}/".encode(), pa.binary())
    values = pc.binary_join_element_wise(start, numbers, pa.scalar(b"", pa.binary()))
    return encode_header(MARK_HEADER.encode(), values)


def as_bytes(column: pa.Array) -> pa.BinaryArray:
    """A column of strings or bytes of any layout, as `binary`."""
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
    """Count and checksum of rows in their order; how Spark cut them into Arrow batches does not change it."""

    def __init__(self) -> None:
        self.rows = 0
        self._parts: dict[str, int] = {}

    def update(self, batch: pa.RecordBatch, columns: SinkColumns) -> None:
        """Take in the rows of a batch: the columns that are written."""
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
        """An unsigned 32-bit number."""
        checked = 0
        for name in sorted(self._parts):
            checked = crc32c(name.encode() + struct.pack(">I", self._parts[name]), checked)
        return checked
