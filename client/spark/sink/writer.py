"""Synchronous: the sink of topics as Spark calls it, for batch and stream.

Rows arrive as Arrow batches and are encoded column by column. Each task writes by itself: at least once, or with
`transactionalIdPrefix` exactly once. The driver's `commit` does not make rows visible, because each task has already
ended its own transaction. Spark makes a new writer of a stream for each micro-batch, and calls `commit` and `abort` in
other processes than `write`.
Source: pyspark.sql.datasource (Spark 4.2).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kraft.client.spark.settings import SinkSettings
from kraft.client.spark.sink.rows import MarkOrigin, RowError, SinkColumns, find_columns
from kraft.client.spark.sink.task import WrittenRows, check_committed, write_at_least_once, write_exactly_once

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Names of the local properties (QUERY_ID, BATCH_ID) that Spark sets in a task of a streaming query."""


@dataclass
class TaskWritten(WriterCommitMessage):
    """A task's report to the driver, as the message type that Spark requires."""

    written: WrittenRows


class TopicWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query, at least once: a task that fails after writing writes its rows again."""

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        """Check the DataFrame's columns. Raises RowError for columns that a sink cannot write, and if exactly once is
        requested, which a batch write does not support."""
        self._settings = settings
        self._columns = columns_of(schema, settings)
        if settings.transactional_id_prefix is not None:
            raise RowError(
                "transactionalIdPrefix is for streams: a batch write has no checkpoint by which it could be run again. "
                "Leave it out and set markRecords=true, or use writeStream with trigger(availableNow=True)"
            )
        self._write_id = uuid.uuid4().hex
        """Query id in marks, the same for all tasks and attempts of this write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a Spark partition. Raises RowError, WriteFailed, KafkaError, ClusterUnreachable."""
        origin = MarkOrigin(self._write_id, 0, _task().partitionId())
        return TaskWritten(write_at_least_once(self._settings, self._columns, iterator, origin))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of rows, which are already in their topics."""
        reports = _reports(messages)
        log.info("%d rows written by %d tasks", sum(one.rows for one in reports), len(reports))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the failure. Rows that tasks have already written remain in their topics."""
        log.warning("a write failed; %d of its tasks had written their rows, which stay", len(_reports(messages)))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a micro-batch: at least once, or with `transactionalIdPrefix` exactly once."""

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        """Check the DataFrame's columns. Raises RowError for columns that a sink cannot write."""
        self._settings = settings
        self._columns = columns_of(schema, settings)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a Spark partition. Raises the errors of TopicWriter, and TransactionsMissing, Fenced,
        ReplayedRowsDiffer."""
        task = _task()
        origin = MarkOrigin(_property(task, QUERY_ID), int(_property(task, BATCH_ID)), task.partitionId())
        write = write_at_least_once if self._settings.transactional_id_prefix is None else write_exactly_once
        return TaskWritten(write(self._settings, self._columns, iterator, origin))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """With transactions, compare the tasks' reports with their committed progress. Raises ReplayedRowsDiffer."""
        reports = _reports(messages)
        if self._settings.transactional_id_prefix is not None:
            check_committed(self._settings, reports)
        replayed = sum(one.is_replay for one in reports)
        rows = sum(one.rows for one in reports)
        log.info("batch %d: %d rows by %d tasks, %d of them written before", batchId, rows, len(reports), replayed)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the failure. When Spark repeats the micro-batch, rows of tasks that have committed are compared instead
        of written again."""
        log.warning("batch %d failed; %d of its tasks had written their rows", batchId, len(_reports(messages)))


def columns_of(schema: StructType, settings: SinkSettings) -> SinkColumns:
    """Find the sink's columns in a schema. Raises RowError if there is no column `value`, no topic, or a column has a
    wrong type."""
    return find_columns(((field.name, field.dataType.simpleString()) for field in schema.fields), settings.topic)


def _reports(messages: list[WriterCommitMessage | None]) -> list[WrittenRows]:
    return [message.written for message in messages if isinstance(message, TaskWritten)]


def _task() -> TaskContext:
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        raise RuntimeError("a sink writes in a task of Spark only")
    return task


def _property(task: TaskContext, name: str) -> str:
    value = task.getLocalProperty(name)
    if value is None:
        raise RuntimeError(f"Spark gives no {name}: this task belongs to no streaming query")
    return value
