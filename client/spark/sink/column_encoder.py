"""Pure: encode columns of keys, values, headers and timestamps as record batches, for all rows of a table at once.

The fields between a record's key and value are built as one Arrow column of bytes, from a matrix of varints. Arrow then
joins the columns row by row, so that the result's data buffer holds the records one after another. No Python code runs
per record, and nothing here depends on topics or brokers. Invariant: a batch never exceeds its size limit, unless it
consists of a single record that exceeds the limit.
Source: KIP-98 (message format v2), KIP-82 (headers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft.wire.records import BATCH_HEADER_BYTES

Longs = npt.NDArray[np.int64]

VARINT_BYTES_MAX = 10
_NOTHING = pa.scalar(b"", pa.binary())
_NO_HEADERS = b"\0"


class Columns(NamedTuple):
    """Rows to encode, as columns of equal length. `keys`, `values` and `headers` are pa.BinaryArray; `timestamps` are
    in ms. `headers` contains encoded header blocks (`encode_headers`). `keys` or `headers` is None if no row has a key
    or header."""

    keys: Any
    values: Any
    headers: Any
    timestamps: Longs

    def taken(self, order: Longs) -> Columns:
        """Return the rows with these indices, in the order of the indices."""
        indices = pa.array(order)
        return Columns(
            None if self.keys is None else self.keys.take(indices),
            self.values.take(indices),
            None if self.headers is None else self.headers.take(indices),
            self.timestamps[order],
        )


class OpenRecords:
    """The records of a batch that is being filled. `buffer` has 61 bytes for the batch header, then the records."""

    __slots__ = ("base_timestamp", "buffer", "count", "max_timestamp")

    def __init__(self) -> None:
        self.buffer = bytearray(BATCH_HEADER_BYTES)
        self.count = 0
        self.base_timestamp = 0
        self.max_timestamp = -1


class RowPlacement(NamedTuple):
    """An assignment of rows to a batch: the rows `start` to `end` (exclusive) of the columns."""

    batch: OpenRecords
    start: int
    end: int


def lengths(column: Any) -> Longs:
    """Return the size of each value of a binary column; -1 for null."""
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    sizes = np.diff(offsets).astype(np.int64)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return sizes


def data_of(column: Any) -> memoryview:
    """Return the bytes of all values of a binary column, one after another."""
    if not len(column):
        return memoryview(b"")
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    data = column.buffers()[2]
    return memoryview(b"" if data is None else data)[int(offsets[0]) : int(offsets[-1])]


def encode_headers(lists: Any, marks: Any = None) -> Any:
    """Return the header block of each row: the number of headers, then their names and values.

    `lists`: an array of lists of structs (name, value) with string names; a null list counts as empty. None: no
    headers. `marks`: a pa.BinaryArray with one encoded header per row (`encode_header`), which is put before the
    others. Raises ValueError for a null name, which Kafka does not allow."""
    count = 0 if marks is None else 1
    if lists is None:
        return pc.binary_join_element_wise(pa.scalar(_varint(count), pa.binary()), marks, _NOTHING)
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
    entries = lists.flatten()
    names = _binary(pc.struct_field(entries, 0))
    if names.null_count:
        raise ValueError("a header has no name: the field `key` of the column `headers` is null")
    values = _binary(pc.struct_field(entries, 1))
    encoded = pc.binary_join_element_wise(
        _strings([_zigzag(lengths(names))]),
        names,
        _strings([_zigzag(lengths(values))]),
        values,
        _NOTHING,
        null_handling="replace",
    )
    starts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=starts[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(starts), encoded), _NOTHING)
    pieces = [_strings([_zigzag(counts + count)]), *([] if marks is None else [marks]), joined]
    return pc.binary_join_element_wise(*pieces, _NOTHING)


def encode_header(name: bytes, values: Any) -> Any:
    """Encode one header per value of a pa.BinaryArray without nulls, each with this name, in the form that it has in a
    record."""
    head = pa.scalar(_varint(len(name)) + name, pa.binary())
    return pc.binary_join_element_wise(head, _strings([_zigzag(lengths(values))]), values, _NOTHING)


def record_sizes_max(columns: Columns, base_timestamps: Sequence[int] = (), count_max: int = 0) -> Longs:
    """Return an upper bound of each record's encoded size, exact to a few bytes. `base_timestamps` and `count_max` are
    those of the batches to which the records may be appended."""
    rows = len(columns.values)
    if not rows:
        return np.zeros(0, np.int64)
    times = columns.timestamps
    low, high = min((int(times.min()), *base_timestamps)), max((int(times.max()), *base_timestamps))
    fixed = 1 + len(_varint(high - low)) + len(_varint(count_max + rows))
    sizes = fixed + _content_sizes(columns)
    return sizes + _varint_sizes(_zigzag(sizes))


def append(columns: Columns, places: Sequence[RowPlacement]) -> None:
    """Encode all rows, and append them to their batches. The placements are consecutive and cover all rows."""
    if not places:
        return
    rows = [place.end - place.start for place in places]
    for place in places:
        if not place.batch.count:
            place.batch.base_timestamp = int(columns.timestamps[place.start])
    times = columns.timestamps - np.repeat(np.array([place.batch.base_timestamp for place in places], np.int64), rows)
    first = np.array([place.batch.count - place.start for place in places], np.int64)
    offsets = np.arange(len(columns.values), dtype=np.int64) + np.repeat(first, rows)
    records = _encode(columns, times, offsets)
    ends = np.frombuffer(records.buffers()[1], np.int32, len(records) + 1, records.offset * 4)
    data = memoryview(records.buffers()[2])
    for place in places:
        batch = place.batch
        batch.buffer += data[int(ends[place.start]) : int(ends[place.end])]
        batch.count += place.end - place.start
        batch.max_timestamp = max(batch.max_timestamp, int(columns.timestamps[place.start : place.end].max()))


def _encode(columns: Columns, times: Longs, offsets: Longs) -> Any:
    """Encode the records as one binary column. `times` and `offsets` are relative to the base of each
    record's batch."""
    time_fields, offset_fields = _zigzag(times), _zigzag(offsets)
    sizes = 1 + _varint_sizes(time_fields) + _varint_sizes(offset_fields) + _content_sizes(columns)
    value_sizes = _zigzag(lengths(columns.values))
    head = [_zigzag(sizes), np.zeros(len(sizes), np.uint64), time_fields, offset_fields]
    if columns.keys is None:
        pieces = [_strings([*head, np.ones(len(sizes), np.uint64), value_sizes])]
    else:
        pieces = [_strings([*head, _zigzag(lengths(columns.keys))]), columns.keys, _strings([value_sizes])]
    headers = pa.scalar(_NO_HEADERS, pa.binary()) if columns.headers is None else columns.headers
    return pc.binary_join_element_wise(*pieces, columns.values, headers, _NOTHING, null_handling="replace")


def _content_sizes(columns: Columns) -> Longs:
    """Return the bytes that each record needs for its key and value, with their lengths, and for its headers."""
    value_sizes = lengths(columns.values)
    sizes = np.maximum(value_sizes, 0) + _varint_sizes(_zigzag(value_sizes))
    if columns.keys is None:
        sizes += 1
    else:
        key_sizes = lengths(columns.keys)
        sizes += np.maximum(key_sizes, 0) + _varint_sizes(_zigzag(key_sizes))
    sizes += len(_NO_HEADERS) if columns.headers is None else lengths(columns.headers)
    return sizes


def _zigzag(values: Longs) -> npt.NDArray[np.uint64]:
    zigzag: npt.NDArray[np.uint64] = ((values << 1) ^ (values >> 63)).view(np.uint64)
    return zigzag


def _varint(value: int) -> bytes:
    """Encode one signed number as a zig-zag varint."""
    return bytes(data_of(_strings([_zigzag(np.array([value], np.int64))])))


def _width(values: npt.NDArray[np.uint64]) -> int:
    return max(1, (int(values.max()).bit_length() + 6) // 7) if len(values) else 1


def _varint_sizes(values: npt.NDArray[np.uint64]) -> Longs:
    sizes = np.ones(len(values), np.int64)
    for more in range(1, _width(values)):
        sizes += values >= np.uint64(1 << 7 * more)
    return sizes


def _strings(fields: Sequence[npt.NDArray[np.uint64]]) -> Any:
    """Return a binary column with the varints of each row's fields, one after another."""
    widths = [_width(field) for field in fields]
    matrix = np.empty((len(fields[0]), sum(widths)), np.uint8)
    used = np.ones(matrix.shape, np.bool_)
    at = 0
    for field, width in zip(fields, widths, strict=True):
        for place in range(width):
            septets = field >> np.uint64(7 * place)
            if place:
                used[:, at] = septets > 0
            matrix[:, at] = septets & np.uint64(0x7F)
            if place + 1 < width:
                matrix[:, at] |= np.where(septets > 0x7F, np.uint8(0x80), np.uint8(0))
            at += 1
    starts = np.zeros(len(matrix) + 1, np.int32)
    np.cumsum(used.sum(axis=1), out=starts[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(matrix), [None, pa.py_buffer(starts), pa.py_buffer(matrix[used])]
    )


def _binary(column: Any) -> Any:
    return column if column.type == pa.binary() else column.cast(pa.binary())
