"""Spark's reader of `metadata_events` as a stream.

Spark makes two of these: one lives as long as its query and plans all its micro-batches, the other is pickled to the
tasks. The planner, which has sockets, is made when it is first needed and is never pickled.
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
        """`columns`: those of the schema that Spark reads with, in its order."""
        self._settings = settings
        self._columns = tuple(columns)
        self._planner: EventsPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> EventsPlanner:
        """The planner of this process."""
        if self._planner is None:
            from kraft.client.spark.history.planner import EventsPlanner

            self._planner = EventsPlanner(self._settings, self._columns)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. StateError for a point that is not there."""
        return self.planner.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Option maxOffsetsPerTrigger, or all."""
        offsets_max = self._settings.offsets_per_trigger_max
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` if there is nothing to read."""
        return self.planner.next_offset(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the log as it is known; the cluster is not asked."""
        return self.planner.known_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is written from now on is for the next run."""
        self.planner.fix_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task per range, the same for the same start and end."""
        return [EventsPartition(one) for one in self.planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of one range. StateError if it cannot be read."""
        from kraft.client.spark.history.rows import read_events

        if isinstance(partition, EventsPartition):
            yield from read_events(self._settings, self._columns, partition.events)

    def stop(self) -> None:
        """Close the planner's sockets."""
        if self._planner is not None:
            self._planner.close()
