"""Synchronous: write the rows of one task of a sink, without Spark, at least once or exactly once.

At least once: if a task fails after writing, Spark runs it again, and it writes all of its rows again. Exactly once:
the rows and the task's progress are written in one transaction. When a batch is repeated, its rows are compared with
the progress instead of being written again.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.settings import SinkSettings
from kraft.client.spark.sink.batches import OpenBatches
from kraft.client.spark.sink.column_encoder import record_sizes_max
from kraft.client.spark.sink.partition_choice import PartitionChoice
from kraft.client.spark.sink.producer import SyncProducer, WriteFailed
from kraft.client.spark.sink.progress import ProgressLog, TaskProgress, wait_progress
from kraft.client.spark.sink.rows import Checksum, MarkOrigin, SinkColumns, pieces, read_rows
from kraft.client.spark.sink.transactions import Transaction, is_fenced, transactional_id


class ReplayedRowsDiffer(Exception):
    """The rows of a repeated batch differ from those already committed. The message says how they differ, and what to
    do."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """A task's report: the number of rows of its Spark partition and, with transactions, their checksum. `is_replay`:
    the rows were already in the log, and nothing was written."""

    origin: MarkOrigin
    rows: int
    crc: int = 0
    is_replay: bool = False


class RowWriter:
    """Writes the rows of one Spark partition to a producer, in their order."""

    def __init__(
        self,
        cluster: SyncCluster,
        producer: SyncProducer,
        settings: SinkSettings,
        columns: SinkColumns,
        origin: MarkOrigin,
    ) -> None:
        self._cluster = cluster
        self._producer = producer
        self._settings = settings
        self._columns = columns
        self._origin = origin if settings.mark_records else None
        self._row = 0
        self._choice = PartitionChoice(self._partition_count, self._available, random.randrange, self._waiting_bytes)
        self._filling = OpenBatches(
            producer,
            batch_bytes=settings.batch_bytes,
            open_bytes_max=max(settings.buffer_bytes // 2, settings.batch_bytes),
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode the rows, and send the Kafka batches that are full. Raises RowError, WriteFailed,
        ClusterUnreachable."""
        for piece in pieces(batch):
            rows = read_rows(
                piece,
                self._columns,
                topic=self._settings.topic,
                first_row=self._row,
                now_ms=self._producer.wall_ms(),
                origin=self._origin,
            )
            partitions = self._choice.choose(rows, record_sizes_max(rows.columns), self._row)
            self._filling.add(rows.columns, rows.topics, rows.topic_of, partitions)
            self._row += piece.num_rows

    def finish(self) -> None:
        """Send the remaining batches, and wait until all are acknowledged. Raises WriteFailed."""
        self._filling.finish()
        self._producer.finish()

    def _partition_count(self, topic: str) -> int:
        return len(self._leaders(topic))

    def _available(self, topic: str) -> list[int]:
        return [index for index, leader in self._leaders(topic).items() if leader >= 0]

    def _leaders(self, topic: str) -> Mapping[int, int]:
        known = self._cluster.topics.get(topic)
        if known is None:
            known = self._cluster.wait_topics([topic])[topic]
        return {index: leader.node_id for index, leader in known.leaders.items()}

    def _waiting_bytes(self, topic: str, partition: int) -> int:
        return self._producer.waiting_bytes(topic, partition) + self._filling.open_bytes(topic, partition)


def sink_name(settings: SinkSettings) -> str:
    """Return the name of a query's destination, as the progress log records it for exactly-once writes."""
    return f"{settings.topic or 'the topics of its rows'} under {settings.transactional_id_prefix}"


def write_at_least_once(
    settings: SinkSettings, columns: SinkColumns, batches: Iterable[pa.RecordBatch], origin: MarkOrigin
) -> WrittenRows:
    """Write the rows of a task with an idempotent producer. Raises RowError, WriteFailed, KafkaError,
    ClusterUnreachable."""
    rows = 0
    with SyncCluster(settings.connection) as cluster:
        producer = SyncProducer(cluster, settings)
        writer = RowWriter(cluster, producer, settings, columns, origin)
        for batch in batches:
            writer.write(batch)
            rows += batch.num_rows
        writer.finish()
    return WrittenRows(origin, rows)


def write_exactly_once(
    settings: SinkSettings, columns: SinkColumns, batches: Iterable[pa.RecordBatch], origin: MarkOrigin
) -> WrittenRows:
    """Write the rows of a task and its progress in one transaction. If the progress shows that the batch is already
    committed, only compare the rows with it.

    Raises the errors of `write_at_least_once`, and TransactionsMissing, Fenced, ReplayedRowsDiffer."""
    assert settings.transactional_id_prefix is not None
    identifier = transactional_id(settings.transactional_id_prefix, origin.query_id, origin.partition)
    with SyncCluster(settings.connection) as cluster:
        transaction = Transaction(cluster, identifier, timeout_ms=settings.transaction_timeout_ms)
        # before the progress is read, so that an earlier attempt of the task cannot change the progress any more
        transaction.begin()
        log = ProgressLog(cluster, settings.progress_topic)
        log.ensure()
        done = log.read(origin.query_id).get(origin.partition)
        if done is not None and done.sink != sink_name(settings):
            raise ReplayedRowsDiffer(
                f"query {origin.query_id} has written to {done.sink} before, and now it would write to "
                f"{sink_name(settings)}: its checkpoint was copied, or topic or transactionalIdPrefix was changed. "
                "Give each query a checkpoint of its own, and keep both options as long as it runs. Nothing was written"
            )
        if done is not None and done.batch_id >= origin.batch_id:
            return _compare(done, columns, batches, origin)
        try:
            written = _write_transaction(cluster, transaction, log, settings, columns, batches, origin)
            transaction.commit()
        except BaseException as failure:
            with contextlib.suppress(KafkaError, OSError):
                transaction.abort()  # otherwise readers would wait until the transaction times out
            if isinstance(failure, WriteFailed) and is_fenced(failure.code):
                raise transaction.fenced(failure.code) from failure
            raise
    return written


def _write_transaction(
    cluster: SyncCluster,
    transaction: Transaction,
    log: ProgressLog,
    settings: SinkSettings,
    columns: SinkColumns,
    batches: Iterable[pa.RecordBatch],
    origin: MarkOrigin,
) -> WrittenRows:
    producer = SyncProducer(cluster, settings, transaction)
    writer = RowWriter(cluster, producer, settings, columns, origin)
    checksum = Checksum()
    for batch in batches:
        checksum.update(batch, columns)
        writer.write(batch)
    writer.finish()
    progress = TaskProgress(origin.batch_id, checksum.rows, checksum.value, sink_name(settings))
    producer.send(log.place_of(origin.query_id), log.record(origin.query_id, origin.partition, progress))
    producer.finish()
    return WrittenRows(origin, checksum.rows, checksum.value)


def _compare(
    done: TaskProgress, columns: SinkColumns, batches: Iterable[pa.RecordBatch], origin: MarkOrigin
) -> WrittenRows:
    """Check that the number and checksum of the rows equal those of the committed batch."""
    where = f"query {origin.query_id}, batch {origin.batch_id}, Spark partition {origin.partition}"
    if done.batch_id > origin.batch_id:
        raise ReplayedRowsDiffer(
            f"{where}: batch {done.batch_id} was committed already. The checkpoint is older than the topic: "
            "restore the newer one, or start a query with a checkpoint of its own"
        )
    checksum = Checksum()
    for batch in batches:
        checksum.update(batch, columns)
    if (checksum.rows, checksum.value) != (done.rows, done.crc):
        raise ReplayedRowsDiffer(
            f"{where}: {done.rows} rows (checksum {done.crc:08x}) were committed before Spark ran the batch again, and "
            f"now there are {checksum.rows} (checksum {checksum.value:08x}). Exactly once needs a query that gives the "
            "same rows in the same Spark partitions each time: no rand(), no join with a table that changes, no other "
            "minPartitions. Nothing was written"
        )
    return WrittenRows(origin, checksum.rows, checksum.value, is_replay=True)


def check_committed(settings: SinkSettings, written: Iterable[WrittenRows]) -> None:
    """Check that the reports of a batch's tasks equal the progress in the log: the same Spark partitions with the same
    rows.

    Raises ReplayedRowsDiffer if they differ, because the batch was repeated with other partitions; KafkaError,
    ClusterUnreachable."""
    reports = {one.origin.partition: one for one in written}
    if not reports:
        return
    origin = next(iter(reports.values())).origin
    with SyncCluster(settings.connection) as cluster:
        log = ProgressLog(cluster, settings.progress_topic)
        timeout_ms = settings.connection.request_timeout_ms
        found = wait_progress(log, origin.query_id, origin.batch_id, set(reports), timeout_ms)
    committed = {index: one for index, one in found.items() if one.batch_id == origin.batch_id}
    sink = sink_name(settings)
    expected = {index: TaskProgress(origin.batch_id, one.rows, one.crc, sink) for index, one in reports.items()}
    wrong = sorted(index for index in committed.keys() | expected.keys() if committed.get(index) != expected.get(index))
    if wrong:
        raise ReplayedRowsDiffer(
            f"query {origin.query_id}, batch {origin.batch_id}: Spark partitions {', '.join(map(str, wrong))} differ "
            f"from what {settings.progress_topic} has: {len(committed)} partitions are committed there, and "
            f"{len(expected)} were run. The batch was run again with other partitions, and some rows may be written "
            "twice: these stay. Set minPartitions and spark.sql.shuffle.partitions back to what they were and start "
            "the query again, or give it a new checkpoint"
        )
