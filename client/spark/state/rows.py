"""Synchronous: answer a request for rows of a table, from brokers or from the metadata log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import trio

from kraft.client.spark.state import brokers_and_controllers, cluster_tables, configs, groups, restricted, topics
from kraft.client.spark.state.request import NO_VALUES, Getter, Moment, StateError, StateRequest, make_rows
from kraft.client.spark.state.table_query import REQUEST_FAILURES, Family, TableQuery, open_admin
from kraft.client.spark.tables import Table

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        **brokers_and_controllers.FAMILIES,
        **topics.FAMILIES,
        **configs.FAMILIES,
        **groups.FAMILIES,
        **cluster_tables.FAMILIES,
        **restricted.FAMILIES,
    }
)
"""Table name → definition of how to make the table's rows from brokers' responses to an admin client."""


def rows_of(request: StateRequest) -> Iterator[tuple[Any, ...]]:
    """Return the requested rows, with values in the order of `request.columns`.

    All responses are received before the first row is returned. Raises StateError if the table cannot be read. Must not
    be called within a trio run."""
    settings = request.settings
    table = request.definition
    if table.name == "metrics":
        from kraft.client.spark.state.metrics import metrics_rows

        return iter(metrics_rows(request))
    if table.name == "offset_commits":
        from kraft.client.spark.state.commit_log import commit_log_rows

        return commit_log_rows(request)
    is_past = settings.folder is not None or settings.as_of is not None
    if is_past or table.name not in FAMILIES:
        return _rows_of_log(request, table)
    return iter(_rows_of_now(request, FAMILIES[table.name], table))


def _rows_of_log(request: StateRequest, table: Table) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a past table, or of a table of the metadata log itself."""
    from kraft.client.spark import history

    if not table.has_time_travel and table.name in FAMILIES:
        raise StateError(f"table {table.name} is not in the metadata log: read it of a running cluster, without asOf")
    return history.rows_as_of(request)


def _rows_of_now(request: StateRequest, family: Family, table: Table) -> Iterable[tuple[Any, ...]]:
    sources = _request_sources(request, family, table)
    offset, log_getter = _log_getter(request, family)
    moment = Moment(datetime.now(UTC), offset)
    return make_rows(request, family.getters, sources, moment, log_getter)


def _log_getter(request: StateRequest, family: Family) -> tuple[int | None, Any]:
    """Return the offset up to which the metadata log was read, and the `log_getter` for `make_rows`. The values are
    NULL if no metadata-log column is read, or if the cluster is not pykraft."""
    values: Mapping[tuple[Any, ...], Mapping[str, Any]] = {}
    offset: int | None = None
    if request.log_columns:
        from kraft.client.spark import history

        found = history.log_values(request.settings, request.table, request.log_columns)
        if found is not None:
            values, offset = found.values, found.offset

    def log_getter(name: str) -> Getter:
        return lambda source: values.get(family.key(source), NO_VALUES).get(name)

    return offset, log_getter


def _request_sources(request: StateRequest, family: Family, table: Table) -> Iterable[Any]:
    connection = request.settings.connection
    if connection is None:
        raise StateError(f"table {table.name} needs a running cluster: give option kafka.bootstrap.servers")

    async def main() -> Iterable[Any]:
        async with open_admin(connection) as admin:
            versions = await admin.nodes.api_versions()
            query = TableQuery(admin, request.settings, request.bounds, frozenset(request.columns), versions)
            query.require(table)
            return await family.request_sources(query)

    try:
        return trio.run(main)
    except (*REQUEST_FAILURES, TimeoutError, StateError, ExceptionGroup) as problem:
        error = _first(problem)
        if isinstance(error, (*REQUEST_FAILURES, TimeoutError)):
            raise StateError(f"table {table.name} cannot be read: {error}") from problem
        raise error from None


def _first(error: Exception) -> Exception:
    """Return the error itself, or the first error inside nested exception groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
