"""Measurements with librdkafka (confluent-kafka) as the client: bulk produce, consume, single records, a fixed rate."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.bench.bare import Bulk
from tests.stages.started_clusters import LocalCluster

PAYLOADS = 1000
PARTITION_RUN = 64
"""Number of consecutive records to one partition before the next partition gets records."""
CONSUME_AT_ONCE = 5000


def payloads(size: int) -> list[bytes]:
    """Return different, incompressible values of `size` bytes."""
    chance = random.Random(7)
    return [chance.randbytes(size) for _ in range(PAYLOADS)]


def _bulk(cluster: LocalCluster, value_bytes: int, work: Callable[[], None]) -> Bulk:
    gc.collect()
    # each batch of messages starts the garbage collector, which need not traverse all objects that a benchmark has
    # imported
    gc.freeze()
    try:
        cpu, start = cluster.cpu_seconds(), time.monotonic()
        work()
        seconds = time.monotonic() - start
    finally:
        gc.unfreeze()
    return Bulk(value_bytes / 1e6 / seconds, (cluster.cpu_seconds() - cpu) / (value_bytes / 1e9))


def produce(
    cluster: LocalCluster,
    topic: str,
    *,
    size: int,
    megabytes: int,
    acks: str,
    partitions: int,
    settings: Mapping[str, int] = {},
) -> Bulk:
    """Produce with the default settings of the client, except for `settings`."""
    values = payloads(size)
    count = megabytes * 1_000_000 // size
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,
            **settings,
        }
    )
    producer.list_topics(topic, timeout=10)

    def on_delivery(error: object, _message: Message) -> None:
        failures.append(error)

    def work() -> None:
        for index in range(count):
            partition = index // PARTITION_RUN % partitions
            while True:
                try:
                    producer.produce(topic, values[index % PAYLOADS], None, partition, on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush(90)

    result = _bulk(cluster, count * size, work)
    if failures:
        raise RuntimeError(f"{len(failures)} records were not delivered, first: {failures[0]}")
    return result


def consume(cluster: LocalCluster, topic: str, *, partitions: int, size: int) -> Bulk:
    """Read all records of the topic from the start, by assignment."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 262_144,
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 10,
        }
    )
    places = [TopicPartition(topic, index) for index in range(partitions)]
    total = sum(high - low for low, high in (consumer.get_watermark_offsets(place, timeout=10) for place in places))
    got = 0

    def work() -> None:
        nonlocal got
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        while got < total:
            messages = consumer.consume(min(CONSUME_AT_ONCE, total - got), 10.0)
            if not messages:
                raise TimeoutError(f"{got} of {total} records came")
            got += sum(1 for message in messages if message.error() is None)

    result = _bulk(cluster, total * size, work)
    consumer.close()
    return result


def _low_latency_producer(cluster: LocalCluster) -> Producer:
    return Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True}
    )


def one_in_flight(cluster: LocalCluster, topic: str, *, size: int, count: int) -> list[float]:
    """Return the seconds from produce to acknowledgement of single records that are sent one after another. The first
    200 are not counted."""
    values = payloads(size)
    producer = _low_latency_producer(cluster)
    seconds = []
    for index in range(count + 200):
        done: list[object] = []
        start = time.perf_counter()
        producer.produce(
            topic, values[index % PAYLOADS], None, 0, lambda error, _message, done=done: done.append(error)
        )
        while not done:
            producer.poll(1)
        if done[0] is not None:
            raise RuntimeError(f"a record was not delivered: {done[0]}")
        seconds.append(time.perf_counter() - start)
    return seconds[200:]


@dataclass(frozen=True, slots=True)
class AtRate:
    """Seconds until the acknowledgement of each record, and the brokers' CPU time as a share of one core."""

    seconds: list[float]
    core_share: float


def at_rate(
    cluster: LocalCluster,
    topic: str,
    *,
    size: int,
    per_second: int,
    duration_s: float,
    is_over: Callable[[], bool] = lambda: False,
) -> AtRate:
    """Send records at a fixed rate, each in its own request, for the given time or until `is_over` returns true.
    `is_over` is called ten times a second."""
    values = payloads(size)
    producer = _low_latency_producer(cluster)
    producer.list_topics(topic, timeout=10)
    seconds: list[float] = []
    cpu, start = cluster.cpu_seconds(), time.monotonic()
    for index in range(int(per_second * duration_s)):
        if index % max(1, per_second // 10) == 0 and is_over():
            break
        due = start + index / per_second
        while (now := time.monotonic()) < due:
            producer.poll(min(0.001, due - now))
        sent = time.perf_counter()
        producer.produce(
            topic,
            values[index % PAYLOADS],
            None,
            0,
            lambda _error, _message, sent=sent: seconds.append(time.perf_counter() - sent),
        )
    producer.flush(60)
    elapsed = time.monotonic() - start
    return AtRate(seconds[len(seconds) // 10 :], (cluster.cpu_seconds() - cpu) / elapsed)
