"""The producer: records in, delivery reports out. Idempotent, acks=all and in order per partition by default.

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        report = await producer.send("orders", b"value", key=b"key")

One sender task drains the accumulator; answers come back as callbacks. A cancelled `send` does not take its record
back: the record is still delivered once, only nobody waits for the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import trio

from kraft.client.cluster import (
    RETRIABLE,
    RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MS_MAX,
    Cluster,
    parse_bootstrap,
)
from kraft.client.connections import CONNECTION_FAILURES, Link
from kraft.client.core.accumulator import (
    NO_IDENTITY,
    Accumulator,
    AccumulatorSettings,
    Batch,
    PendingRecord,
    ProducerIdentity,
)
from kraft.client.core.partitioner import StickyPartitioner, partition_for_key
from kraft.client.core.records import DeliveryFailed, DeliveryReport, Headers, KafkaError, TopicPartition
from kraft.client.core.requests import ProduceAnswer, produce_request, read_produce_response
from kraft.client.default_seam import default_seam
from kraft.seam import Address, Seam, sole_error
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.compression import Compression
from kraft.wire.error_codes import ErrorCode

ACKS = {"all": -1, -1: -1, "-1": -1, 1: 1, "1": 1, 0: 0, "0": 0}

FRESH_LEADER_NEEDED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
CERTAINLY_NOT_WRITTEN = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)


class Delivery:
    """A record on its way. `await wait()` gives its report or raises DeliveryFailed."""

    __slots__ = ("_finished", "_outcome")

    def __init__(self) -> None:
        self._outcome: DeliveryReport | DeliveryFailed | None = None
        self._finished = trio.Event()

    @property
    def is_done(self) -> bool:
        return self._outcome is not None

    @property
    def outcome(self) -> DeliveryReport | DeliveryFailed | None:
        """How it ended; None as long as it has not."""
        return self._outcome

    def settle(self, outcome: DeliveryReport | DeliveryFailed) -> None:
        """Called once, by the producer."""
        self._outcome = outcome
        self._finished.set()

    async def wait(self) -> DeliveryReport:
        """The report. DeliveryFailed if the record was given up; its `certain` tells whether it may be in the log."""
        await self._finished.wait()
        if isinstance(self._outcome, DeliveryFailed):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class Producer:
    """See the module. Arguments are Kafka's producer configs; times in ms, sizes in bytes."""

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        client_id: str = "pykraft-producer",
        acks: str | int = "all",
        enable_idempotence: bool | None = None,
        compression_type: str = "none",
        linger_ms: int = 0,
        batch_size: int = 16384,
        buffer_memory: int = 32 * 1024 * 1024,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        tls: object | None = None,
        seam: Seam | None = None,
    ) -> None:
        if acks not in ACKS:
            raise ValueError(f"acks={acks!r}: expected 'all', 1 or 0")
        self._acks = ACKS[acks]
        if enable_idempotence and self._acks != -1:
            raise ValueError(f"enable_idempotence needs acks='all', not {acks!r}")
        self._idempotent = self._acks == -1 if enable_idempotence is None else enable_idempotence
        self._addresses: list[Address] = parse_bootstrap(bootstrap_servers)
        self._client_id = client_id
        self._tls = tls
        self._given_seam = seam
        self._request_timeout_ms = request_timeout_ms
        if compression_type.upper() not in Compression.__members__:
            expected = ", ".join(Compression.__members__).lower()
            raise ValueError(f"compression_type={compression_type!r}: expected one of {expected}")
        compression = Compression[compression_type.upper()]
        self._accumulator = Accumulator(
            AccumulatorSettings(batch_size, linger_ms, buffer_memory, delivery_timeout_ms, compression)
        )
        self._identity: ProducerIdentity | None = None if self._idempotent else NO_IDENTITY
        self._in_flight: dict[int, tuple[int, Link]] = {}
        self._request_number = 0
        self._topics: set[str] = set()
        self._connecting: set[int] = set()
        self._settled = trio.Event()
        self._wake = trio.Event()
        self._metadata_wanted = trio.Event()
        self._closing = False

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._seam = await stack.enter_async_context(default_seam(self._given_seam))
            self._nursery = await stack.enter_async_context(trio.open_nursery())
            self._cluster = Cluster(self._addresses, self._seam, client_id=self._client_id, tls=self._tls)
            stack.callback(self._cluster.close)
            stack.callback(self._nursery.cancel_scope.cancel)
            self._sticky = StickyPartitioner(self._seam.random.stream("partitioner").below)
            self._nursery.start_soon(self._run_sender)
            self._nursery.start_soon(self._run_metadata)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self._closing = True
            self._fail_all()
            try:
                await self._stack.__aexit__(kind, error, trace)
            except BaseExceptionGroup as group:
                if error is None or sole_error(group) is not sole_error(error):
                    raise
                # What the application raised goes on as it is, not wrapped by our nursery: `except KafkaError` works.

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> DeliveryReport:
        """Deliver one record and wait for the acknowledgement. DeliveryFailed if it was refused or timed out."""
        delivery = await self.enqueue(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await delivery.wait()

    async def enqueue(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Hand a record over and wait only for room (`buffer_memory`) and for the topic's metadata."""
        self._topics.add(topic)
        metadata = self._cluster.topic(topic) or await self._cluster.wait_topic(
            topic, timeout_ms=self._accumulator.settings.delivery_timeout_ms
        )
        if partition is not None and partition not in metadata.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} has partitions 0 to {len(metadata.partitions) - 1}, not {partition}",
            )
        delivery = Delivery()
        stamp = self._seam.clock.wall_ms() if timestamp_ms is None else timestamp_ms
        record = PendingRecord(key, value, self._headers(headers), stamp, delivery)
        while not self._accumulator.has_room(record):
            await self._settled.wait()
        # No checkpoint from here on: the record is queued and its delivery handed over in one step.
        chosen = self._choose(topic, key, metadata.partitions) if partition is None else partition
        closed = self._accumulator.add((topic, chosen), record, self._seam.clock.monotonic_ms())
        if closed is not None and key is None and partition is None:
            self._sticky.batch_closed(topic, chosen, self._available(topic, metadata.partitions))
        self._wake.set()
        return delivery

    async def flush(self) -> None:
        """Wait until every record that was handed over is delivered or given up."""
        self._accumulator.flush(True)
        self._wake.set()
        try:
            while any(True for _ in self._accumulator.pending()):
                await self._settled.wait()
        finally:
            self._accumulator.flush(False)

    @staticmethod
    def _headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
        return tuple((name, value) for name, value in headers)

    def _available(self, topic: str, partitions: Sequence[int]) -> list[int]:
        led = [p for p in partitions if self._cluster.leader((topic, p)) is not None]
        return led or list(partitions)

    def _choose(self, topic: str, key: bytes | None, partitions: tuple[int, ...]) -> int:
        if key is not None:
            return partition_for_key(key, len(partitions))
        return self._sticky.partition(topic, self._available(topic, partitions))

    # the sender

    async def _run_sender(self) -> None:
        while True:
            self._wake = trio.Event()
            now_ms = self._seam.clock.monotonic_ms()
            self._end_expired(now_ms)
            self._close_silent_links(now_ms)
            self._send_ready(now_ms)
            await self._sleep_until_work(now_ms)

    async def _sleep_until_work(self, now_ms: int) -> None:
        deadlines = [sent_ms + self._request_timeout_ms for sent_ms, _ in self._in_flight.values()]
        waiting = self._accumulator.next_deadline_ms()
        if waiting is not None:
            deadlines.append(max(waiting, now_ms + 1) if waiting <= now_ms else waiting)
        if not deadlines:
            await self._wake.wait()
            return
        with trio.move_on_after(max(min(deadlines) - now_ms, 1) / 1000):
            await self._wake.wait()

    def _send_ready(self, now_ms: int) -> None:
        ready = self._accumulator.partitions_ready(now_ms)
        if not ready:
            return
        if self._identity is None:
            self._start_once(-1, self._acquire_identity)
            return
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in ready:
            leader = self._cluster.leader(topic_partition)
            if leader is None:
                self._want_metadata()
            else:
                by_leader.setdefault(leader.node_id, []).append(topic_partition)
        for node_id, partitions in by_leader.items():
            link = self._cluster.links.live(self._cluster.brokers[node_id].address, "produce")
            if link is None:
                self._start_once(node_id, self._connect, node_id)
            else:
                self._send_batches(link, partitions, now_ms)

    def _start_once(self, slot: int, function: Any, *arguments: Any) -> None:
        if slot not in self._connecting:
            self._connecting.add(slot)
            self._nursery.start_soon(self._guarded, slot, function, arguments)

    async def _guarded(self, slot: int, function: Any, arguments: tuple[Any, ...]) -> None:
        try:
            await function(*arguments)
        finally:
            self._connecting.discard(slot)
            self._wake.set()

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.link(node_id, "produce")
        except (*CONNECTION_FAILURES, KeyError):
            for topic_partition in sorted({batch.topic_partition for batch in self._accumulator.pending()}):
                leader = self._cluster.leader(topic_partition)
                if leader is not None and leader.node_id == node_id:
                    self._cluster.forget_leader(topic_partition)
            self._want_metadata()
            await self._seam.clock.sleep_ms(RETRY_BACKOFF_MS)

    async def _acquire_identity(self) -> None:
        request = messages.build(messages.request_class(ApiKey.INIT_PRODUCER_ID), transactional_id=None)
        backoff_ms = RETRY_BACKOFF_MS
        while True:
            answer = await self._cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request, timeout_ms=float("inf"))
            code = ErrorCode(int(answer.error_code))
            if code is ErrorCode.NONE:
                self._identity = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))
                self._accumulator.restart_sequences()
                return
            if code not in RETRIABLE:
                self._fail_all(DeliveryFailed(code, "no producer id could be had", certain=True))
                return
            await self._seam.clock.sleep_ms(backoff_ms)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)

    def _send_batches(self, link: Link, partitions: list[TopicPartition], now_ms: int) -> None:
        assert self._identity is not None
        batches = {tp: self._accumulator.take(tp, self._identity) for tp in partitions}
        encoded = {tp: batch.encoded or b"" for tp, batch in batches.items()}
        version = link.version(ApiKey.PRODUCE)
        request = produce_request(version, self._acks, self._request_timeout_ms, encoded)
        if self._acks == 0:
            link.send(ApiKey.PRODUCE, version, request, None)
            for batch in batches.values():
                self._settle(batch, ProduceAnswer(ErrorCode.NONE, -1, -1, None, None, None))
            return
        self._request_number += 1
        number = self._request_number
        self._in_flight[number] = (now_ms, link)

        def on_reply(body: memoryview | None) -> None:
            del self._in_flight[number]
            self._on_answer(batches, {} if body is None else read_produce_response(version, body))

        link.send(ApiKey.PRODUCE, version, request, on_reply)

    def _on_answer(self, batches: dict[TopicPartition, Batch], answers: dict[TopicPartition, ProduceAnswer]) -> None:
        if self._closing:
            return
        for topic_partition, batch in batches.items():
            told = answers.get(topic_partition)
            if told is None:
                told = ProduceAnswer(ErrorCode.NETWORK_EXCEPTION, -1, -1, "the connection ended", None, None)
            if told.code is ErrorCode.NONE:
                self._settle(batch, told)
            elif told.code in RETRIABLE:
                self._retry(batch, told)
            else:
                self._refused(batch, told)
        self._wake.set()

    def _retry(self, batch: Batch, told: ProduceAnswer) -> None:
        now_ms = self._seam.clock.monotonic_ms()
        backoff_ms = min(RETRY_BACKOFF_MS * 2 ** min(batch.attempts - 1, 10), RETRY_BACKOFF_MS_MAX)
        hinted = told.leader is not None and self._cluster.learn_leader(
            batch.topic_partition, told.leader, told.leader_broker
        )
        if not hinted and told.code in FRESH_LEADER_NEEDED:
            self._cluster.forget_leader(batch.topic_partition)
            self._want_metadata()
        certain = told.code in CERTAINLY_NOT_WRITTEN
        self._accumulator.retry(batch, now_ms if hinted else now_ms + backoff_ms, certainly_not_written=certain)

    def _refused(self, batch: Batch, told: ProduceAnswer) -> None:
        certain = told.code in CERTAINLY_NOT_WRITTEN and batch.attempts == 1
        self._give_up(batch, DeliveryFailed(told.code, told.message or "the broker refused", certain=certain))

    def _settle(self, batch: Batch, told: ProduceAnswer) -> None:
        self._accumulator.done(batch)
        topic, partition = batch.topic_partition
        for index, record in enumerate(batch.records):
            stamp = record.timestamp_ms if told.log_append_time_ms < 0 else told.log_append_time_ms
            offset = -1 if told.base_offset < 0 else told.base_offset + index
            assert isinstance(record.token, Delivery)
            record.token.settle(DeliveryReport(topic, partition, offset, stamp))
        self._announce_settled()

    def _give_up(self, batch: Batch, failure: DeliveryFailed) -> None:
        """End a batch without success. A sealed idempotent batch leaves a gap in its sequence: new ids are needed."""
        self._accumulator.done(batch)
        if batch.base_sequence >= 0:
            self._identity = None
        for record in batch.records:
            assert isinstance(record.token, Delivery)
            record.token.settle(failure)
        self._announce_settled()

    def _announce_settled(self) -> None:
        self._settled.set()
        self._settled = trio.Event()

    def _end_expired(self, now_ms: int) -> None:
        for batch in self._accumulator.expired(now_ms):
            text = f"not delivered within delivery.timeout.ms={self._accumulator.settings.delivery_timeout_ms}"
            self._give_up(batch, DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, text, certain=not batch.in_doubt))

    def _close_silent_links(self, now_ms: int) -> None:
        for sent_ms, link in list(self._in_flight.values()):
            if now_ms - sent_ms >= self._request_timeout_ms:
                link.close()

    def _fail_all(self, failure: DeliveryFailed | None = None) -> None:
        for batch in list(self._accumulator.pending()):
            text = "the producer was closed before the acknowledgement"
            told = failure or DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, text, certain=not batch.in_doubt)
            self._accumulator.done(batch)
            for record in batch.records:
                assert isinstance(record.token, Delivery)
                record.token.settle(told)
        self._announce_settled()

    # metadata

    def _want_metadata(self) -> None:
        self._metadata_wanted.set()

    async def _run_metadata(self) -> None:
        backoff_ms = RETRY_BACKOFF_MS
        while True:
            await self._metadata_wanted.wait()
            self._metadata_wanted = trio.Event()
            wanted = sorted({batch.topic_partition for batch in self._accumulator.pending()})
            errors = await self._cluster.refresh({tp[0] for tp in wanted} or self._topics, timeout_ms=float("inf"))
            for topic_partition in wanted:
                if self._cluster.leader(topic_partition) is not None:
                    self._accumulator.expedite(topic_partition)
            self._wake.set()
            unled = errors or any(self._cluster.leader(tp) is None for tp in wanted)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX) if unled else RETRY_BACKOFF_MS
            await self._seam.clock.sleep_ms(backoff_ms)
