"""confluent-kafka (librdkafka) as a workload's library; each client has a thread of its own.

Settings that differ from librdkafka's defaults: `acks`, `enable.idempotence`, `delivery.timeout.ms` and
`request.timeout.ms` as the workload says; `socket.timeout.ms` SOCKET_TIMEOUT_MS (60 s); `linger.ms` 0 (5): one record
is under way at a time; `reconnect.backoff.max.ms` 1000 (10 s), so that a broker that is back is found soon; no log;
for consumers `enable.auto.commit` false, `auto.offset.reset` earliest, `enable.partition.eof`, and the session timeout
and interval of heartbeats of SESSION_TIMEOUT_MS and HEARTBEAT_INTERVAL_MS.

A consumer that is to be dropped without leaving its group is not closed: librdkafka then ends it without a word.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from time import monotonic
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraft.sim.chaos.clients import OperationFailed, PartitionState, ProducerSettings, ReadRecord
from kraft.sim.chaos.clients.client_thread import SLICE_SECONDS, ClientThread
from kraft.sim.chaos.clients.outcomes import reason_of, send_failed, topic_change_failed, unknown
from kraft.sim.chaos.history import Place
from kraft.wire.error_codes import ErrorCode

SOCKET_TIMEOUT_MS = 5_000
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
ADMIN_TIMEOUT_S = 10.0
RECORDS_MAX = 500
"""Records of one poll."""
DELIVERY_GRACE_S = 10.0
"""How much later than its delivery timeout librdkafka may tell of it."""
PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT})
"""What a consumer reports of its connections, and goes on."""


def _common(bootstrap: str, client_id: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "reconnect.backoff.max.ms": 1_000,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "log_level": 0,
    }


class ConfluentProducer:
    """A `confluent_kafka.Producer`."""

    def __init__(self, bootstrap: str, client_id: str, settings: ProducerSettings) -> None:
        self._timeout_s = settings.delivery_timeout_ms / 1000 + DELIVERY_GRACE_S
        self._producer: Any = Producer(
            {
                **_common(bootstrap, client_id),
                "acks": settings.acks,
                "enable.idempotence": settings.is_idempotent and settings.acks == "all",
                "delivery.timeout.ms": settings.delivery_timeout_ms,
                "request.timeout.ms": settings.request_timeout_ms,
                "linger.ms": 0,
            }
        )
        self._thread = ClientThread(client_id)

    async def send(self, place: Place, value: bytes) -> int:
        return await self._thread.call(lambda: self._send(place, value))

    def _send(self, place: Place, value: bytes) -> int:
        told: list[tuple[KafkaError | None, int]] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            told.append((error, -1 if offset is None or offset < 0 else offset))

        try:
            self._producer.produce(place.topic, value, partition=place.partition, on_delivery=on_delivery)
        except (KafkaException, BufferError) as problem:  # it was not handed over
            raise send_failed(_name_of(problem), is_certain=True) from problem
        deadline = monotonic() + self._timeout_s
        while not told and not self._thread.is_closing.is_set() and monotonic() < deadline:
            self._producer.poll(SLICE_SECONDS)
        if not told:
            raise unknown("the producer was closed before the acknowledgement")
        error, offset = told[0]
        if error is not None:
            raise send_failed(_error_name(error))
        return offset

    async def aclose(self) -> None:
        await self._thread.aclose(self._close)

    def _close(self) -> None:
        with suppress(KafkaException):
            self._producer.purge()
        self._producer.flush(SLICE_SECONDS)
        del self._producer


class ConfluentConsumer:
    """A `confluent_kafka.Consumer`."""

    def __init__(self, bootstrap: str, client_id: str, group: str | None) -> None:
        self._consumer: Any = Consumer(
            {
                **_common(bootstrap, client_id),
                "group.id": group or client_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            }
        )
        self._thread = ClientThread(client_id)
        self._is_member = group is not None
        self._rebalances = 0
        self._assigned: frozenset[Place] = frozenset()
        self._told: tuple[frozenset[Place], int] = (frozenset(), 0)
        """The assignment to which belongs all that polls have given."""
        self._held: deque[Message] = deque()
        """A message that came behind a rebalance, or an error that came behind records: for the next poll."""
        self._positions: dict[Place, int] = {}

    async def assign(self, places: Sequence[Place]) -> None:
        wanted = [TopicPartition(*place, confluent_kafka.OFFSET_BEGINNING) for place in places]
        await self._thread.call(lambda: _guarded(lambda: self._consumer.assign(wanted)))
        self._assigned = frozenset(places)
        self._told = (self._assigned, 0)

    async def subscribe(self, topics: Sequence[str]) -> None:
        def subscribe() -> None:
            self._consumer.subscribe(
                list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )

        await self._thread.call(lambda: _guarded(subscribe))

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._assigned = frozenset(Place(each.topic, each.partition) for each in partitions)
        self._positions.clear()

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._assigned = frozenset()

    def assignment(self) -> tuple[frozenset[Place], int]:
        return self._told

    async def poll(self, timeout_ms: int) -> list[ReadRecord]:
        return await self._thread.call(lambda: self._poll(timeout_ms / 1000))

    def _poll(self, timeout_s: float) -> list[ReadRecord]:
        """One message after the other, as long as no rebalance lies between two of them."""
        deadline, records = monotonic() + timeout_s, list[ReadRecord]()
        before = self._rebalances
        while len(records) < RECORDS_MAX and not self._thread.is_closing.is_set():
            message = self._next(0.0 if records else max(0.0, min(SLICE_SECONDS, deadline - monotonic())))
            if records and (self._rebalances != before or (message is not None and _is_failure(message))):
                if message is not None:
                    self._held.append(message)
                if self._rebalances != before:
                    return records
                break
            before = self._rebalances
            if message is not None:
                self._take(message, records)
            elif records or monotonic() >= deadline:
                break
        self._told = (self._assigned, self._rebalances)
        return records

    def _next(self, timeout_s: float) -> Message | None:
        if self._held:
            return self._held.popleft()
        message: Message | None = _guarded(lambda: self._consumer.poll(timeout_s))
        return message

    def _take(self, message: Message, records: list[ReadRecord]) -> None:
        error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if error.code() in PASSING or error.retriable():
                return
            raise unknown(_error_name(error))
        if topic is None or partition is None or offset is None:
            raise unknown("a message without a place")
        place = Place(topic, partition)
        if error is not None:
            self._positions[place] = max(self._positions.get(place, 0), offset)
            return
        records.append(ReadRecord(place, offset, message.value() or b""))
        self._positions[place] = offset + 1

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]

        def commit() -> None:
            for each in self._consumer.commit(offsets=wanted, asynchronous=False):
                if each.error is not None:
                    raise KafkaException(each.error)

        await self._thread.call(lambda: _guarded(commit))

    def position(self, place: Place) -> int:
        return self._positions.get(place, -1)

    async def end_offsets(self, places: Sequence[Place]) -> dict[Place, int]:
        def ask() -> dict[Place, int]:
            return {
                place: self._consumer.get_watermark_offsets(TopicPartition(*place), SOCKET_TIMEOUT_MS / 1000)[1]
                for place in places
            }

        return await self._thread.call(lambda: _guarded(ask))

    async def aclose(self, *, leaves: bool = True) -> None:
        await self._thread.aclose(self._close if leaves or not self._is_member else self._drop)

    def _close(self) -> None:
        self._held.clear()
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()
        del self._consumer

    def _drop(self) -> None:
        """The last reference goes, and librdkafka with it, as it does not when it is closed: it says no goodbye."""
        self._held.clear()
        del self._consumer


class ConfluentAdmin:
    """A `confluent_kafka.admin.AdminClient`."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._admin: Any = AdminClient(_common(bootstrap, client_id))
        self._thread = ClientThread(client_id)

    async def create_topic(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> str:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=dict(configs))
        await self._change(lambda: self._admin.create_topics([new], request_timeout=ADMIN_TIMEOUT_S)[topic])
        return ""

    async def delete_topic(self, topic: str) -> None:
        await self._change(lambda: self._admin.delete_topics([topic], request_timeout=ADMIN_TIMEOUT_S)[topic])

    async def _change(self, ask: Any) -> None:
        def change() -> None:
            try:
                self._result_of(ask())
            except (KafkaException, FutureTimeout) as problem:
                raise topic_change_failed(_name_of(problem)) from problem

        await self._thread.call(change)

    def _result_of(self, future: Future[Any]) -> None:
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        deadline = monotonic() + 2 * ADMIN_TIMEOUT_S
        while not done.wait(SLICE_SECONDS):
            if self._thread.is_closing.is_set() or monotonic() > deadline:
                raise FutureTimeout
        future.result()

    async def partitions(self, topic: str) -> tuple[PartitionState, ...]:
        def ask() -> tuple[PartitionState, ...]:
            found = self._admin.list_topics(topic, timeout=SOCKET_TIMEOUT_MS / 1000).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            rows = [found.partitions[number] for number in sorted(found.partitions)]
            return tuple(PartitionState(each.leader, tuple(each.isrs), tuple(each.replicas)) for each in rows)

        return await self._thread.call(lambda: _guarded(ask))

    async def aclose(self) -> None:
        await self._thread.aclose(self._close)

    def _close(self) -> None:
        del self._admin


class ConfluentLibrary:
    """confluent-kafka: `--client confluent-kafka`."""

    name = "confluent-kafka"

    def __init__(self) -> None:
        self.version = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    async def producer(self, bootstrap: str, client_id: str, settings: ProducerSettings) -> ConfluentProducer:
        return ConfluentProducer(bootstrap, client_id, settings)

    async def consumer(self, bootstrap: str, client_id: str, group: str | None) -> ConfluentConsumer:
        return ConfluentConsumer(bootstrap, client_id, group)

    async def admin(self, bootstrap: str, client_id: str) -> ConfluentAdmin:
        return ConfluentAdmin(bootstrap, client_id)


def _guarded(work: Any) -> Any:
    """What `work()` returns; OperationFailed for what the library raises."""
    try:
        return work()
    except OperationFailed:
        raise
    except (KafkaException, RuntimeError) as problem:
        raise unknown(_name_of(problem)) from problem


def _is_failure(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() != KafkaError._PARTITION_EOF


def _name_of(problem: BaseException) -> str:
    error = problem.args[0] if isinstance(problem, KafkaException) and problem.args else None
    return _error_name(error) if isinstance(error, KafkaError) else reason_of(problem)


def _error_name(error: KafkaError) -> str:
    """Kafka's name of a broker's error, librdkafka's (with an underscore) of its own."""
    if error.fatal():
        return "_FATAL"
    return ErrorCode.of(error.code()).name if error.code() > 0 else error.name()
