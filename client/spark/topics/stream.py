"""Spark's reader of topics as a stream, which plans in a separate process on the driver and reads on the executors.

Spark makes two reader objects. The first lives as long as its query and plans all its micro-batches. The second is
pickled and sent to the tasks. So the planner, which has sockets, is made on first use and is never pickled. Correctness
does not depend on `stop`, because Spark does not always call it.
Source: pyspark.sql.datasource, pyspark.sql.streaming.datasource (Spark 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kraft.client.spark.settings import TopicSettings
from kraft.client.spark.topics.reader import RangePartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kraft.client.spark.topics.stream_planner import StreamPlanner


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the records of topics as they are appended. Its offsets have the form of `stream_offsets`."""

    def __init__(self, settings: TopicSettings, columns: Sequence[str]) -> None:
        """`columns`: the columns of the schema with which Spark reads, in that order."""
        self._settings = settings
        self._columns = tuple(columns)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> StreamPlanner:
        """The planner of this process, made on first use."""
        if self._planner is None:
            from kraft.client.spark.topics.stream_planner import StreamPlanner

            self._planner = StreamPlanner(self._settings)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a query without a checkpoint begins. Raises the errors of
        StreamPlanner.initial_offset."""
        return self.planner.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the strictest limit of the options, as Spark requires; the planner enforces all limits."""
        settings = self._settings
        if settings.offsets_per_trigger_max is not None:
            return ReadMaxRows(settings.offsets_per_trigger_max)
        if settings.bytes_per_trigger_max is not None:
            return ReadMaxBytes(settings.bytes_per_trigger_max)
        if settings.offsets_per_trigger_min is not None:
            return ReadMinRows(settings.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, or `start` if there is nothing to read. Raises the errors of
        StreamPlanner.next_offset."""
        return self.planner.next_offset(start, unlimited=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last known ends of the partitions, without a request."""
        return self.planner.known_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the present ends as the end of this run; later records are read by the next run."""
        self.planner.fix_targets()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a task per range of offsets; equal start and end offsets always give equal tasks."""
        return [RangePartition(wanted) for wanted in self.planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task. Raises the errors of `read_range`."""
        from kraft.client.spark.topics.range_reader import read_range

        if isinstance(partition, RangePartition):
            yield from read_range(self._settings, partition.wanted, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a finished micro-batch to the group of option commitGroup. Never fails the query."""
        self.planner.commit(end)

    def stop(self) -> None:
        """Close the planner's sockets."""
        if self._planner is not None:
            self._planner.close()
