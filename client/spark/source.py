"""The format `kraft` of Spark: which reader or writer serves the options that a user gave.

Spark makes an object of this class in each worker process that plans or runs a query. Everything else is imported where
it is used, so that a process loads only what its part of the query needs.
Source: pyspark.sql.datasource (Spark 4.2).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from kraft.client.spark.settings import SinkSettings, TableSettings, TopicSettings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_log = logging.getLogger(__name__)


class KraftDataSource(DataSource):
    """`spark.read.format("kraft")`: with the option `table` a state table of the cluster, else records of topics."""

    @classmethod
    def name(cls) -> str:
        return "kraft"

    def schema(self) -> str:
        """The columns that the options ask for, as DDL. OptionError for options that cannot be."""
        from kraft.client.spark.options import declared_schema

        return declared_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """OptionError for options or columns that cannot be."""
        settings = self._read_settings(is_stream=False)
        columns = self._columns(schema)
        if isinstance(settings, TableSettings):
            from kraft.client.spark.state.reader import table_reader

            return table_reader(settings, columns)
        from kraft.client.spark.topics.reader import TopicReader

        return TopicReader(settings, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """OptionError for options or columns that cannot be, and for tables that have no stream."""
        settings = self._read_settings(is_stream=True)
        columns = self._columns(schema)
        if isinstance(settings, TableSettings):
            from kraft.client.spark.state.reader import table_stream_reader

            return table_stream_reader(settings, columns)
        from kraft.client.spark.topics.stream import TopicStreamReader

        return TopicStreamReader(settings, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """OptionError for options or columns that cannot be, and for `overwrite`: a topic is only appended to."""
        from kraft.client.spark.options import OptionError
        from kraft.client.spark.sink.writer import TopicWriter

        if overwrite:
            raise OptionError('a topic cannot be overwritten: use mode("append")')
        return TopicWriter(self._sink_settings(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The same for a stream; Spark asks for `overwrite` in the output mode "complete"."""
        from kraft.client.spark.sink.writer import TopicStreamWriter

        return TopicStreamWriter(self._sink_settings(), schema)

    def _sink_settings(self) -> SinkSettings:
        from kraft.client.spark.options import parse_write, without_effect_on_sink

        _warn_of(without_effect_on_sink(self.options))
        return parse_write(self.options)

    def _read_settings(self, *, is_stream: bool) -> TopicSettings | TableSettings:
        from kraft.client.spark.options import parse_read, without_effect

        _warn_of(without_effect(self.options, is_stream=is_stream))
        return parse_read(self.options, is_stream=is_stream, now_ms=int(time.time() * 1000))

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        """The columns of the schema that Spark reads with: the declared one, or the user's, which may be a part of it
        in any order. OptionError names a column that is not there, or has another type."""
        from kraft.client.spark.options import check_schema

        return check_schema(self.options, schema)


def _warn_of(names: Iterable[str]) -> None:
    """One line in the log of the worker that plans the query."""
    ineffective = ", ".join(names)
    if ineffective:
        _log.warning("options without effect here: %s", ineffective)
