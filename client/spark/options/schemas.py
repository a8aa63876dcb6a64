"""Determine the columns of a read: the schema that is declared to Spark, and the check of a user's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kraft.client.spark.options.given import OptionError, lowered
from kraft.client.spark.options.values import OptionValueError, names, truth
from kraft.client.spark.tables import table_of
from kraft.client.spark.tables.values import Table, TableError, nearest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TOPIC_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "key": "BINARY",
        "value": "BINARY",
        "topic": "STRING",
        "partition": "INT",
        "offset": "BIGINT",
        "timestamp": "TIMESTAMP",
        "timestampType": "INT",
    }
)
"""Columns of a topic with their types, equal to those of Spark's Kafka connector."""
HEADERS = MappingProxyType({"headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>"})
"""The column that option includeHeaders adds, as the last one."""


def table_named(name: str) -> Table:
    """Return the table of this name. Raises OptionError with the nearest name if it is unknown."""
    try:
        return table_of(name.lower())
    except TableError as problem:
        raise OptionError(f"option table={name}: {problem}") from None


def columns_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return all columns that a read with these options can have, with their types in Spark's DDL."""
    given = lowered(options)
    if "table" in given:
        return {column.name: column.type for column in table_named(given["table"].strip()).columns}
    try:
        with_headers = truth(given.get("includeheaders", "false"))
    except OptionValueError as problem:
        raise OptionError(f"option includeHeaders={given['includeheaders']}: {problem}") from None
    return {**TOPIC_COLUMNS, **(HEADERS if with_headers else {})}


def check_columns(options: Mapping[str, str], wanted: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the named columns in their declared spelling; None for all columns. Raises OptionError for an unknown
    column."""
    return None if wanted is None else tuple(_column(options, name) for name in wanted)


def _column(options: Mapping[str, str], name: str) -> str:
    known = columns_of(options)
    spelled = {one.lower(): one for one in known}
    if name.lower() in spelled:
        return spelled[name.lower()]
    if name.lower() == "headers":
        raise OptionError("there is no column headers: give option includeHeaders=true")
    raise OptionError(f"there is no column {name}{nearest(name, known)}; there are: {', '.join(known)}")


def declared_schema(options: Mapping[str, str]) -> str:
    """Return the schema that a read declares to Spark, in Spark's DDL: all columns, or those of option `columns`.
    Raises OptionError."""
    known = columns_of(options)
    return ", ".join(f"`{name}` {known[name]}" for name in _chosen(options) or known)


def _chosen(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the columns that option `columns` names; None without the option."""
    listed = lowered(options).get("columns")
    try:
        return check_columns(options, None if listed is None else names(listed))
    except OptionValueError as problem:
        raise OptionError(f"option columns={listed}: {problem}") from None


def check_schema(options: Mapping[str, str], schema: StructType) -> tuple[str, ...]:
    """Return the columns of the schema with which Spark reads: some or all of the available columns, in any order.

    Raises OptionError for a column that is unknown, occurs twice, has another type or is NOT NULL, and for a schema
    without columns."""
    known = columns_of(options)
    names_given = [field.name for field in schema.fields]
    if not names_given:
        raise OptionError(f"the schema has no column: name one at least of {', '.join(known)}")
    twice = next((name for name in names_given if names_given.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"the schema has column {twice} twice: leave one out")
    for field in schema.fields:
        name = _column(options, field.name)
        if name != field.name:
            raise OptionError(f"the schema has a column {field.name}: write {name}")
        kind = field.dataType.simpleString()
        if kind != known[name].lower().replace(" ", ""):
            raise OptionError(f"column {name} is {known[name]}, not {kind.upper()}: cast it in the query")
        if not (field.nullable and _is_nullable_inside(field.dataType)):
            raise OptionError(f"column {name} may be NULL: leave NOT NULL out of the schema")
    chosen = _chosen(options)
    if chosen is not None and list(chosen) != names_given:
        raise OptionError("option columns and the schema name other columns, or another order: give one of them")
    return tuple(names_given)


def _is_nullable_inside(kind: Any) -> bool:
    """Whether elements, values and fields inside a type may all be NULL, as in every declared column."""
    if not (getattr(kind, "containsNull", True) and getattr(kind, "valueContainsNull", True)):
        return False
    inner = [getattr(kind, name) for name in ("elementType", "valueType") if hasattr(kind, name)]
    fields = getattr(kind, "fields", ())
    return all(field.nullable for field in fields) and all(
        map(_is_nullable_inside, [*inner, *(field.dataType for field in fields)])
    )
