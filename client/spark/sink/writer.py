"""Synchronous: the sink of topics, as Spark calls it: batch and stream.

Rows come as Arrow batches and are encoded column by column. Each task writes by itself; at least once, or with
`transactionalIdPrefix` exactly once. A driver's `commit` has nothing to make visible: each task has ended its own
transaction. Spark makes a stream's writer anew for each batch, and calls `commit` and `abort` in other processes than
`write`.
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
from kraft.client.spark.sink.task import Written, check_committed, write_at_least_once, write_exactly_once

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties of a task of a streaming query."""


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task reports to the driver."""

    written: Written


class TopicWriter(DataSourceArrowWriter):
    """The rows of a batch query, at least once: a task that fails after it has written writes again."""

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        """RowError for columns that a sink cannot write, or an exactly once that a batch cannot have."""
        self._settings = settings
        self._columns = columns_of(schema, settings)
        if settings.transactional_id_prefix is not None:
            raise RowError(
                "transactionalIdPrefix is for streams: a batch write has no checkpoint by which it could be run again. "
                "Leave it out and set markRecords=true, or use writeStream with trigger(availableNow=True)"
            )
        self._write_id = uuid.uuid4().hex
        """Stands for the query id in marks; the same for all tasks and attempts of this write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a Spark partition. RowError, WriteFailed, KafkaError, ClusterUnreachable."""
        origin = MarkOrigin(self._write_id, 0, _task().partitionId())
        return TaskWritten(write_at_least_once(self._settings, self._columns, iterator, origin))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log how many rows there were: they are in their topics already."""
        reports = _reports(messages)
        log.info("%d rows written by %d tasks", sum(one.rows for one in reports), len(reports))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log it: what tasks have written stays."""
        log.warning("a write failed; %d of its tasks had written their rows, which stay", len(_reports(messages)))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """The rows of a micro-batch: at least once, or with `transactionalIdPrefix` exactly once."""

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        """RowError for columns that a sink cannot write."""
        self._settings = settings
        self._columns = columns_of(schema, settings)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a Spark partition. As TopicWriter, and TransactionsMissing, Fenced, NotTheSameRows."""
        task = _task()
        origin = MarkOrigin(_property(task, QUERY_ID), int(_property(task, BATCH_ID)), task.partitionId())
        write = write_at_least_once if self._settings.transactional_id_prefix is None else write_exactly_once
        return TaskWritten(write(self._settings, self._columns, iterator, origin))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """With transactions: compare what the tasks report with their committed progress. NotTheSameRows."""
        reports = _reports(messages)
        if self._settings.transactional_id_prefix is not None:
            check_committed(self._settings, reports)
        replayed = sum(one.is_replay for one in reports)
        rows = sum(one.rows for one in reports)
        log.info("batch %d: %d rows by %d tasks, %d of them written before", batchId, rows, len(reports), replayed)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log it: committed tasks are compared, not written again, when the batch is run again."""
        log.warning("batch %d failed; %d of its tasks had written their rows", batchId, len(_reports(messages)))


def columns_of(schema: StructType, settings: SinkSettings) -> SinkColumns:
    """Where the sink's columns are. RowError if there is no `value`, no topic, or a wrong type."""
    return find_columns(((field.name, field.dataType.simpleString()) for field in schema.fields), settings.topic)


def _reports(messages: list[WriterCommitMessage | None]) -> list[Written]:
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
