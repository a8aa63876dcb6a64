"""Spark's reader of table `offset_commits`: that of topic __consumer_offsets, with each record decoded."""

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
        """None are taken over: they are on the columns of commits, not of the topic."""
        return filters

    def partitions(self) -> list[InputPartition]:
        """A task per range of offsets. Errors as `plan_commits`."""
        return [RangePartition(wanted) for wanted in plan_commits(self._settings)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The commits of a task. Errors as the topic's, and WireError."""
        return decoded(self._table_settings, self._table_columns, super().read(partition))
