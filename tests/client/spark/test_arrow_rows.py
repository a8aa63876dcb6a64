"""Tests that Arrow batches of table rows have the types that Spark expects, and the values of the rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from kraft.client.spark.state.arrow_rows import ROWS, arrow_rows, arrow_schema
from kraft.client.spark.tables import TABLES, Table

OF_SPARK = {
    "STRING": types.StringType(),
    "INT": types.IntegerType(),
    "BIGINT": types.LongType(),
    "DOUBLE": types.DoubleType(),
    "BOOLEAN": types.BooleanType(),
    "TIMESTAMP": types.TimestampType(),
    "ARRAY<INT>": types.ArrayType(types.IntegerType()),
    "ARRAY<STRING>": types.ArrayType(types.StringType()),
}
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_arrow_schema_of_each_table_equals_the_one_that_spark_expects(table: Table) -> None:
    simple = [column.name for column in table.columns if column.type in OF_SPARK]
    declared = types.StructType([types.StructField(name, OF_SPARK[table.column(name).type]) for name in simple])
    assert arrow_schema(table, simple) == to_arrow_schema(declared, timezone="UTC")


def test_table_columns_with_structs_have_no_arrow_schema() -> None:
    assert arrow_schema(TABLES["brokers"], ("broker_id", "endpoints")) is None


def test_table_rows_survive_conversion_to_arrow_in_order_with_nulls() -> None:
    columns = ("topic", "partition", "leader", "isr", "is_offline", "end_offset", "as_of")
    rows = [
        ("t", 0, 1, [1, 2], False, 7, NOW),
        ("t", 1, None, [], True, None, NOW),
        ("ü", 2, 3, None, None, 1 << 40, None),
    ]
    schema = arrow_schema(TABLES["partitions"], columns)
    assert schema is not None
    (batch,) = arrow_rows(rows, schema)
    assert [tuple(row.values()) for row in batch.to_pylist()] == rows


def test_table_rows_beyond_the_batch_limit_become_several_arrow_batches_and_no_rows_give_no_batch() -> None:
    schema = pa.schema([pa.field("offset", pa.int64())])
    sizes = [batch.num_rows for batch in arrow_rows(((number,) for number in range(ROWS + 1)), schema)]
    assert sizes == [ROWS, 1]
    assert list(arrow_rows([], schema)) == []
