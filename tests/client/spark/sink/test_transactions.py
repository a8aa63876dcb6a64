"""Tests of exactly-once writes by transactions, against Apache Kafka, without Spark: repeated batches, fenced attempts,
killed tasks.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.settings import ConnectionSettings, SinkSettings
from kraft.client.spark.sink.producer import SyncProducer, WriteFailed
from kraft.client.spark.sink.progress import ProgressDamaged, ProgressLog, TaskProgress
from kraft.client.spark.sink.rows import MarkOrigin, SinkColumns
from kraft.client.spark.sink.task import ReplayedRowsDiffer, RowWriter, WrittenRows, check_committed, write_exactly_once
from kraft.client.spark.sink.transactions import Fenced, Transaction, delete_progress, transactional_id
from kraft.seam import Address
from tests.interop.kafka_nodes import kafka_running

pytestmark = pytest.mark.interop

VALUE = SinkColumns(value=0)
PREFIX = "sink"
PARTITIONS = 2


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with kafka_running() as address:
        yield address


@pytest.fixture
def query() -> str:
    return secrets.token_hex(8)


@pytest.fixture
def settings(bootstrap: str, query: str) -> SinkSettings:
    """Return settings of a sink that writes to a new topic named like the query."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(query, PARTITIONS, 1)])[query].result(20)
    return settings_of(bootstrap, query)


def settings_of(bootstrap: str, topic: str) -> SinkSettings:
    host, port = bootstrap.split(":")
    connection = ConnectionSettings(bootstrap=(Address(host, int(port)),))
    return SinkSettings(connection=connection, topic=topic, transactional_id_prefix=PREFIX)


def rows(*values: str) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["value"])]


def read(bootstrap: str, topic: str, partitions: int = PARTITIONS, isolation: str = "read_committed") -> list[str]:
    """Return the sorted values of a topic, as a consumer with this isolation level reads them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[str] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append((message.value() or b"").decode())
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return sorted(found)


def progress_of(settings: SinkSettings, query: str) -> dict[int, TaskProgress]:
    with SyncCluster(settings.connection) as cluster:
        return ProgressLog(cluster, settings.progress_topic).read(query)


class Interrupted(Exception):
    pass


def begun(settings: SinkSettings, origin: MarkOrigin, *values: str) -> tuple[SyncCluster, Transaction]:
    """Start an attempt that writes these rows in a transaction, and leave the transaction open."""
    cluster = SyncCluster(settings.connection)
    identifier = transactional_id(PREFIX, origin.query_id, origin.partition)
    transaction = Transaction(cluster, identifier, timeout_ms=settings.transaction_timeout_ms)
    transaction.begin()
    writer = RowWriter(cluster, SyncProducer(cluster, settings, transaction), settings, VALUE, origin)
    for batch in rows(*values):
        writer.write(batch)
    writer.finish()
    return cluster, transaction


def test_exactly_once_repeated_batch_is_compared_with_the_progress_and_not_written_again(
    bootstrap: str, settings: SinkSettings, query: str
) -> None:
    origin = MarkOrigin(query, 0, 1)
    first = write_exactly_once(settings, VALUE, rows("a", "b", "c"), origin)
    again = write_exactly_once(settings, VALUE, [*rows("a"), *rows("b", "c")], origin)
    assert (first.rows, first.is_replay) == (3, False)
    assert (again.rows, again.crc, again.is_replay) == (3, first.crc, True)
    assert read(bootstrap, query) == ["a", "b", "c"]
    write_exactly_once(settings, VALUE, rows("d"), MarkOrigin(query, 1, 1))
    assert read(bootstrap, query) == ["a", "b", "c", "d"]
    assert progress_of(settings, query)[1][:2] == (1, 1)


@pytest.mark.parametrize("other", [("a", "x"), ("a",), ("b", "a")])
def test_exactly_once_repeated_batch_with_other_rows_fails(
    bootstrap: str, settings: SinkSettings, query: str, other: tuple[str, ...]
) -> None:
    write_exactly_once(settings, VALUE, rows("a", "b"), MarkOrigin(query, 0, 0))
    with pytest.raises(ReplayedRowsDiffer, match=rf"batch 0, Spark partition 0: 2 rows .* now there are {len(other)}"):
        write_exactly_once(settings, VALUE, rows(*other), MarkOrigin(query, 0, 0))
    assert read(bootstrap, query) == ["a", "b"]


def test_exactly_once_batch_older_than_the_committed_progress_fails(settings: SinkSettings, query: str) -> None:
    write_exactly_once(settings, VALUE, rows("a"), MarkOrigin(query, 5, 0))
    with pytest.raises(ReplayedRowsDiffer, match="batch 5 was committed already"):
        write_exactly_once(settings, VALUE, rows("a"), MarkOrigin(query, 4, 0))


def test_exactly_once_attempt_that_dies_before_its_commit_leaves_no_committed_rows(
    bootstrap: str, settings: SinkSettings, query: str
) -> None:
    origin = MarkOrigin(query, 0, 0)
    cluster, _ = begun(settings, origin, "lost-1", "lost-2")
    cluster.close()
    write_exactly_once(settings, VALUE, rows("a"), origin)
    assert read(bootstrap, query) == ["a"]
    assert read(bootstrap, query, isolation="read_uncommitted") == ["a", "lost-1", "lost-2"]


def test_exactly_once_task_that_fails_while_writing_aborts_its_transaction_at_once(
    bootstrap: str, settings: SinkSettings, query: str
) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array(["x" * 1_000] * 10_000)], names=["value"])
        raise Interrupted

    with pytest.raises(Interrupted):
        write_exactly_once(settings, VALUE, failing(), MarkOrigin(query, 0, 0))
    assert read(bootstrap, query) == []
    assert len(read(bootstrap, query, isolation="read_uncommitted")) > 0
    assert progress_of(settings, query) == {}


def test_exactly_once_attempt_is_fenced_by_the_next_attempt(bootstrap: str, settings: SinkSettings, query: str) -> None:
    origin = MarkOrigin(query, 0, 0)
    cluster, zombie = begun(settings, origin, "zombie")
    write_exactly_once(settings, VALUE, rows("a"), origin)
    with pytest.raises(Fenced, match="another attempt of this task has begun"):
        zombie.commit()
    with pytest.raises((Fenced, WriteFailed)):
        writer = RowWriter(cluster, SyncProducer(cluster, settings, zombie), settings, VALUE, origin)
        writer.write(rows("late")[0])
        writer.finish()
    cluster.close()
    assert read(bootstrap, query) == ["a"]


@pytest.mark.parametrize("change", [{"topic": "another"}, {"transactional_id_prefix": "another"}])
def test_exactly_once_query_with_a_copied_checkpoint_and_another_sink_is_rejected(
    settings: SinkSettings, query: str, change: dict[str, str]
) -> None:
    write_exactly_once(settings, VALUE, rows("a"), MarkOrigin(query, 0, 0))
    for batch_id in (0, 1):
        with pytest.raises(ReplayedRowsDiffer, match="its checkpoint was copied, or topic or transactionalIdPrefix"):
            write_exactly_once(replace(settings, **change), VALUE, rows("a"), MarkOrigin(query, batch_id, 0))


def test_transaction_looks_up_its_coordinator_again_if_metadata_no_longer_lists_it(
    bootstrap: str, settings: SinkSettings, query: str
) -> None:
    cluster, transaction = begun(settings, MarkOrigin(query, 0, 0), "a")
    cluster.brokers.clear()  # the metadata lacks the coordinator, as after a refresh while it was killed
    transaction.commit()
    cluster.close()
    assert read(bootstrap, query) == ["a"]


KILLED = """
import os, signal, sys
from tests.client.spark.sink.test_transactions import VALUE, rows, settings_of
from kraft.client.spark.sink import task as sink_task
from kraft.client.spark.sink.rows import MarkOrigin
from kraft.client.spark.sink.transactions import Transaction

commit = Transaction.commit
def killed(transaction):
    if sys.argv[3] == "after":
        commit(transaction)
    os.kill(os.getpid(), signal.SIGKILL)
Transaction.commit = killed
settings, origin = settings_of(sys.argv[1], sys.argv[2]), MarkOrigin(sys.argv[2], 7, 3)
sink_task.write_exactly_once(settings, VALUE, rows("a", "b"), origin)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_exactly_once_task_killed_before_or_after_its_commit_writes_its_rows_once(
    bootstrap: str, settings: SinkSettings, query: str, when: str
) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", KILLED, bootstrap, query, when], env=environment, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    again = write_exactly_once(settings, VALUE, rows("a", "b"), MarkOrigin(query, 7, 3))
    assert again.is_replay == (when == "after")
    assert read(bootstrap, query) == ["a", "b"]


def test_sink_progress_of_a_task_is_readable_despite_open_transactions_of_other_tasks(
    bootstrap: str, settings: SinkSettings, query: str
) -> None:
    with SyncCluster(settings.connection) as cluster:
        log = ProgressLog(cluster, settings.progress_topic)
        log.ensure()
        identifier = transactional_id(PREFIX, query, 9)
        other = Transaction(cluster, identifier, timeout_ms=60_000)
        other.begin()
        producer = SyncProducer(cluster, settings, other)
        producer.send(log.place_of(query), log.record(query, 9, TaskProgress(0, 1, 2)))
        producer.finish()
        origin = MarkOrigin(query, 0, 0)
        write_exactly_once(settings, VALUE, rows("a"), origin)
        assert write_exactly_once(settings, VALUE, rows("a"), origin).is_replay
        assert set(log.read(query)) == {0}
        other.abort()
        assert set(log.read(query)) == {0}
    assert read(bootstrap, query) == ["a"]


def test_sink_progress_record_in_an_unknown_format_is_rejected(settings: SinkSettings, query: str) -> None:
    with SyncCluster(settings.connection) as cluster:
        log = ProgressLog(cluster, settings.progress_topic)
        log.ensure()
        producer = SyncProducer(cluster, settings)
        records = log.record(query, 0, TaskProgress(0, 0, 0))
        records.buffer = records.buffer.replace(b"batchId", b"batchNo")
        producer.send(log.place_of(query), records)
        producer.finish()
        with pytest.raises(ProgressDamaged, match=f"no progress of a task in the record with key b'{query}/0'"):
            log.read(query)


def test_exactly_once_commit_fails_for_a_batch_repeated_with_other_spark_partitions(
    settings: SinkSettings, query: str
) -> None:
    written = [
        write_exactly_once(settings, VALUE, rows(f"{partition}"), MarkOrigin(query, 0, partition))
        for partition in range(3)
    ]
    check_committed(settings, written)
    with pytest.raises(ReplayedRowsDiffer, match="Spark partitions 2 differ"):
        check_committed(settings, written[:2])
    with pytest.raises(ReplayedRowsDiffer, match="Spark partitions 1 differ"):
        check_committed(settings, [written[0], WrittenRows(written[1].origin, 5, written[1].crc), written[2]])


def test_deleting_the_sink_progress_of_a_query_keeps_the_progress_of_other_queries(
    settings: SinkSettings, query: str
) -> None:
    for partition in range(3):
        write_exactly_once(settings, VALUE, rows("a"), MarkOrigin(query, 0, partition))
    write_exactly_once(settings, VALUE, rows("a"), MarkOrigin(f"{query}x", 0, 0))
    assert delete_progress(settings.connection, query) == 3
    assert progress_of(settings, query) == {}
    assert set(progress_of(settings, f"{query}x")) == {0}
    assert delete_progress(settings.connection, query) == 0


def test_sink_progress_is_stored_as_json_in_a_compacted_topic(
    bootstrap: str, settings: SinkSettings, query: str
) -> None:
    written = write_exactly_once(settings, VALUE, rows("a", "b"), MarkOrigin(query, 3, 0))
    values = [json.loads(value) for value in read(bootstrap, settings.progress_topic, 8) if value]
    expected = {"batchId": 3, "rows": 2, "crc": f"{written.crc:08x}", "sink": f"{query} under {PREFIX}"}
    assert expected in values
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = confluent_kafka.admin.ConfigResource("topic", settings.progress_topic)
    found: Any = admin.describe_configs([resource])[resource].result(10)
    assert found["cleanup.policy"].value == "compact"
