"""The transactional program of kafka-python. The module `commands` describes its arguments and output."""

from __future__ import annotations

from collections.abc import Callable

import kafka
from kafka.errors import KafkaError, ProducerFencedError

from tests.interop.background import Background
from tests.interop.transactions.commands import (
    BATCH_RECORDS_MAX,
    COPIED,
    PARTITIONS_RANGE,
    SESSION_MS,
    Abortable,
    Fenced,
    UnknownOutcome,
    carry_out,
    report,
    run,
    standard_input_ends,
)

POLL_MS = 100
SEND_SECONDS_MAX = 30
CALL_SECONDS_MAX = 5
"""Maximum seconds of a call. kafka-python 3.0.12 drops a request to a coordinator that refuses the connection, and then
the call never returns."""


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), transactional_id=transactional_id)

    def init(self) -> None:
        _call(self._producer.init_transactions, seconds_max=SEND_SECONDS_MAX)

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def send(self, topic: str, records: list[tuple[int, str]]) -> None:
        _call(self._send, topic, records, seconds_max=SEND_SECONDS_MAX)

    def send_offsets(self, consumer: kafka.KafkaConsumer, offsets: dict[object, object]) -> None:
        _call(self._producer.send_offsets_to_transaction, offsets, consumer.group_metadata())

    def commit(self) -> None:
        _call(self._producer.commit_transaction)

    def abort(self) -> None:
        _call(self._producer.abort_transaction)

    def _send(self, topic: str, records: list[tuple[int, str]]) -> None:
        for sent in [self._producer.send(topic, value.encode(), partition=one) for one, value in records]:
            sent.get(SEND_SECONDS_MAX)


def _call(function: Callable[..., object], *arguments: object, seconds_max: float = CALL_SECONDS_MAX) -> None:
    called = Background(lambda _stop: function(*arguments))
    try:
        called.wait(seconds_max)
    except TimeoutError as error:
        raise UnknownOutcome(f"{function.__name__} did not return") from error
    except ProducerFencedError as error:
        raise Fenced(repr(error)) from error
    except KafkaError as error:
        raise Abortable(repr(error)) from error


def transact(bootstrap: str, topic: str, transactional_id: str) -> None:
    carry_out(KafkaPythonProducer(bootstrap, transactional_id), topic)


def copy(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    ended = standard_input_ends()
    producer = KafkaPythonProducer(bootstrap, transactional_id)
    producer.init()
    consumer = kafka.KafkaConsumer(
        source,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        max_poll_records=BATCH_RECORDS_MAX,
        isolation_level="read_committed",
    )
    while not ended.is_set():
        polled = consumer.poll(timeout_ms=POLL_MS)
        if not polled:
            continue
        producer.begin()
        records = [record for some in polled.values() for record in some]
        producer.send(target, [(one.partition, COPIED + one.value.decode()) for one in records])
        report("sent")
        offsets = {
            place: kafka.OffsetAndMetadata(some[-1].offset + 1, "", some[-1].leader_epoch)
            for place, some in polled.items()
        }
        producer.send_offsets(consumer, offsets)
        report("offsets")
        producer.commit()
        report("committed")
    consumer.close()


def committed(bootstrap: str, topic: str) -> None:
    ended = standard_input_ends()
    places = [kafka.TopicPartition(topic, partition) for partition in PARTITIONS_RANGE]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    while not ended.is_set():
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            for record in records:
                report(record.value.decode())
    consumer.close()


if __name__ == "__main__":
    run({"transact": transact, "copy": copy, "committed": committed})
