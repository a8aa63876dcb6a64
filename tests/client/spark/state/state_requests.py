"""Functions that read tables without Spark, from any cluster, and read the admin client's results for comparison."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import trio

from kraft.client.admin import Admin
from kraft.client.spark.predicates import Bounds, bounds_of
from kraft.client.spark.settings import ConnectionSettings, TableSettings
from kraft.client.spark.state import StateRequest, rows_of
from kraft.client.spark.tables import ColumnSource, table_of
from kraft.seam import Address

Found = TypeVar("Found")
Row = dict[str, Any]


class EqualTo:
    """Filter like pyspark's class of that name. Filters are recognized by the names of their classes."""

    def __init__(self, column: str, value: object) -> None:
        self.attribute = (column,)
        self.value = value


def connection(bootstrap: str, **settings: Any) -> ConnectionSettings:
    hosts = [one.rsplit(":", 1) for one in bootstrap.split(",")]
    return ConnectionSettings(bootstrap=tuple(Address(host, int(port)) for host, port in hosts), **settings)


def protocol_columns(table: str) -> list[str]:
    """Return all columns of a table except those of the metadata log."""
    return [column.name for column in table_of(table).columns if column.source is ColumnSource.PROTOCOL]


def read_table(
    bootstrap: str,
    table: str,
    *columns: str,
    where: Mapping[str, object] | None = None,
    timeout_ms: int = 30_000,
    **settings: Any,
) -> list[Row]:
    """Return the rows of a table with these columns (none given: all except those of the metadata log), limited by
    `where` (column = value)."""
    filters = [EqualTo(name, value) for name, value in (where or {}).items()]
    bounds, _ = bounds_of(filters, (), inexact=table_of(table).pushable) if filters else (Bounds(), [])
    wanted = columns or tuple(protocol_columns(table))
    link = connection(bootstrap, request_timeout_ms=timeout_ms)
    request = StateRequest(table, wanted, bounds, TableSettings(table=table, connection=link, **settings))
    return [dict(zip(wanted, row, strict=True)) for row in rows_of(request)]


def with_admin(bootstrap: str, work: Callable[[Admin], Awaitable[Found]]) -> Found:
    """Call a function with an admin client of the cluster, and return its result."""

    async def main() -> Found:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            return await work(admin)

    return trio.run(main)
