"""Spark's stream of table `offset_commits`, which reads the topic __consumer_offsets and decodes each record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from kraft.client.spark.settings import TableSettings
from kraft.client.spark.state.commit_log import decoded, topic_settings
from kraft.client.spark.state.offset_commits import RECORD_COLUMNS
from kraft.client.spark.topics.stream import TopicStreamReader


class OffsetCommitsStreamReader(TopicStreamReader):
    """Reads offset commits as they are written. Offsets, limits and the handling of lost data are those of a topic
    stream."""

    def __init__(self, settings: TableSettings, columns: Sequence[str]) -> None:
        super().__init__(topic_settings(settings), RECORD_COLUMNS)
        self._table_settings = settings
        self._table_columns = tuple(columns)

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read the commits of a task. Raises the errors of reading a topic, and WireError."""
        return decoded(self._table_settings, self._table_columns, super().read(partition))
