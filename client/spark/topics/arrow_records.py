"""Pure: convert the records in Fetch responses of one partition to Arrow batches, in two steps.

First, `walk` reads only the batch headers of a response, and finds the next fetch offset. So a reader can send its next
request before it decodes the response. Then `to_arrow` or `arrow_batches` decodes several walked responses together, so
that small responses make large Arrow batches. Invariants: bytes that are not valid records raise a WireError with
topic, partition and offset, and never give a wrong row; columns that are not requested are not built.
Source: KIP-98 (message format v2), spark-sql-kafka-0-10 (columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from kraft.client.spark.topics.decoding.columns import (
    TYPES,
    binary_array,
    boolean_array,
    headers_array,
    number_array,
    schema_of,
    timestamp_array,
    topic_array,
)
from kraft.client.spark.topics.decoding.opening import BatchGroup, GroupLimits, grouped
from kraft.client.spark.topics.decoding.rows import DecodedRows, needs_records, read_rows
from kraft.client.spark.topics.decoding.walking import Walked, damaged, walk
from kraft.seam import InvariantError

__all__ = ["COLUMNS", "Walked", "arrow_batches", "schema_of", "to_arrow", "walk"]

COLUMNS = tuple(TYPES)
"""All columns of a topic, in this order: key, value, topic, partition, offset, timestamp, timestampType, headers."""

_NO_LIMITS = GroupLimits(rows=1 << 62, bytes=1 << 62)


def to_arrow(walked: Sequence[Walked], columns: Sequence[str]) -> pa.RecordBatch:
    """Return all rows of these walked responses of one partition, in offset order, with exactly `columns`, in that
    order.

    Raises WireError, with topic, partition and offset, if the bytes are damaged or decompress to 2 GiB or more;
    KeyError for a column that is not one of COLUMNS."""
    schema = schema_of(columns)
    for group in grouped(walked, _NO_LIMITS, opened=needs_records(walked, columns)):
        return _record_batch(group, schema)
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def arrow_batches(
    walked: Sequence[Walked], columns: Sequence[str], *, rows_max: int = 32_768, bytes_max: int = 8 * 1024 * 1024
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `to_arrow` in batches of about equal size, each with 1 to `rows_max` rows.

    An Arrow batch ends after the record batch with which its decompressed records reach `bytes_max`. Compressed blocks
    are decompressed when their Arrow batch is requested, so memory is limited by `bytes_max` and the largest block."""
    schema = schema_of(columns)
    for group in grouped(walked, GroupLimits(rows_max, bytes_max), opened=needs_records(walked, columns)):
        batch = _record_batch(group, schema)
        for first in range(0, batch.num_rows, rows_max):
            yield batch.slice(first, rows_max)


def _record_batch(group: BatchGroup, schema: pa.Schema) -> pa.RecordBatch:
    rows = read_rows(group, frozenset(schema.names))
    walked, _, header = group.batches[0]
    try:
        arrays = [_column(name, group, rows) for name in schema.names]
    except pa.ArrowInvalid as error:
        raise damaged(walked.topic, walked.partition, header.base_offset, str(error)) from None
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return batch if rows.wanted is None else batch.filter(boolean_array(rows.wanted))


def _column(name: str, group: BatchGroup, rows: DecodedRows) -> pa.Array:
    match name:
        case "topic":
            return topic_array(group.batches[0].walked.topic, len(rows.offsets))
        case "partition":
            return number_array(TYPES[name], np.full(len(rows.offsets), group.batches[0].walked.partition, np.int32))
        case "offset":
            return number_array(TYPES[name], rows.offsets)
        case "timestamp":
            return timestamp_array(rows.timestamps)
        case "timestampType":
            return number_array(TYPES[name], rows.timestamp_types)
    if rows.bodies is None:
        raise InvariantError(f"column {name} is asked for but the records' bodies were not read")
    match name:
        case "key":
            return binary_array(rows.bodies.data, rows.bodies.keys)
        case "value":
            return binary_array(rows.bodies.data, rows.bodies.values)
        case _:
            return headers_array(rows.bodies.data, rows.bodies.headers)
