"""Build the Arrow arrays of a topic's columns, with the types that Spark expects from a Python data source.

Byte columns are copied once. If the values differ in size, the values and the bytes between them form one array without
a copy, and Arrow takes every second element of that array. If all values have the same size, numpy gathers them as
elements of that size, which takes half the time at 100 B. (A cast from views would be faster by a third at 1 KB, but
pyarrow 18 makes no views.)
Source: spark-sql-kafka-0-10 (columns), Arrow columnar format (binary and binary view layouts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft.client.spark.topics.decoding.fields import HeaderSpans, Spans
from kraft.client.spark.topics.decoding.varint_columns import Ints
from kraft.seam import Buffer

_HEADER_FIELDS = (pa.field("key", pa.string()), pa.field("value", pa.binary()))
TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", pa.struct([*_HEADER_FIELDS]))),
    }
)
"""Column → Arrow type, for all columns in the order of Spark's connector."""

_OFFSET_MAX = (1 << 31) - 1


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, all nullable. Raises KeyError for an unknown one."""
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


def binary_array(data: Buffer, spans: Spans) -> pa.Array:
    """Return the byte strings at the positions `spans` in `data`. Raises ArrowInvalid if they total 2 GiB or more."""
    count = len(spans.sizes)
    largest = int(spans.sizes.max(initial=-1))
    if largest < 0:
        return pa.nulls(count, pa.binary())
    smallest = int(spans.sizes.min())
    if smallest == largest > 0 and count * largest <= _OFFSET_MAX:
        return _equal_sizes(data, spans.at, largest)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[:-1:2] = spans.at
    offsets[1::2] = spans.at + np.maximum(spans.sizes, 0)
    offsets[-1] = offsets[-2]
    every = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    chosen = every.take(number_array(pa.int32(), np.arange(0, 2 * count, 2, dtype=np.int32)))
    if smallest >= 0:
        return chosen
    return pa.Array.from_buffers(pa.binary(), count, [_bitmap(spans.sizes >= 0), *chosen.buffers()[1:]])


def _equal_sizes(data: Buffer, at: Ints, size: int) -> pa.Array:
    every = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    offsets = np.arange(0, len(at) * size + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(every[at])])


def number_array(kind: pa.DataType, numbers: NDArray[np.generic]) -> pa.Array:
    """Wrap numbers that have the width of type `kind` as an Arrow array, without a copy. `pa.array` and `pa.scalar`
    would import pandas."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def boolean_array(flags: NDArray[np.bool_]) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, _bitmap(flags)])


def topic_array(topic: str, count: int) -> pa.Array:
    """Return an array that has the value `topic` `count` times."""
    return _repeated(topic, 1 << count.bit_length()).slice(0, count)


@lru_cache(maxsize=4)
def _repeated(topic: str, count: int) -> pa.Array:
    encoded = topic.encode()
    if len(encoded) * count > _OFFSET_MAX:
        raise pa.ArrowInvalid(f"{count} rows at once are too many")
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(encoded * count)])


def timestamp_array(milliseconds: Ints) -> pa.Array:
    """Return timestamps given in ms since 1970 as an array; -1 (no timestamp) becomes null."""
    none = milliseconds == -1
    validity = _bitmap(~none) if none.any() else None
    return pa.Array.from_buffers(TYPES["timestamp"], len(milliseconds), [validity, pa.py_buffer(milliseconds * 1000)])


def headers_array(data: Buffer, spans: HeaderSpans) -> pa.Array:
    """Return an array with the list of (key, value) headers of each record; null for a record without headers, as in
    Spark's connector. Raises ArrowInvalid if a header's name is not UTF-8."""
    names = binary_array(data, spans.names).cast(pa.string())
    pairs = pa.StructArray.from_arrays([names, binary_array(data, spans.values)], fields=[*_HEADER_FIELDS])
    has_some = spans.bounds[1:] > spans.bounds[:-1]
    offsets = pa.py_buffer(spans.bounds.astype(np.int32))
    validity = None if has_some.all() else _bitmap(has_some)
    return pa.Array.from_buffers(TYPES["headers"], len(has_some), [validity, offsets], children=[pairs])


def _bitmap(valid: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
