"""Spark's reader of topics as a batch: plans on the driver, reads on the executors.

Spark pickles the reader between its planning workers and its tasks: it holds values only.
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
"""Columns whose filters the reader takes over."""
INEXACT = frozenset({"timestamp"})
"""Columns whose filters narrow what is read, and are given back."""
_RANGES = frozenset(
    {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "IsNotNull"}
)
"""Filters that say no more of an offset than from where to where."""


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class TopicReader(PushdownReader):
    """Reads the records of topics as they are when the query is planned."""

    def __init__(self, settings: TopicSettings, columns: Sequence[str]) -> None:
        """`columns`: those of the schema that Spark reads with, in its order."""
        self._settings = settings
        self._columns = tuple(columns)
        self._bounds = Bounds()

    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Take over filters on topic, partition and offset ranges; narrow by those on timestamp and give them back."""
        exact = EXACT if all(_is_range(one) for one in filters if _is_on(one, "offset")) else EXACT - {"offset"}
        self._bounds, rest = bounds_of(filters, exact, inexact=(EXACT | INEXACT) - exact)
        return [one for one in filters if any(one is left for left in rest)]

    def partitions(self) -> list[InputPartition]:
        """A task per range of offsets. Errors as `plan_batch`."""
        from kraft.client.spark.blocking.cluster import SyncCluster
        from kraft.client.spark.topics.batch_plan import plan_batch

        with SyncCluster(self._settings.connection) as cluster:
            return [RangePartition(wanted) for wanted in plan_batch(cluster, self._settings, self._bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task. Errors as `read_range`."""
        from kraft.client.spark.topics.range_reader import read_range

        if isinstance(partition, RangePartition):  # where nothing is to be read Spark makes up one of its own
            yield from read_range(self._settings, partition.wanted, self._columns)


def _is_on(one: Filter, column: str) -> bool:
    """Whether a filter, or the one that it negates, is on this column."""
    return getattr(getattr(one, "child", one), "attribute", ()) == (column,)


def _is_range(one: Filter) -> bool:
    return type(one).__name__ in _RANGES and getattr(one, "value", 0) is not None
