"""A reader of everything that is committed in a topic, while it is written."""

from __future__ import annotations

import time
from types import TracebackType
from typing import NamedTuple, Self

import confluent_kafka

READ_RECORDS_MAX = 1_000
READ_S = 0.2


class Record(NamedTuple):
    """Offset, key and value of one record. A missing key is empty."""

    offset: int
    key: bytes
    value: bytes


class CommittedLog:
    """Reads all partitions of a topic from their start, with read_committed. `records` has what was read so far, by
    partition and in order."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.records: list[list[Record]] = [[] for _ in range(partitions)]
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 300,
            "topic.metadata.refresh.interval.ms": 500,
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def values(self) -> list[list[str]]:
        """The values that were read so far, by partition and in order."""
        return [[str(record.value, "ascii") for record in records] for records in self.records]

    def counts(self) -> list[int]:
        """Read what has come meanwhile. Return how many records of each partition were read so far."""
        while len(messages := self._consumer.consume(READ_RECORDS_MAX, READ_S)) == READ_RECORDS_MAX:
            self._take(messages)
        self._take(messages)
        return [len(records) for records in self.records]

    def read_to_end(self, seconds: float) -> None:
        """Read until every partition was at its end once. Raise TimeoutError."""
        deadline = time.monotonic() + seconds
        ended: set[int] = set()
        while len(ended) < len(self.records):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.topic} was not read to its end in {seconds:g} s")
            ended |= self._take(self._consumer.consume(READ_RECORDS_MAX, READ_S))

    def _take(self, messages: list[confluent_kafka.Message]) -> set[int]:
        """Keep the records, and return the partitions of which these messages report the end."""
        ended: set[int] = set()
        for message in messages:
            error = message.error()
            if error is None:
                record = Record(message.offset(), message.key() or b"", message.value() or b"")
                self.records[message.partition()].append(record)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return ended


def read_committed(bootstrap: str, topic: str, partitions: int, seconds: float) -> CommittedLog:
    """Read everything that is committed in a topic now. Raise TimeoutError."""
    with CommittedLog(bootstrap, topic, partitions) as log:
        log.read_to_end(seconds)
    return log
