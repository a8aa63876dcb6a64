"""Spark's reader of `metadata_events` as a stream.

Spark makes two reader objects. The first lives as long as its query and plans all its micro-batches. The second is
pickled and sent to the tasks. So the planner, which has sockets, is made on first use and is never pickled.
Source: pyspark.sql.datasource, pyspark.sql.streaming.datasource (Spark 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kraft.client.spark.settings import TableSettings
from kraft.client.spark.state.reader import EventsPartition

if TYPE_CHECKING:
    from kraft.client.spark.history.planner import EventsPlanner


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the events of the metadata log as they are committed. Offsets are {"offset": n}."""

    def __init__(self, settings: TableSettings, columns: Sequence[str]) -> None:
        """`columns`: the columns of the schema with which Spark reads, in that order."""
        self._settings = settings
        self._columns = tuple(columns)
        self._planner: EventsPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> EventsPlanner:
        """The planner of this process, made on first use."""
        if self._planner is None:
            from kraft.client.spark.history.planner import EventsPlanner

            self._planner = EventsPlanner(self._settings, self._columns)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a query without a checkpoint begins. Raises StateError for a point that is not in
        the log."""
        return self.planner.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of option maxOffsetsPerTrigger; without the option, no limit."""
        offsets_max = self._settings.offsets_per_trigger_max
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, or `start` if there is nothing to read."""
        return self.planner.next_offset(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last known end of the log, without a request."""
        return self.planner.known_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the log's present end as the end of this run; later events are read by the next run."""
        self.planner.fix_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a task per range of events; equal start and end offsets always give equal tasks."""
        return [EventsPartition(one) for one in self.planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read the events of one range as rows. Raises StateError if they cannot be read."""
        from kraft.client.spark.history.rows import read_events

        if isinstance(partition, EventsPartition):
            yield from read_events(self._settings, self._columns, partition.events)

    def stop(self) -> None:
        """Close the planner's sockets."""
        if self._planner is not None:
            self._planner.close()
