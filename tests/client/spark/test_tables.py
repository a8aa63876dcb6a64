"""Tests of the definitions of tables: their names, types and schemas, and a getter for each column."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kraft.client.spark.history import tables as history_tables
from kraft.client.spark.state.metrics import GETTERS as METRICS_GETTERS
from kraft.client.spark.state.offset_commits import GETTERS as COMMIT_GETTERS
from kraft.client.spark.state.rows import FAMILIES
from kraft.client.spark.tables import AS_OF, TABLES, ColumnSource, TableError, schema_ddl, table_of

NOT_OF_THE_PROTOCOL = {"metadata_events", "metadata_diff"}


@pytest.mark.parametrize("name", TABLES)
def test_table_definition_has_unique_columns_and_ends_with_as_of_columns(name: str) -> None:
    table = TABLES[name]
    assert table.name == name
    assert len(set(table.column_names)) == len(table.columns)
    assert table.columns[-2:] == AS_OF
    assert set(table.pushable) <= set(table.column_names)
    assert all(column.meaning for column in table.columns)


@pytest.mark.parametrize("name", TABLES)
def test_each_defined_protocol_column_of_a_table_has_a_getter(name: str) -> None:
    table = TABLES[name]
    declared = {
        column.name for column in table.columns if column.source is ColumnSource.PROTOCOL and column not in AS_OF
    }
    getters = {
        **{one: family.getters for one, family in FAMILIES.items()},
        "metrics": METRICS_GETTERS,
        "offset_commits": COMMIT_GETTERS,
    }
    if name in NOT_OF_THE_PROTOCOL:
        assert not declared
    else:
        assert set(getters[name]) == declared


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.has_time_travel])
def test_past_table_has_every_column_that_is_not_live(name: str) -> None:
    _, getters = history_tables._TABLES[name]
    table = TABLES[name]
    assert set(getters) == {one.name for one in table.columns if not one.is_live and one not in AS_OF}


def test_table_schema_has_the_named_columns_in_their_order() -> None:
    assert schema_ddl("apis") == (
        "`broker_id` INT, `api_key` INT, `api` STRING, `min_version` INT, `max_version` INT, "
        "`as_of_offset` BIGINT, `as_of` TIMESTAMP"
    )
    assert schema_ddl("partitions", ["isr", "topic"]) == "`isr` ARRAY<INT>, `topic` STRING"


def test_unknown_table_or_column_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(TableError, match="there is no table partition; did you mean partitions"):
        table_of("partition")
    with pytest.raises(TableError, match="table partitions has no column leader_epok; did you mean leader_epoch"):
        schema_ddl("partitions", ["topic", "leader_epok"])
    with pytest.raises(TableError, match="column topic of table topics is named twice"):
        schema_ddl("topics", ["topic", "topic"])


def test_importing_table_definitions_loads_neither_spark_nor_trio() -> None:
    code = (
        "import sys; from kraft.client.spark.tables import schema_ddl; schema_ddl('topics'); "
        "print(sorted({'pyspark', 'trio', 'pandas', 'pyarrow', 'kio'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"
