"""Read the fields of many records at once, as columns of numbers and of positions in the buffer.

Invariant: with `bodies`, each record's fields end exactly where the record's length requires, or BrokenRecord is
raised. Fields that no column needs are not read.
Source: KIP-98, message format v2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.client.spark.topics.decoding.varint_columns import BrokenRecord, Ints, NumpyBuffer, read_varints
from kraft.seam import Buffer, WireError
from kraft.wire.varints import VARLONG_BYTES_MAX, read_zigzag

_HEADERS_AT_ONCE_MIN = 8
"""Minimum number of records that have one more header to read, for reading this header of all these records at once.
With fewer such records, the remaining headers are read record by record."""


class Spans(NamedTuple):
    """Positions and sizes of byte strings in a buffer; a size of -1 means null."""

    at: Ints
    sizes: Ints

    def chosen(self, which: Ints | slice) -> Spans:
        return Spans(self.at[which], self.sizes[which])


class HeaderSpans(NamedTuple):
    """Positions of all headers of the records, in order. The headers of record i have the indices `bounds[i]` to
    `bounds[i + 1]`."""

    bounds: Ints
    names: Spans
    values: Spans


class Bodies(NamedTuple):
    """Positions of the records' keys, values and headers in `data`."""

    data: Buffer
    keys: Spans
    values: Spans
    headers: HeaderSpans


class Deltas(NamedTuple):
    """Offset deltas and timestamp deltas of records. `ends`: the position after each record. `at`: the position after
    each record's deltas."""

    timestamps: Ints
    offsets: Ints
    at: Ints
    ends: Ints


def read_deltas(source: NumpyBuffer, starts: Ints, ends: Ints) -> Deltas:
    """Read the deltas of the records that extend from `starts` to `ends`."""
    lengths, at = read_varints(source, starts)
    _require(at + lengths == ends, "its length is wrong")
    at += 1  # the attributes byte is unused in this version
    timestamps, at = read_varints(source, at, bytes_max=VARLONG_BYTES_MAX)
    offsets, at = read_varints(source, at)
    _require(at <= ends, "its deltas run past its end")
    return Deltas(timestamps, offsets, at, ends)


def read_bodies(source: NumpyBuffer, deltas: Deltas) -> Bodies:
    """Read the positions of the records' keys, values and headers."""
    keys, at = _read_spans(source, deltas.at)
    values, at = _read_spans(source, at)
    counts = source.bytes.take(at, mode="clip").astype(np.int64)
    if counts.any():
        counts, at = read_varints(source, at)
        _require((counts >= 0) & (at + 2 * counts <= deltas.ends), "it announces more headers than it has bytes for")
    else:
        at += 1
    return Bodies(source.bytes.data, keys, values, _read_headers(source, counts, at, deltas.ends))


def _read_spans(source: NumpyBuffer, at: Ints) -> tuple[Spans, Ints]:
    sizes, at = read_varints(source, at)
    _require(sizes >= -1, "it announces a negative size")
    return Spans(at, sizes), at + np.maximum(sizes, 0)


def _read_headers(source: NumpyBuffer, counts: Ints, at: Ints, ends: Ints) -> HeaderSpans:
    """Read the second and later headers of all records: in each round one more header of each record that has another.
    `at` is moved to the end of each record's headers."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    table = np.zeros((4, int(bounds[-1])), np.int64)
    active = np.flatnonzero(counts)
    done = 0
    while len(active) >= _HEADERS_AT_ONCE_MIN:
        try:
            names, position = _read_spans(source, at[active])
            _require(names.sizes >= 0, "one of its headers has no name")
            values, position = _read_spans(source, position)
            _require(position <= ends[active], "its headers run past its end")
        except BrokenRecord as error:
            raise BrokenRecord(int(active[error.index]), str(error)) from None
        table[:, bounds[active] + done] = (*names, *values)
        at[active] = position
        done += 1
        active = active[counts[active] > done]
    for record in active.tolist():
        at[record] = _read_rest(source, int(at[record]), int(ends[record]), record,
                                table[:, int(bounds[record]) + done : int(bounds[record + 1])])  # fmt: skip
    _require(at == ends, "its body does not meet its end")
    return HeaderSpans(bounds, Spans(table[0], table[1]), Spans(table[2], table[3]))


def _read_rest(source: NumpyBuffer, at: int, end: int, record: int, table: Ints) -> int:
    """Read the remaining headers of one record into the columns of `table`. Return the position after the last one."""
    data = source.bytes.data
    try:
        for column in range(table.shape[1]):
            name_size, name_at = read_zigzag(data, at)
            value_size, value_at = read_zigzag(data, name_at + max(name_size, 0))
            at = value_at + max(value_size, 0)
            if name_size < 0 or value_size < -1 or at > end:
                raise BrokenRecord(record, "one of its headers has no name, or runs past its end")
            table[:, column] = name_at, name_size, value_at, value_size
    except WireError as error:
        raise BrokenRecord(record, str(error)) from None
    return at


def _require(fine: NDArray[np.bool_], text: str) -> None:
    """Raise BrokenRecord for the first record for which the condition is false."""
    if not fine.all():
        raise BrokenRecord(int(fine.argmin()), text)
