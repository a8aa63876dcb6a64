"""kafka-python as a workload's library; each client has its own thread, besides those that the library starts.

Settings that differ from the library's defaults (in brackets):
- `acks`, `enable_idempotence`, `delivery_timeout_ms` and `request_timeout_ms` come from the workload; for consumers and
  admin clients the last is REQUEST_TIMEOUT_MS (30 s).
- `max_block_ms` is the delivery timeout (60 s).
- `reconnect_backoff_max_ms` is 1000 (30 s), so that a restarted broker is found soon.
- `bootstrap_timeout_ms` is BOOTSTRAP_TIMEOUT_MS (30 s).
- Logging is off.
- Consumers have `enable_auto_commit` False and `auto_offset_reset` earliest; their session timeout and heartbeat
  interval are SESSION_TIMEOUT_MS and HEARTBEAT_INTERVAL_MS.

A consumer cannot be dropped without leaving its group: a consumer that is to be dropped leaves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from time import monotonic
from typing import Any, TypeVar

from kraft.sim.chaos.clients import DescribedPartition, OperationFailed, ProducerSettings, ReadRecord
from kraft.sim.chaos.clients.client_thread import SLICE_SECONDS, ClientThread
from kraft.sim.chaos.clients.outcomes import reason_of, send_failed, topic_change_failed, unknown
from kraft.sim.chaos.history import Place
from kraft.wire.error_codes import ErrorCode

kafka: Any = import_module("kafka")  # the package has no types
admin: Any = import_module("kafka.admin")
errors: Any = import_module("kafka.errors")

REQUEST_TIMEOUT_MS = 5_000
BOOTSTRAP_TIMEOUT_MS = 5_000
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
ADMIN_TIMEOUT_MS = 10_000
CLOSE_TIMEOUT_MS = 2_000
DELIVERY_GRACE_S = 10.0
"""Seconds after a delivery timeout within which the library reports the expiry."""

Found = TypeVar("Found")


def _common(bootstrap: str, client_id: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap.split(","),
        "client_id": client_id,
        "reconnect_backoff_max_ms": 1_000,
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
    }


class KafkaPythonProducer:
    """Producer of a workload that uses `kafka.KafkaProducer`. Call `open` first."""

    def __init__(self, client_id: str, settings: ProducerSettings) -> None:
        self._timeout_s = settings.delivery_timeout_ms / 1000 + DELIVERY_GRACE_S
        self._client_id = client_id
        self._settings = settings
        self._producer: Any = None
        self._thread = ClientThread(client_id)

    async def open(self, bootstrap: str) -> None:
        """Connect. Raises OperationFailed if no broker answers."""
        is_all = self._settings.acks == "all"
        settings = {
            **_common(bootstrap, self._client_id),
            "acks": "all" if is_all else int(self._settings.acks),
            "enable_idempotence": self._settings.is_idempotent and is_all,
            "delivery_timeout_ms": self._settings.delivery_timeout_ms,
            "request_timeout_ms": self._settings.request_timeout_ms,
            "max_block_ms": self._settings.delivery_timeout_ms,
        }
        self._producer = await _opened(self._thread, lambda: kafka.KafkaProducer(**settings))

    async def send(self, place: Place, value: bytes) -> int:
        return await self._thread.call(lambda: self._send(place, value))

    def _send(self, place: Place, value: bytes) -> int:
        settled = threading.Event()
        try:
            future = self._producer.send(place.topic, value, partition=place.partition)
        except Exception as problem:
            raise send_failed(_name_of(problem)) from problem
        future.add_both(lambda _: settled.set())
        deadline = monotonic() + self._timeout_s
        while not settled.wait(SLICE_SECONDS):
            if self._thread.is_closing.is_set() or monotonic() > deadline:
                raise unknown("the producer was closed before the acknowledgement")
        if future.exception is not None:
            raise send_failed(_name_of(future.exception)) from future.exception
        offset = future.value.offset
        return -1 if offset is None or offset < 0 else int(offset)

    async def aclose(self) -> None:
        await self._thread.aclose(self._close)

    def _close(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=0)


class KafkaPythonConsumer:
    """Consumer of a workload that uses `kafka.KafkaConsumer`. Call `open` first."""

    def __init__(self, client_id: str, group: str | None) -> None:
        self._client_id = client_id
        self._group = group
        self._consumer: Any = None
        self._thread = ClientThread(client_id)
        self._rebalances = 0
        self._current_assignment: tuple[frozenset[Place], int] = (frozenset(), 0)
        self._positions: dict[Place, int] = {}

    async def open(self, bootstrap: str) -> None:
        """Connect. Raises OperationFailed if no broker answers."""
        settings = {
            **_common(bootstrap, self._client_id),
            "group_id": self._group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }
        self._consumer = await _opened(self._thread, lambda: kafka.KafkaConsumer(**settings))

    async def assign(self, places: Sequence[Place]) -> None:
        wanted = [kafka.TopicPartition(*place) for place in places]

        def assign() -> None:
            self._consumer.assign(wanted)
            self._consumer.seek_to_beginning(*wanted)

        await self._thread.call(lambda: _guarded(assign))
        self._current_assignment = (frozenset(places), 0)

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Load the topics' metadata, then subscribe. kafka-python 3.0.12 permanently loses its assignment if the
        consumer joined the group before it had the topics' metadata. The group leader assigns again when the metadata
        arrives. If a poll times out at that moment, the new assignment is never applied."""
        listener = _listener(self._count)

        def subscribe() -> None:
            for topic in topics:
                self._consumer.partitions_for_topic(topic)
            self._consumer.subscribe(list(topics), listener=listener)

        await self._thread.call(lambda: _guarded(subscribe))

    def _count(self) -> None:
        self._rebalances += 1

    def assignment(self) -> tuple[frozenset[Place], int]:
        return self._current_assignment

    async def poll(self, timeout_ms: int) -> list[ReadRecord]:
        return await self._thread.call(lambda: _guarded(lambda: self._poll(timeout_ms)))

    def _poll(self, timeout_ms: int) -> list[ReadRecord]:
        found = self._consumer.poll(timeout_ms=timeout_ms)
        records = [
            ReadRecord(Place(tp.topic, tp.partition), each.offset, each.value or b"")
            for tp, batch in found.items()
            for each in batch
        ]
        assigned = self._consumer.assignment()
        if self._group is None:
            for tp in assigned:
                at = self._consumer.position(tp, timeout_ms=0)
                self._positions[Place(tp.topic, tp.partition)] = -1 if at is None else int(at)
        self._current_assignment = (frozenset(Place(tp.topic, tp.partition) for tp in assigned), self._rebalances)
        return records

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        wanted = {
            kafka.TopicPartition(*place): kafka.OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()
        }
        await self._thread.call(lambda: _guarded(lambda: self._consumer.commit(wanted, timeout_ms=REQUEST_TIMEOUT_MS)))

    def position(self, place: Place) -> int:
        return self._positions.get(place, -1)

    async def end_offsets(self, places: Sequence[Place]) -> dict[Place, int]:
        wanted = [kafka.TopicPartition(*place) for place in places]

        def ask() -> dict[Place, int]:
            found = self._consumer.end_offsets(wanted, timeout_ms=REQUEST_TIMEOUT_MS)
            return {Place(tp.topic, tp.partition): int(offset) for tp, offset in found.items()}

        return await self._thread.call(lambda: _guarded(ask))

    async def aclose(self, *, leaves: bool = True) -> None:
        await self._thread.aclose(self._close)

    def _close(self) -> None:
        if self._consumer is not None:
            try:
                self._consumer.close(timeout_ms=CLOSE_TIMEOUT_MS)
            except BaseException:
                self._consumer._client.close()  # otherwise it would continue to send heartbeats
                raise


class KafkaPythonAdmin:
    """Admin client of a workload that uses `kafka.KafkaAdminClient`. Call `open` first."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._admin: Any = None
        self._thread = ClientThread(client_id)

    async def open(self, bootstrap: str) -> None:
        """Connect. Raises OperationFailed if no broker answers."""
        settings = {**_common(bootstrap, self._client_id), "request_timeout_ms": REQUEST_TIMEOUT_MS}
        self._admin = await _opened(self._thread, lambda: kafka.KafkaAdminClient(**settings))

    async def create_topic(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> str:
        wanted = {topic: {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(configs)}}
        await self._change(lambda: self._admin.create_topics(wanted, timeout_ms=ADMIN_TIMEOUT_MS))
        return ""

    async def delete_topic(self, topic: str) -> None:
        await self._change(lambda: self._admin.delete_topics([topic], timeout_ms=ADMIN_TIMEOUT_MS))

    async def _change(self, ask: Callable[[], object]) -> None:
        def change() -> None:
            try:
                ask()
            except Exception as problem:
                raise topic_change_failed(_name_of(problem)) from problem

        await self._thread.call(change)

    async def partitions(self, topic: str) -> tuple[DescribedPartition, ...]:
        def ask() -> tuple[DescribedPartition, ...]:
            [found] = self._admin.describe_topics([topic])
            if found["error_code"]:
                raise errors.for_code(found["error_code"])
            rows = sorted(found["partitions"], key=lambda row: row["partition_index"])
            return tuple(
                DescribedPartition(row["leader_id"], tuple(row["isr_nodes"]), tuple(row["replica_nodes"]))
                for row in rows
            )

        return await self._thread.call(lambda: _guarded(ask))

    async def aclose(self) -> None:
        await self._thread.aclose(self._close)

    def _close(self) -> None:
        if self._admin is not None:
            self._admin.close()


class KafkaPythonLibrary:
    """The client library kafka-python: `--client kafka-python`."""

    name = "kafka-python"

    def __init__(self) -> None:
        self.version: str = kafka.__version__
        logging.getLogger("kafka").setLevel(logging.CRITICAL)

    async def producer(self, bootstrap: str, client_id: str, settings: ProducerSettings) -> KafkaPythonProducer:
        producer = KafkaPythonProducer(client_id, settings)
        await producer.open(bootstrap)
        return producer

    async def consumer(self, bootstrap: str, client_id: str, group: str | None) -> KafkaPythonConsumer:
        consumer = KafkaPythonConsumer(client_id, group)
        await consumer.open(bootstrap)
        return consumer

    async def admin(self, bootstrap: str, client_id: str) -> KafkaPythonAdmin:
        client = KafkaPythonAdmin(client_id)
        await client.open(bootstrap)
        return client


def _listener(notify: Callable[[], None]) -> Any:
    """Return a rebalance listener that calls back for each rebalance."""

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            notify()

        def on_partitions_assigned(self, assigned: object) -> None:
            notify()

    return Listener()


async def _opened(thread: ClientThread, make: Callable[[], Any]) -> Any:
    """Create the client in its thread and return it. If that fails, the thread ends. Raises OperationFailed."""
    made: list[Any] = []

    def close() -> None:
        for client in made:
            client.close()

    try:
        await thread.call(lambda: _guarded(lambda: made.append(make())))
    except BaseException:
        await thread.aclose(close)
        raise
    return made[0]


def _guarded(work: Callable[[], Found]) -> Found:
    """Call `work()` and return its result. Raises OperationFailed for the library's exceptions."""
    try:
        return work()
    except OperationFailed:
        raise
    except Exception as problem:
        raise unknown(_name_of(problem)) from problem


def _name_of(problem: BaseException) -> str:
    """Return Kafka's name for a broker's error, otherwise the exception's name."""
    if isinstance(problem, errors.BrokerResponseError):
        return ErrorCode.of(problem.errno).name
    return reason_of(problem)
