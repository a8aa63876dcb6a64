"""The fields of many records at once, as columns of numbers and of byte positions.

Invariant: with `bodies`, each record's fields end exactly where its length says, or BrokenRecord is raised; what no
column needs is not read.
Source: KIP-98, message format v2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kraft.client.spark.topics.decoding.varint_columns import BrokenRecord, Ints, Source, read_varints
from kraft.seam import Buffer, WireError
from kraft.wire.varints import VARLONG_BYTES_MAX, read_zigzag

_HEADERS_AT_ONCE_MIN = 8
"""Records with further headers from which these are read at once, one of each record at a time."""


class Spans(NamedTuple):
    """Byte strings in a buffer; a size of -1 is null."""

    at: Ints
    sizes: Ints

    def chosen(self, which: Ints | slice) -> Spans:
        return Spans(self.at[which], self.sizes[which])


class HeaderSpans(NamedTuple):
    """All headers of the records in order. Those of record i are `bounds[i]` to `bounds[i + 1]`."""

    bounds: Ints
    names: Spans
    values: Spans


class Bodies(NamedTuple):
    """All that comes after the deltas, in `data`."""

    data: Buffer
    keys: Spans
    values: Spans
    headers: HeaderSpans


class Deltas(NamedTuple):
    """`ends`: behind each record. `at`: behind its deltas."""

    timestamps: Ints
    offsets: Ints
    at: Ints
    ends: Ints


def read_deltas(source: Source, starts: Ints, ends: Ints) -> Deltas:
    """The deltas of the records at `starts`, each of which ends at its entry of `ends`."""
    lengths, at = read_varints(source, starts)
    _require(at + lengths == ends, "its length is wrong")
    at += 1  # the attributes say nothing in this version
    timestamps, at = read_varints(source, at, bytes_max=VARLONG_BYTES_MAX)
    offsets, at = read_varints(source, at)
    _require(at <= ends, "its deltas run past its end")
    return Deltas(timestamps, offsets, at, ends)


def read_bodies(source: Source, deltas: Deltas) -> Bodies:
    """Keys, values and headers."""
    keys, at = _read_spans(source, deltas.at)
    values, at = _read_spans(source, at)
    counts = source.bytes.take(at, mode="clip").astype(np.int64)
    if counts.any():
        counts, at = read_varints(source, at)
        _require((counts >= 0) & (at + 2 * counts <= deltas.ends), "it announces more headers than it has bytes for")
    else:
        at += 1
    return Bodies(source.bytes.data, keys, values, _read_headers(source, counts, at, deltas.ends))


def _read_spans(source: Source, at: Ints) -> tuple[Spans, Ints]:
    sizes, at = read_varints(source, at)
    _require(sizes >= -1, "it announces a negative size")
    return Spans(at, sizes), at + np.maximum(sizes, 0)


def _read_headers(source: Source, counts: Ints, at: Ints, ends: Ints) -> HeaderSpans:
    """One header of each record that has a further one, again and again; `at` is moved to the ends of the records."""
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


def _read_rest(source: Source, at: int, end: int, record: int, table: Ints) -> int:
    """The further headers of one record into the columns of `table`. Returns the position behind them."""
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
    """BrokenRecord, for the first record that is not fine."""
    if not fine.all():
        raise BrokenRecord(int(fine.argmin()), text)
