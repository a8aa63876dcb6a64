"""Foreign clients behind one interface: create a topic, produce with a codec, produce continuously, read, find by time.

The clients in this module are Python libraries, and kcat. Those in other languages are in `programs`.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from typing import ClassVar, Protocol

import confluent_kafka
import kafka
import kafka.admin
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.background import Stream

PAUSE_S = 0.005
READ_SECONDS_MAX = 60


class ForeignClient(Protocol):
    """One client library. All clients use only partition 0, and values that are text."""

    codecs: ClassVar[tuple[str, ...]]

    def create_topic(self, bootstrap: str, topic: str) -> None: ...
    def produce(self, bootstrap: str, topic: str, codec: str, values: list[str]) -> None: ...
    def stream(self, bootstrap: str, topic: str) -> Stream: ...
    def read(self, bootstrap: str, topic: str) -> list[str]: ...

    def offsets_at(self, bootstrap: str, topic: str, times_ms: list[int]) -> list[int | None]:
        """Return for each time the first offset at or after it. If there is none, return None, or the end offset for a
        library that returns the end offset."""
        ...


class Confluent:
    codecs: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, bootstrap: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(10)

    def produce(self, bootstrap: str, topic: str, codec: str, values: list[str]) -> None:
        failures: list[object] = []
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for value in values:
            producer.produce(topic, value, None, 0, lambda error, _message: failures.append(error))
        assert producer.flush(20) == 0
        assert failures == [None] * len(values)

    def stream(self, bootstrap: str, topic: str) -> Stream:
        def work(stop: threading.Event) -> list[str]:
            acknowledged: list[str] = []
            producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

            def delivered(error: object, message: confluent_kafka.Message) -> None:
                assert error is None, error
                acknowledged.append(str(message.value(), "ascii"))

            number = 0
            while not stop.is_set():
                producer.produce(topic, f"stream-{number}", None, 0, delivered)
                producer.poll(PAUSE_S)
                number += 1
            assert producer.flush(30) == 0
            return acknowledged

        return Stream(work)

    def read(self, bootstrap: str, topic: str) -> list[str]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "interop"})
        end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=20)[1]
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        values: list[str] = []
        deadline = time.monotonic() + READ_SECONDS_MAX
        while len(values) < end and time.monotonic() < deadline:
            values += [str(m.value(), "ascii") for m in consumer.consume(500, 0.5) if m.error() is None]
        consumer.close()
        return values

    def offsets_at(self, bootstrap: str, topic: str, times_ms: list[int]) -> list[int | None]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "interop"})
        asked = [confluent_kafka.TopicPartition(topic, 0, time_ms) for time_ms in times_ms]
        found = [consumer.offsets_for_times([place], timeout=20)[0].offset for place in asked]
        consumer.close()
        return [None if offset < 0 else offset for offset in found]


class KafkaPython:
    codecs: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, bootstrap: str, topic: str) -> None:
        admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([kafka.admin.NewTopic(topic, 1, 3)])
        admin.close()

    def produce(self, bootstrap: str, topic: str, codec: str, values: list[str]) -> None:
        chosen = None if codec == "none" else codec
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type=chosen)
        sent = [producer.send(topic, value.encode(), partition=0) for value in values]
        for future in sent:
            future.get(20)
        producer.close()

    def stream(self, bootstrap: str, topic: str) -> Stream:
        def work(stop: threading.Event) -> list[str]:
            producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
            sent = []
            while not stop.is_set():
                value = f"stream-{len(sent)}"
                sent.append((value, producer.send(topic, value.encode(), partition=0)))
                time.sleep(PAUSE_S)
            acknowledged = [value for value, future in sent if future.get(30)]
            producer.close()
            return acknowledged

        return Stream(work)

    def read(self, bootstrap: str, topic: str) -> list[str]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
        place = kafka.TopicPartition(topic, 0)
        end = consumer.end_offsets([place])[place]
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        values: list[str] = []
        deadline = time.monotonic() + READ_SECONDS_MAX
        while len(values) < end and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                values += [record.value.decode() for record in records]
        consumer.close()
        return values

    def offsets_at(self, bootstrap: str, topic: str, times_ms: list[int]) -> list[int | None]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        place = kafka.TopicPartition(topic, 0)
        found = [consumer.offsets_for_times({place: time_ms})[place] for time_ms in times_ms]
        consumer.close()
        return [None if one is None else one.offset for one in found]


class Aiokafka:
    codecs: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, bootstrap: str, topic: str) -> None:
        async def create() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            await admin.create_topics([AiokafkaTopic(topic, 1, 3)])
            await admin.close()

        asyncio.run(create())

    def produce(self, bootstrap: str, topic: str, codec: str, values: list[str]) -> None:
        async def produce() -> None:
            chosen = None if codec == "none" else codec
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type=chosen) as producer:
                for sent in [await producer.send(topic, value.encode(), partition=0) for value in values]:
                    await sent

        asyncio.run(produce())

    def stream(self, bootstrap: str, topic: str) -> Stream:
        async def produce(stop: threading.Event) -> list[str]:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
                sent = []
                while not stop.is_set():
                    value = f"stream-{len(sent)}"
                    sent.append((value, await producer.send(topic, value.encode(), partition=0)))
                    await asyncio.sleep(PAUSE_S)
                return [value for value, future in sent if await future]

        return Stream(lambda stop: asyncio.run(produce(stop)))

    def read(self, bootstrap: str, topic: str) -> list[str]:
        async def consume() -> list[str]:
            values: list[str] = []
            place = AiokafkaPartition(topic, 0)
            async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
                consumer.assign([place])
                await consumer.seek_to_beginning(place)
                end = (await consumer.end_offsets([place]))[place]
                deadline = time.monotonic() + READ_SECONDS_MAX
                while len(values) < end and time.monotonic() < deadline:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        values += [record.value.decode() for record in records]
            return values

        return asyncio.run(consume())

    def offsets_at(self, bootstrap: str, topic: str, times_ms: list[int]) -> list[int | None]:
        async def ask() -> list[int | None]:
            place = AiokafkaPartition(topic, 0)
            async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
                found = [(await consumer.offsets_for_times({place: time_ms}))[place] for time_ms in times_ms]
            return [None if one is None else one.offset for one in found]

        return asyncio.run(ask())


class Kcat:
    """Client kcat. It creates topics only by auto-creation, with the brokers' default.replication.factor."""

    codecs: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, bootstrap: str, topic: str) -> None:
        Confluent().create_topic(bootstrap, topic)
        listing = subprocess.run(
            ["kcat", "-b", bootstrap, "-L", "-t", topic], capture_output=True, text=True, check=True
        )
        assert f'topic "{topic}" with 1 partitions' in listing.stdout

    def produce(self, bootstrap: str, topic: str, codec: str, values: list[str]) -> None:
        subprocess.run(
            ["kcat", "-b", bootstrap, "-P", "-t", topic, "-p", "0", "-z", codec, "-X", "acks=all"],
            input="\n".join(values),
            text=True,
            check=True,
            timeout=READ_SECONDS_MAX,
        )

    def stream(self, bootstrap: str, topic: str) -> Stream:
        def work(stop: threading.Event) -> list[str]:
            command = ["kcat", "-b", bootstrap, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
            assert process.stdin is not None
            values: list[str] = []
            while not stop.is_set():
                values.append(f"stream-{len(values)}")
                process.stdin.write(values[-1] + "\n")
                process.stdin.flush()
                time.sleep(PAUSE_S)
            process.stdin.close()
            assert process.wait(READ_SECONDS_MAX) == 0, "kcat ends with 0 only if every record was acknowledged"
            return values

        return Stream(work)

    def read(self, bootstrap: str, topic: str) -> list[str]:
        result = subprocess.run(
            ["kcat", "-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"],
            capture_output=True,
            text=True,
            check=True,
            timeout=READ_SECONDS_MAX,
        )
        return result.stdout.splitlines()

    def offsets_at(self, bootstrap: str, topic: str, times_ms: list[int]) -> list[int | None]:
        found: list[int | None] = []
        for time_ms in times_ms:  # kcat prints one line per partition
            command = ["kcat", "-b", bootstrap, "-Q", "-t", f"{topic}:0:{time_ms}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=READ_SECONDS_MAX)
            offset = int(done.stdout.split()[-1])  # "topic [0] offset 4"
            found.append(None if offset < 0 else offset)
        return found
