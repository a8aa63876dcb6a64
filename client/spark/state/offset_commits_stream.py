"""Spark's stream of table `offset_commits`: that of topic __consumer_offsets, with each record decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from kraft.client.spark.settings import TableSettings
from kraft.client.spark.state.commit_log import decoded, topic_settings
from kraft.client.spark.state.offset_commits import RECORD_COLUMNS
from kraft.client.spark.topics.stream import TopicStreamReader


class OffsetCommitsStreamReader(TopicStreamReader):
    """Commits as they are made. Offsets, limits and what becomes of lost data are the topic's."""

    def __init__(self, settings: TableSettings, columns: Sequence[str]) -> None:
        super().__init__(topic_settings(settings), RECORD_COLUMNS)
        self._table_settings = settings
        self._table_columns = tuple(columns)

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The commits of a task. Errors as the topic's, and WireError."""
        return decoded(self._table_settings, self._table_columns, super().read(partition))
