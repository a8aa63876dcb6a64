"""Pure: convert rows to Arrow batches. For many rows, Spark reads Arrow batches at a fraction of the cost of tuples.

Columns with structs or maps have no Arrow form here: their tables are small, and their rows are passed to Spark as
tuples. The types are those that Spark expects. Source: pyspark.sql.pandas.types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from kraft.client.spark.tables import Table

ROWS = 32_768
"""Maximum rows of an Arrow batch."""


def _array_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


_TYPES = MappingProxyType(
    {
        "STRING": pa.string(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "ARRAY<INT>": _array_of(pa.int32()),
        "ARRAY<STRING>": _array_of(pa.string()),
    }
)


def arrow_schema(table: Table, columns: Sequence[str]) -> pa.Schema | None:
    """Return the Arrow schema of these columns; None if one of the columns has no Arrow form here."""
    types = [table.column(name).type for name in columns]
    if not all(kind in _TYPES for kind in types):
        return None
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in zip(columns, types, strict=True)])


def arrow_rows(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order, as Arrow batches of 1 to ROWS rows."""
    left = iter(rows)
    while chunk := list(islice(left, ROWS)):
        columns = zip(*chunk, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
