"""Spark's readers of tables: which one serves a table, and that of tables which one task asks for.

Spark pickles a reader between its planning workers and its tasks: it holds values only. Filters are all given back:
they limit what the brokers are asked for, and Spark evaluates them on the rows.
Source: pyspark.sql.datasource (Spark 4.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition

from kraft.client.spark.predicates import Bounds, bounds_of
from kraft.client.spark.pushdown import PushdownReader
from kraft.client.spark.settings import TableSettings
from kraft.client.spark.tables import TABLES, TableError, table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kraft.client.spark.history.events import EventRange


def table_reader(settings: TableSettings, columns: Sequence[str]) -> DataSourceReader:
    """The reader of a table as a batch, with these columns."""
    if settings.table == "offset_commits":
        from kraft.client.spark.state.offset_commits_reader import OffsetCommitsReader

        return OffsetCommitsReader(settings, columns)
    reader = EventsReader if settings.table == "metadata_events" else TableReader
    return reader(settings, columns)


def table_stream_reader(settings: TableSettings, columns: Sequence[str]) -> DataSourceStreamReader:
    """The reader of a table as a stream. TableError if the table has none."""
    if settings.table == "offset_commits":
        from kraft.client.spark.state.offset_commits_stream import OffsetCommitsStreamReader

        return OffsetCommitsStreamReader(settings, columns)
    if settings.table == "metadata_events":
        from kraft.client.spark.history.stream import EventsStreamReader

        return EventsStreamReader(settings, columns)
    streams = ", ".join(name for name, table in TABLES.items() if table.is_streamable)
    raise TableError(f"table {settings.table} cannot be read as a stream: {streams} can")


class TableReader(PushdownReader):
    """Asks the cluster for a table in one task, once in each evaluation of a query."""

    def __init__(self, settings: TableSettings, columns: Sequence[str]) -> None:
        """`columns`: those of the schema that Spark reads with, in its order."""
        self._settings = settings
        self._columns = tuple(columns)
        self._bounds = Bounds()

    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow what is asked for; give all filters back."""
        self._bounds, _ = bounds_of(filters, (), inexact=table_of(self._settings.table).pushable)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """One task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        """The rows. StateError, before the first one, if the table cannot be read."""
        from kraft.client.spark.state import StateRequest, rows_of

        if self._bounds.is_empty:
            return iter(())
        request = StateRequest(self._settings.table, self._columns, self._bounds, self._settings)
        return self._as_spark_takes_them(rows_of(request))

    def _as_spark_takes_them(
        self, rows: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        """Rows as Arrow batches where each column has a form for that, else as they are."""
        from kraft.client.spark.state.arrow_rows import arrow_rows, arrow_schema

        schema = arrow_schema(table_of(self._settings.table), self._columns)
        return iter(rows) if schema is None else arrow_rows(rows, schema)


class EventsPartition(InputPartition):
    """The events that one task reads."""

    def __init__(self, events: EventRange) -> None:
        super().__init__(None)
        self.events = events


class EventsReader(TableReader):
    """Reads `metadata_events`: ranges of the metadata log in several tasks."""

    def partitions(self) -> Sequence[InputPartition]:
        """A task per range. StateError if the log cannot be read."""
        from kraft.client.spark.history.rows import explained, plan_events

        with explained(self._settings.table):
            ranges = plan_events(self._settings, self._columns, self._bounds)
        return [EventsPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        """The rows of one range. StateError if it cannot be read."""
        from kraft.client.spark.history.rows import read_events

        if not isinstance(partition, EventsPartition):  # where nothing is to be read Spark makes up one of its own
            return iter(())
        return self._as_spark_takes_them(read_events(self._settings, self._columns, partition.events))
