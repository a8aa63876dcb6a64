"""The Spark format `kraft`: choose the reader or writer for a user's options.

Spark makes an object of this class in each worker process that plans or runs a query. All other modules are imported
where they are used, so that a process loads only what its part of the query needs.
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
    """Data source behind `spark.read.format("kraft")`: with option `table` a state table of the cluster, otherwise
    records of topics."""

    @classmethod
    def name(cls) -> str:
        return "kraft"

    def schema(self) -> str:
        """Return the columns that the options select, as DDL. Raises OptionError for invalid options."""
        from kraft.client.spark.options import declared_schema

        return declared_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader. Raises OptionError for invalid options or columns."""
        settings = self._read_settings(is_stream=False)
        columns = self._columns(schema)
        if isinstance(settings, TableSettings):
            from kraft.client.spark.state.reader import table_reader

            return table_reader(settings, columns)
        from kraft.client.spark.topics.reader import TopicReader

        return TopicReader(settings, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream reader. Raises OptionError for invalid options or columns, and for tables that have no
        stream."""
        settings = self._read_settings(is_stream=True)
        columns = self._columns(schema)
        if isinstance(settings, TableSettings):
            from kraft.client.spark.state.reader import table_stream_reader

            return table_stream_reader(settings, columns)
        from kraft.client.spark.topics.stream import TopicStreamReader

        return TopicStreamReader(settings, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the batch writer. Raises OptionError for invalid options or columns, and for `overwrite`: a topic is
        append-only."""
        from kraft.client.spark.options import OptionError
        from kraft.client.spark.sink.writer import TopicWriter

        if overwrite:
            raise OptionError('a topic cannot be overwritten: use mode("append")')
        return TopicWriter(self._sink_settings(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the stream writer, with the same errors as `writer`; Spark sets `overwrite` in the output mode
        "complete"."""
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
        """Return the columns of the schema with which Spark reads: those of the declared schema or, if the user gives a
        schema, some of them in any order. The OptionError names a column that is unknown or has another type."""
        from kraft.client.spark.options import check_schema

        return check_schema(self.options, schema)


def _warn_of(names: Iterable[str]) -> None:
    """Log one line that lists the options accepted without effect, in the worker that plans the query."""
    ineffective = ", ".join(names)
    if ineffective:
        _log.warning("options without effect here: %s", ineffective)
