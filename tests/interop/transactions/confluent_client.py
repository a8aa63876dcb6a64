"""The transactional program of confluent-kafka. The module `commands` describes its arguments and output."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from tests.interop.transactions.commands import (
    BATCH_RECORDS_MAX,
    COPIED,
    PARTITIONS_RANGE,
    SESSION_MS,
    Abortable,
    Fenced,
    carry_out,
    report,
    run,
    standard_input_ends,
)

POLL_S = 0.1
CALL_SECONDS_MAX = 30
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
COMMON = {"reconnect.backoff.max.ms": 300}


class ConfluentProducer:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        self._producer = confluent_kafka.Producer({**COMMON, **settings})
        self._failures: list[KafkaError] = []

    def init(self) -> None:
        _call(self._producer.init_transactions, CALL_SECONDS_MAX)

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def send(self, topic: str, records: list[tuple[int, str]]) -> None:
        self._failures.clear()
        for partition, value in records:
            _call(self._producer.produce, topic, value, None, partition, self._delivered)
        left = self._producer.flush(CALL_SECONDS_MAX)
        if self._failures:
            raise _translated(self._failures[0])
        if left:
            raise TimeoutError(f"{left} records were not acknowledged after {CALL_SECONDS_MAX} s")

    def send_offsets(self, consumer: confluent_kafka.Consumer) -> None:
        places = consumer.position(consumer.assignment())
        _call(self._producer.send_offsets_to_transaction, places, consumer.consumer_group_metadata(), CALL_SECONDS_MAX)

    def commit(self) -> None:
        _call(self._producer.commit_transaction, CALL_SECONDS_MAX)

    def abort(self) -> None:
        _call(self._producer.abort_transaction, CALL_SECONDS_MAX)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failures.append(error)


def _call(function: Callable[..., object], *arguments: object) -> None:
    """Call again while the library says that the call can be repeated."""
    while True:
        try:
            function(*arguments)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if not error.retriable():
                raise _translated(error) from failure
        else:
            return


def _translated(error: KafkaError) -> Exception:
    if error.code() in FENCED:
        return Fenced(error.name())
    if error.txn_requires_abort():
        return Abortable(error.name())
    return KafkaException(error)


def transact(bootstrap: str, topic: str, transactional_id: str) -> None:
    carry_out(ConfluentProducer(bootstrap, transactional_id), topic)


def copy(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    ended = standard_input_ends()
    producer = ConfluentProducer(bootstrap, transactional_id)
    producer.init()
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": SESSION_MS}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 500}
    consumer = confluent_kafka.Consumer({**COMMON, **settings})
    consumer.subscribe([source])
    while not ended.is_set():
        messages = [one for one in consumer.consume(BATCH_RECORDS_MAX, POLL_S) if one.error() is None]
        if not messages:
            continue
        producer.begin()
        producer.send(target, [(one.partition(), COPIED + str(one.value(), "ascii")) for one in messages])
        report("sent")
        producer.send_offsets(consumer)
        report("offsets")
        producer.commit()
        report("committed")
    consumer.close()


def committed(bootstrap: str, topic: str) -> None:
    ended = standard_input_ends()
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**COMMON, **settings})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in PARTITIONS_RANGE])
    while not ended.is_set():
        for message in consumer.consume(500, POLL_S):
            if message.error() is None:
                report(str(message.value(), "ascii"))
    consumer.close()


if __name__ == "__main__":
    run({"transact": transact, "copy": copy, "committed": committed})
