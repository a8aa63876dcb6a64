"""Records of topics for the tests of Spark: functions that write and read them by librdkafka, with any cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS_MAX = 30
QUICK_RECONNECT = {"reconnect.backoff.max.ms": 100}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to write. `partition` None: chosen by the key, or at random. `timestamp_ms` None: the time
    of writing."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as stored. `timestamp_type` as in Kafka: 0 is the creation time, 1 the append time."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def numbered(
    count: int, *, start: int = 0, partitions: int | None = None, timestamp_ms: int | None = None
) -> list[Record]:
    """Return records with values `value-0`, …, keys `key-0` to `key-9`, and a header with the record's number. With
    `partitions`, they are distributed round-robin. With `timestamp_ms`, the first record has that time, and each later
    one is a millisecond newer than the previous one."""
    return [
        Record(
            key=b"key-%d" % (number % 10),
            value=b"value-%d" % number,
            headers=(("number", b"%d" % number),),
            partition=None if partitions is None else number % partitions,
            timestamp_ms=None if timestamp_ms is None else timestamp_ms + number - start,
        )
        for number in range(start, start + count)
    ]


def create_topic(
    bootstrap: str, topic: str, *, partitions: int = 4, replication_factor: int = 1, **configs: str | int
) -> None:
    """Create a topic, and wait until each partition has a leader. Settings have `_` for `.`:
    `cleanup_policy="compact"`. Retention by time is off unless `retention_ms` is given, so that records with old
    timestamps are kept."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {"retention.ms": "-1"} | {name.replace("_", "."): str(value) for name, value in configs.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replication_factor, config=named)
    admin.create_topics([new])[topic].result(SECONDS_MAX)
    while True:
        known = admin.list_topics(topic=topic, timeout=SECONDS_MAX).topics[topic].partitions
        if len(known) == partitions and all(one.leader >= 0 for one in known.values()):
            return


def write_records(
    bootstrap: str, topic: str, records: Iterable[Record], *, codec: str = "none", **settings: Any
) -> list[tuple[int, int]]:
    """Write records in this order, and wait for all acknowledgements. Return (partition, offset) of each record.
    `settings` are librdkafka's, with `_` for `.`, for example `batch_num_messages=10`."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True}
        | QUICK_RECONNECT
        | {"linger.ms": 5}
        | named
    )
    stored: dict[int, tuple[int, int]] = {}

    def delivered(number: int, error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        stored[number] = (partition, offset)

    for number, record in enumerate(records):
        options: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        producer.produce(
            topic,
            record.value,
            record.key,
            headers=list(record.headers),
            on_delivery=partial(delivered, number),
            **options,
        )
        producer.poll(0)
    left = producer.flush(SECONDS_MAX)
    assert left == 0, f"{left} records were not acknowledged in {SECONDS_MAX} s"
    return [stored[number] for number in range(len(stored))]


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the high watermark of each partition."""
    with closing(_consumer(bootstrap)) as consumer:
        return {partition: end for partition, _, end in _bounds(consumer, topic)}


def read_records(bootstrap: str, topic: str, *, isolation: str = "read_uncommitted") -> list[StoredRecord]:
    """Return all present records of the topic, ordered by partition and offset."""
    with closing(_consumer(bootstrap, isolation)) as consumer:
        bounds = [(partition, start, end) for partition, start, end in _bounds(consumer, topic) if start < end]
        found = [one for bound in bounds for one in _read_partition(consumer, topic, *bound)]
    return sorted(found, key=lambda one: (one.partition, one.offset))


def _consumer(bootstrap: str, isolation: str = "read_uncommitted") -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
        | QUICK_RECONNECT
    )


def _bounds(consumer: confluent_kafka.Consumer, topic: str) -> Iterator[tuple[int, int, int]]:
    for partition in sorted(consumer.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions):
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)
        yield partition, start, end


def _read_partition(
    consumer: confluent_kafka.Consumer, topic: str, partition: int, start: int, end: int
) -> Iterator[StoredRecord]:
    """Read a partition up to the end that librdkafka reports, because the last offsets may be those of transaction
    markers."""
    consumer.assign([TopicPartition(topic, partition, start)])
    while True:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{topic}-{partition}: nothing for {SECONDS_MAX} s, and its end {end} not reached"
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            return
        kind, timestamp_ms = message.timestamp()
        offset = message.offset()
        assert offset is not None
        yield StoredRecord(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            timestamp_type=kind - 1,  # librdkafka's type 0 is "not available", so its numbers are higher by one
            key=message.key(),
            value=message.value(),
            headers=tuple(cast("list[tuple[str, bytes | None]]", message.headers() or ())),
        )
