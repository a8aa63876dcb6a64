"""confluent-kafka (librdkafka) as a workload's library; each client has its own thread.

Settings that differ from librdkafka's defaults (in brackets):
- `acks`, `enable.idempotence`, `delivery.timeout.ms` and `request.timeout.ms` come from the workload.
- `socket.timeout.ms` is SOCKET_TIMEOUT_MS (60 s).
- `linger.ms` is 0 (5): a producer has one record in flight at a time.
- `reconnect.backoff.max.ms` is 1000 (10 s), so that a restarted broker is found soon.
- Logging is off.
- Consumers have `enable.auto.commit` false, `auto.offset.reset` earliest and `enable.partition.eof`; their session
  timeout and heartbeat interval are SESSION_TIMEOUT_MS and HEARTBEAT_INTERVAL_MS.

A consumer that is to be dropped without leaving its group is not closed: librdkafka then ends it without a LeaveGroup.
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

from kraft.sim.chaos.clients import DescribedPartition, OperationFailed, ProducerSettings, ReadRecord
from kraft.sim.chaos.clients.client_thread import SLICE_SECONDS, ClientThread
from kraft.sim.chaos.clients.outcomes import reason_of, send_failed, topic_change_failed, unknown
from kraft.sim.chaos.history import Place
from kraft.wire.error_codes import ErrorCode

SOCKET_TIMEOUT_MS = 5_000
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
ADMIN_TIMEOUT_S = 10.0
RECORDS_MAX = 500
"""Maximum records of one poll."""
DELIVERY_GRACE_S = 10.0
"""Seconds after a delivery timeout within which librdkafka reports the expiry."""
PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT})
"""Connection errors that a consumer reports although it continues."""


def _common(bootstrap: str, client_id: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "reconnect.backoff.max.ms": 1_000,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "log_level": 0,
    }


class ConfluentProducer:
    """Producer of a workload that uses `confluent_kafka.Producer`."""

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
        except (KafkaException, BufferError) as problem:  # the library did not accept it
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
    """Consumer of a workload that uses `confluent_kafka.Consumer`."""

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
        self._current_assignment: tuple[frozenset[Place], int] = (frozenset(), 0)
        """The assignment that was in effect for all records that polls have returned so far."""
        self._held: deque[Message] = deque()
        """Messages kept for the next poll: a message that arrived after a rebalance, or an error that arrived after
        records."""
        self._positions: dict[Place, int] = {}

    async def assign(self, places: Sequence[Place]) -> None:
        wanted = [TopicPartition(*place, confluent_kafka.OFFSET_BEGINNING) for place in places]
        await self._thread.call(lambda: _guarded(lambda: self._consumer.assign(wanted)))
        self._assigned = frozenset(places)
        self._current_assignment = (self._assigned, 0)

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
        return self._current_assignment

    async def poll(self, timeout_ms: int) -> list[ReadRecord]:
        return await self._thread.call(lambda: self._poll(timeout_ms / 1000))

    def _poll(self, timeout_s: float) -> list[ReadRecord]:
        """Take messages one by one, and stop before the first message that arrived after a rebalance."""
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
        self._current_assignment = (self._assigned, self._rebalances)
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
        """Drop the last reference to the consumer instead of closing it: librdkafka then ends without leaving the
        group."""
        self._held.clear()
        del self._consumer


class ConfluentAdmin:
    """Admin client of a workload that uses `confluent_kafka.admin.AdminClient`."""

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

    async def partitions(self, topic: str) -> tuple[DescribedPartition, ...]:
        def ask() -> tuple[DescribedPartition, ...]:
            found = self._admin.list_topics(topic, timeout=SOCKET_TIMEOUT_MS / 1000).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            rows = [found.partitions[number] for number in sorted(found.partitions)]
            return tuple(DescribedPartition(each.leader, tuple(each.isrs), tuple(each.replicas)) for each in rows)

        return await self._thread.call(lambda: _guarded(ask))

    async def aclose(self) -> None:
        await self._thread.aclose(self._close)

    def _close(self) -> None:
        del self._admin


class ConfluentLibrary:
    """The client library confluent-kafka: `--client confluent-kafka`."""

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
    """Call `work()` and return its result. Raises OperationFailed for the library's exceptions."""
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
    """Return Kafka's name for a broker's error, and librdkafka's name (with an underscore) for its own errors."""
    if error.fatal():
        return "_FATAL"
    return ErrorCode.of(error.code()).name if error.code() > 0 else error.name()
