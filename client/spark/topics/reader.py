"""Spark's reader of topics as a batch, which plans on the driver and reads on the executors.

Spark pickles the reader between its planning workers and its tasks, so the reader holds only values that can be
pickled.
Source: pyspark.sql.datasource (Spark 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import Filter, InputPartition

from kraft.client.spark.predicates import Bounds, bounds_of
from kraft.client.spark.pushdown import PushdownReader
from kraft.client.spark.settings import TopicSettings
from kraft.client.spark.topics.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

EXACT = frozenset({"topic", "partition", "offset"})
"""Columns whose filters the reader applies itself."""
INEXACT = frozenset({"timestamp"})
"""Columns whose filters narrow what is read, but which Spark must still evaluate."""
_RANGES = frozenset(
    {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "IsNotNull"}
)
"""Types of filters that limit offsets to a single range."""


class RangePartition(InputPartition):
    """The range of offsets that one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class TopicReader(PushdownReader):
    """Reads the records that the topics have when the query is planned."""

    def __init__(self, settings: TopicSettings, columns: Sequence[str]) -> None:
        """`columns`: the columns of the schema with which Spark reads, in that order."""
        self._settings = settings
        self._columns = tuple(columns)
        self._bounds = Bounds()

    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Take over filters on topics, partitions and offset ranges. Use filters on timestamps to read less, but return
        them to Spark, like all other filters."""
        exact = EXACT if all(_is_range(one) for one in filters if _is_on(one, "offset")) else EXACT - {"offset"}
        self._bounds, rest = bounds_of(filters, exact, inexact=(EXACT | INEXACT) - exact)
        return [one for one in filters if any(one is left for left in rest)]

    def partitions(self) -> list[InputPartition]:
        """Return a task per range of offsets. Raises the errors of `plan_batch`."""
        from kraft.client.spark.blocking.cluster import SyncCluster
        from kraft.client.spark.topics.batch_plan import plan_batch

        with SyncCluster(self._settings.connection) as cluster:
            return [RangePartition(wanted) for wanted in plan_batch(cluster, self._settings, self._bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task. Raises the errors of `read_range`."""
        from kraft.client.spark.topics.range_reader import read_range

        if isinstance(partition, RangePartition):  # if there are no partitions, Spark makes one itself
            yield from read_range(self._settings, partition.wanted, self._columns)


def _is_on(one: Filter, column: str) -> bool:
    """Whether a filter, or the filter that it negates, is on this column."""
    return getattr(getattr(one, "child", one), "attribute", ()) == (column,)


def _is_range(one: Filter) -> bool:
    return type(one).__name__ in _RANGES and getattr(one, "value", 0) is not None
