"""Spark's reader of topics as a stream: plans in a process of its own on the driver, reads on the executors.

Spark makes two of these: one lives as long as its query and plans all its micro-batches, the other is pickled to the
tasks. So the planner, which has sockets, is made when it is first needed and is never pickled. `stop` closes nothing
that matters: Spark does not always call it.
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
    """Reads the records of topics as they come. Offsets are those of `stream_offsets`."""

    def __init__(self, settings: TopicSettings, columns: Sequence[str]) -> None:
        """`columns`: those of the schema that Spark reads with, in its order."""
        self._settings = settings
        self._columns = tuple(columns)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> StreamPlanner:
        """The planner of this process."""
        if self._planner is None:
            from kraft.client.spark.topics.stream_planner import StreamPlanner

            self._planner = StreamPlanner(self._settings)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Errors as StreamPlanner.initial_offset."""
        return self.planner.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The strictest limit that the options give; the planner keeps to all of them."""
        settings = self._settings
        if settings.offsets_per_trigger_max is not None:
            return ReadMaxRows(settings.offsets_per_trigger_max)
        if settings.bytes_per_trigger_max is not None:
            return ReadMaxBytes(settings.bytes_per_trigger_max)
        if settings.offsets_per_trigger_min is not None:
            return ReadMinRows(settings.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` if there is nothing to read. Errors as StreamPlanner.next_offset."""
        return self.planner.next_offset(start, unlimited=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The newest ends that are known; the brokers are not asked."""
        return self.planner.known_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes from now on is for the next run."""
        self.planner.fix_targets()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task per range of offsets: the same for the same start and end."""
        return [RangePartition(wanted) for wanted in self.planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task. Errors as `read_range`."""
        from kraft.client.spark.topics.range_reader import read_range

        if isinstance(partition, RangePartition):
            yield from read_range(self._settings, partition.wanted, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a batch that is done to the group of option commitGroup. Never fails the query."""
        self.planner.commit(end)

    def stop(self) -> None:
        """Close the planner's sockets."""
        if self._planner is not None:
            self._planner.close()
