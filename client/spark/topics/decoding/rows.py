"""Convert a group of batches into columns of numbers: each row's offset, timestamp, and the positions of its key, value
and headers.

Invariants: within a batch, offsets rise and stay at or below the last offset of the header. A timestamp that does not
fit into Spark's microseconds raises an error and never becomes another time.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kraft.client.spark.topics.decoding.fields import Bodies, read_bodies, read_deltas
from kraft.client.spark.topics.decoding.opening import BatchGroup
from kraft.client.spark.topics.decoding.starts import Blocks, BrokenBlock, record_starts
from kraft.client.spark.topics.decoding.varint_columns import BrokenRecord, Ints
from kraft.client.spark.topics.decoding.walking import Walked, damaged
from kraft.wire.records import ATTRIBUTE_LOG_APPEND_TIME, BatchHeader

_TIMESTAMP_MAX_MS = ((1 << 63) - 1) // 1000
_DELTA_MAX_MS = 1 << 62
Number = TypeVar("Number", bound=np.generic)

_BODY_COLUMNS = frozenset(("key", "value", "headers"))
_TIME_COLUMN = "timestamp"


def needs_records(walked: Sequence[Walked], columns: Sequence[str]) -> bool:
    """Whether the requested columns require reading records. Headers suffice for the offsets of batches without gaps,
    and for the timestamps of batches with append time."""
    if not _BODY_COLUMNS.isdisjoint(columns):
        return True
    return any(
        header.record_count != header.last_offset_delta + 1
        or (_TIME_COLUMN in columns and not header.is_log_append_time)
        for one in walked
        for _, header in one.batches
    )


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The rows of a group of batches. `timestamps` are in ms since 1970, -1 for none. `bodies` None: neither keys,
    values nor headers are requested. `wanted`: which rows are in the requested range; None: all."""

    offsets: Ints
    timestamps: Ints
    timestamp_types: NDArray[np.int32]
    bodies: Bodies | None
    wanted: NDArray[np.bool_] | None


class _Headers:
    """Fields of the batch headers as columns; `spread` repeats the value of each batch for all of its records."""

    def __init__(self, group: BatchGroup) -> None:
        table = np.array([batch.header for batch in group.batches], np.int64)
        self.column = {name: table[:, number] for number, name in enumerate(BatchHeader._fields)}
        self.counts = self.column["record_count"]
        self.stops = np.cumsum(self.counts)
        self.firsts = self.stops - self.counts

    def spread(self, numbers: NDArray[Number]) -> NDArray[Number]:
        return np.repeat(numbers, self.counts)

    def batch_of(self, record: int) -> int:
        return int(np.searchsorted(self.stops, record, side="right"))


def read_rows(group: BatchGroup, columns: Set[str]) -> DecodedRows:
    """Read the rows of a group. Raises WireError, with topic, partition and the batch's base offset, if records
    contradict their batch header."""
    headers = _Headers(group)
    try:
        return _read(group, headers, columns)
    except BrokenBlock as error:
        index, text = error.index, str(error)
    except BrokenRecord as error:
        index = headers.batch_of(error.index)
        text = f"record {error.index - int(headers.firsts[index])} of the batch is damaged: {error}"
    walked, _, header = group.batches[index]
    raise damaged(walked.topic, walked.partition, header.base_offset, text)


def _read(group: BatchGroup, headers: _Headers, columns: Set[str]) -> DecodedRows:
    bodies = None
    if group.blocks is None:
        offset_deltas = np.arange(headers.stops[-1]) - headers.spread(headers.firsts)
        time_deltas = np.zeros_like(offset_deltas)
    else:
        starts = record_starts(group.blocks)
        deltas = read_deltas(group.blocks.source, starts, _ends(group.blocks, headers, starts))
        offset_deltas, time_deltas = deltas.offsets, deltas.timestamps
        _check_offsets(headers, offset_deltas)
        if not _BODY_COLUMNS.isdisjoint(columns):
            bodies = read_bodies(group.blocks.source, deltas)
    offsets = offset_deltas + headers.spread(headers.column["base_offset"])
    wanted = _wanted(group, headers, offsets)
    is_append_time = headers.column["attributes"] & ATTRIBUTE_LOG_APPEND_TIME != 0
    times = _times(headers, is_append_time, time_deltas, wanted) if _TIME_COLUMN in columns else time_deltas
    types = np.repeat(is_append_time.astype(np.int32), headers.counts)
    return DecodedRows(offsets, times, types, bodies, wanted)


def _ends(blocks: Blocks, headers: _Headers, starts: Ints) -> Ints:
    """Return where each record ends: at the start of the next record, or at the end of its block."""
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[headers.stops - 1] = blocks.ends
    return ends


def _check_offsets(headers: _Headers, deltas: Ints) -> None:
    fine = np.empty(len(deltas), np.bool_)
    np.greater(deltas[1:], deltas[:-1], out=fine[1:])
    fine[headers.firsts] = deltas[headers.firsts] >= 0
    lasts = headers.stops - 1
    fine[lasts] &= deltas[lasts] <= headers.column["last_offset_delta"]
    if not fine.all():
        raise BrokenRecord(int(fine.argmin()), "its offset does not lie between its neighbours'")


def _wanted(group: BatchGroup, headers: _Headers, offsets: Ints) -> NDArray[np.bool_] | None:
    """Return which rows are in the range of offsets for which their response was walked; None for all rows."""
    lows = np.array([batch.walked.start for batch in group.batches], np.int64)
    highs = np.array([batch.walked.end for batch in group.batches], np.int64)
    bases = headers.column["base_offset"]
    if (bases >= lows).all() and (bases + headers.column["last_offset_delta"] < highs).all():
        return None
    wanted: NDArray[np.bool_] = (offsets >= headers.spread(lows)) & (offsets < headers.spread(highs))
    return wanted


def _times(
    headers: _Headers, is_append_time: NDArray[np.bool_], deltas: Ints, wanted: NDArray[np.bool_] | None
) -> Ints:
    """Return the rows' timestamps in ms. Raises BrokenRecord if the timestamp of a wanted row is out of range."""
    if is_append_time.any():
        deltas = np.where(headers.spread(is_append_time), 0, deltas)
    bases = np.where(is_append_time, headers.column["max_timestamp"], headers.column["base_timestamp"])
    times = headers.spread(bases) + deltas
    # a sum that overflows 64 bits wraps to a number that is also outside the limit, unless the delta exceeds
    # _DELTA_MAX_MS
    wrong = _outside(deltas, _DELTA_MAX_MS) | _outside(times, _TIMESTAMP_MAX_MS)
    if wanted is not None:
        wrong &= wanted
    if wrong.any():
        raise BrokenRecord(
            int(wrong.argmax()), "its timestamp is outside of what Spark's TIMESTAMP holds; leave that column out"
        )
    return times


def _outside(numbers: Ints, limit: int) -> NDArray[np.bool_]:
    outside: NDArray[np.bool_] = (numbers > limit) | (numbers < -limit)
    return outside
