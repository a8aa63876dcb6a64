"""Spark's readers of tables: the choice of a table's reader, and the reader of tables that are read in one task.

Spark pickles a reader between its planning workers and its tasks, so the reader holds only values that can be pickled.
All filters are returned to Spark, which evaluates them on the rows. The reader uses them only to limit its requests to
brokers.
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
    """Return the batch reader of a table, which reads these columns."""
    if settings.table == "offset_commits":
        from kraft.client.spark.state.offset_commits_reader import OffsetCommitsReader

        return OffsetCommitsReader(settings, columns)
    reader = EventsReader if settings.table == "metadata_events" else TableReader
    return reader(settings, columns)


def table_stream_reader(settings: TableSettings, columns: Sequence[str]) -> DataSourceStreamReader:
    """Return the stream reader of a table. Raises TableError if the table has none."""
    if settings.table == "offset_commits":
        from kraft.client.spark.state.offset_commits_stream import OffsetCommitsStreamReader

        return OffsetCommitsStreamReader(settings, columns)
    if settings.table == "metadata_events":
        from kraft.client.spark.history.stream import EventsStreamReader

        return EventsStreamReader(settings, columns)
    streams = ", ".join(name for name, table in TABLES.items() if table.is_streamable)
    raise TableError(f"table {settings.table} cannot be read as a stream: {streams} can")


class TableReader(PushdownReader):
    """Reads a table from the cluster in one task, once in each evaluation of a query."""

    def __init__(self, settings: TableSettings, columns: Sequence[str]) -> None:
        """`columns`: the columns of the schema with which Spark reads, in that order."""
        self._settings = settings
        self._columns = tuple(columns)
        self._bounds = Bounds()

    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the requests to brokers, and return all filters to Spark."""
        self._bounds, _ = bounds_of(filters, (), inexact=table_of(self._settings.table).pushable)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        """Return the rows. Raises StateError, before the first row, if the table cannot be read."""
        from kraft.client.spark.state import StateRequest, rows_of

        if self._bounds.is_empty:
            return iter(())
        request = StateRequest(self._settings.table, self._columns, self._bounds, self._settings)
        return self._to_arrow_if_possible(rows_of(request))

    def _to_arrow_if_possible(
        self, rows: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        """Return the rows as Arrow batches if every column has an Arrow form, otherwise unchanged."""
        from kraft.client.spark.state.arrow_rows import arrow_rows, arrow_schema

        schema = arrow_schema(table_of(self._settings.table), self._columns)
        return iter(rows) if schema is None else arrow_rows(rows, schema)


class EventsPartition(InputPartition):
    """The range of events that one task reads."""

    def __init__(self, events: EventRange) -> None:
        super().__init__(None)
        self.events = events


class EventsReader(TableReader):
    """Reads `metadata_events` in several tasks, one per range of the metadata log."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task per range of events. Raises StateError if the log cannot be read."""
        from kraft.client.spark.history.rows import as_state_error, plan_events

        with as_state_error(self._settings.table):
            ranges = plan_events(self._settings, self._columns, self._bounds)
        return [EventsPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        """Read the events of one range as rows. Raises StateError if they cannot be read."""
        from kraft.client.spark.history.rows import read_events

        if not isinstance(partition, EventsPartition):  # if there are no partitions, Spark makes one itself
            return iter(())
        return self._to_arrow_if_possible(read_events(self._settings, self._columns, partition.events))
