"""Pure: rows as Arrow batches, which Spark takes at a fraction of the cost of tuples where there are many.

Columns that hold structs or maps have no form here: their tables are small, and their rows go to Spark as they are.
The types are those that Spark asks for. Source: pyspark.sql.pandas.types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from kraft.client.spark.tables import Table

ROWS = 32_768
"""Of a batch, at most."""


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
    """The schema of these columns; None if one of them has no form here."""
    types = [table.column(name).type for name in columns]
    if not all(kind in _TYPES for kind in types):
        return None
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in zip(columns, types, strict=True)])


def arrow_rows(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows in order, in batches of at most ROWS, none of them empty."""
    left = iter(rows)
    while chunk := list(islice(left, ROWS)):
        columns = zip(*chunk, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
