"""The transactional program of aiokafka. The module `commands` describes its arguments and output."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

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

POLL_MS = 100


class AiokafkaProducer:
    """Runs the library in a thread of its own, because it works only while its event loop runs."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._producer = self._call(self._create(bootstrap, transactional_id))

    def init(self) -> None:
        self._call(self._producer.start())

    def begin(self) -> None:
        self._call(self._producer.begin_transaction())

    def send(self, topic: str, records: list[tuple[int, str]]) -> None:
        self._call(_send(self._producer, topic, records))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction())

    def abort(self) -> None:
        self._call(self._producer.abort_transaction())

    @staticmethod
    async def _create(bootstrap: str, transactional_id: str) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except ProducerFenced as error:
            raise Fenced(repr(error)) from error
        except KafkaError as error:
            raise Abortable(repr(error)) from error


async def _send(producer: AIOKafkaProducer, topic: str, records: list[tuple[int, str]]) -> None:
    sent = [await producer.send(topic, value.encode(), partition=partition) for partition, value in records]
    for one in sent:
        await one


def transact(bootstrap: str, topic: str, transactional_id: str) -> None:
    carry_out(AiokafkaProducer(bootstrap, transactional_id), topic)


async def _copy(
    ended: threading.Event, bootstrap: str, source: str, target: str, group: str, transactional_id: str
) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await producer.start()
    await consumer.start()
    while not ended.is_set():
        polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_RECORDS_MAX)
        if not polled:
            continue
        async with producer.transaction():
            records = [record for some in polled.values() for record in some]
            await _send(producer, target, [(one.partition, COPIED + one.value.decode()) for one in records])
            report("sent")
            offsets = {place: some[-1].offset + 1 for place, some in polled.items()}
            await producer.send_offsets_to_transaction(offsets, group)
            report("offsets")
        report("committed")
    await consumer.stop()
    await producer.stop()


def copy(bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
    asyncio.run(_copy(standard_input_ends(), bootstrap, source, target, group, transactional_id))


async def _committed(ended: threading.Event, bootstrap: str, topic: str) -> None:
    places = [TopicPartition(topic, partition) for partition in PARTITIONS_RANGE]
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        while not ended.is_set():
            for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                for record in records:
                    report(record.value.decode())


def committed(bootstrap: str, topic: str) -> None:
    asyncio.run(_committed(standard_input_ends(), bootstrap, topic))


if __name__ == "__main__":
    run({"transact": transact, "copy": copy, "committed": committed})
