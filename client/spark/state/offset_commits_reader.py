"""Spark's reader of table `offset_commits`, which reads the topic __consumer_offsets and decodes each record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import Filter, InputPartition

from kraft.client.spark.settings import TableSettings
from kraft.client.spark.state.commit_log import decoded, plan_commits, topic_settings
from kraft.client.spark.state.offset_commits import RECORD_COLUMNS
from kraft.client.spark.topics.reader import RangePartition, TopicReader


class OffsetCommitsReader(TopicReader):
    """Reads the commits that are in the topic when the query is planned."""

    def __init__(self, settings: TableSettings, columns: Sequence[str]) -> None:
        super().__init__(topic_settings(settings), RECORD_COLUMNS)
        self._table_settings = settings
        self._table_columns = tuple(columns)

    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Return all filters to Spark, because they are on columns of commits and not of the topic's records."""
        return filters

    def partitions(self) -> list[InputPartition]:
        """Return a task per range of offsets. Raises the errors of `plan_commits`."""
        return [RangePartition(wanted) for wanted in plan_commits(self._settings)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read the commits of a task. Raises the errors of reading a topic, and WireError."""
        return decoded(self._table_settings, self._table_columns, super().read(partition))
