"""What the scenarios of all clients share: victims, acknowledged inputs, and a reader of what is in the log.

The results of a client are compared with what confluent-kafka reads from the whole log, with either isolation level.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

import confluent_kafka

from kraft.broker.shard.placement import partition_of
from tests.interop.background import Background
from tests.interop.transactions.commands import PARTITIONS, PARTITIONS_RANGE
from tests.interop.transactions.conversation import Conversation
from tests.stages.started_clusters import LocalCluster

TRANSACTION_STATE = "__transaction_state"
TRANSACTION_STATE_PARTITIONS = 50
CONSUMER_OFFSETS = "__consumer_offsets"
READ_SECONDS_MAX = 60
SEEN_SECONDS_MAX = 60
WRITE_PAUSE_S = 0.01

Victim = Callable[[LocalCluster, str, str], int]
"""Which broker to kill, given the cluster, the topic and the transactional id."""


def transaction_coordinator(cluster: LocalCluster, _topic: str, transactional_id: str) -> int:
    return cluster.leader(TRANSACTION_STATE, partition_of(transactional_id, TRANSACTION_STATE_PARTITIONS))


def partition_leader(cluster: LocalCluster, topic: str, _transactional_id: str) -> int:
    return cluster.leader(topic)


def create_topics(cluster: LocalCluster, *topics: str) -> None:
    for topic in topics:
        cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)


@contextmanager
def killed(cluster: LocalCluster, node: int, *topics: str) -> Iterator[None]:
    """Kill a broker for the duration of the context. Afterwards wait until the topics have all replicas in sync."""
    with cluster.killed(node):
        yield
    for topic in (*topics, TRANSACTION_STATE, CONSUMER_OFFSETS):
        cluster.wait_in_sync(topic, 3)


def wait_seen(reader: Conversation, values: set[str]) -> None:
    """Wait until a reader of committed values has printed all of these."""
    reader.wait_until(lambda lines: values <= set(lines), SEEN_SECONDS_MAX)


def produce(bootstrap: str, topic: str, count: int) -> list[str]:
    """Write `input-0`, `input-1`, … to the partitions in turn. Return the values, all of them acknowledged."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures: list[object] = []
    values = [f"input-{number}" for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, None, number % PARTITIONS, lambda error, _message: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None] * count
    return values


class Writer:
    """Writes `input-0`, `input-1`, … to the partitions in turn, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._work = Background(lambda stop: self._write(bootstrap, topic, stop))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is not None:  # the test has failed, and its cluster ends next
            with suppress(Exception):
                self._work.stop()

    def stop(self) -> list[str]:
        """Return the values, all of them acknowledged."""
        return self._work.stop()

    @staticmethod
    def _write(bootstrap: str, topic: str, stop: threading.Event) -> list[str]:
        settings = {"enable.idempotence": True, "reconnect.backoff.max.ms": 300}
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
        failures: list[object] = []
        values: list[str] = []
        while not stop.is_set():
            values.append(f"input-{len(values)}")
            partition = len(values) % PARTITIONS
            producer.produce(topic, values[-1], None, partition, lambda error, _message: failures.append(error))
            producer.poll(WRITE_PAUSE_S)
        assert producer.flush(30) == 0
        assert failures == [None] * len(values)
        return values


def read_log(bootstrap: str, topic: str, *, isolation: str) -> Counter[str]:
    """Return how often each value is in the topic now, as confluent-kafka reads it with this isolation level."""
    return Counter(value for _, value in read_pairs(bootstrap, topic, isolation=isolation))


def read_pairs(bootstrap: str, topic: str, *, isolation: str) -> list[tuple[str, str]]:
    """Return key and value of each record in the topic now. The key is empty if there is none."""
    settings = {"group.id": "none", "isolation.level": isolation, "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in PARTITIONS_RANGE])
    pairs: list[tuple[str, str]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} was not read to its end in {READ_SECONDS_MAX} s"
        for message in consumer.consume(500, 0.2):
            error = message.error()
            if error is None:
                pairs.append((str(message.key() or b"", "ascii"), str(message.value(), "ascii")))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return pairs


def wait_until(is_enough: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition holds, which is examined twice a second. Raise TimeoutError."""
    deadline = time.monotonic() + seconds
    while not is_enough():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition does not hold after {seconds} s")
        time.sleep(0.5)
