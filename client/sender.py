"""The producer's sending side: one task that sends batches of the accumulator to the leaders, and the handling of
responses.

Requests to one broker are pipelined, at most `max.in.flight.requests.per.connection` of them. Responses arrive as
callbacks of the connection. If a broker does not answer within `request.timeout.ms`, its connection is closed and all
batches in flight on it are retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from kraft.client.cluster import RETRIABLE, Cluster
from kraft.client.connections import CONNECTION_FAILURES, Link
from kraft.client.core.accumulator import Accumulator
from kraft.client.core.batch import OutgoingBatch, ProducerIdentity
from kraft.client.core.configs import ProducerConfig
from kraft.client.core.produce_errors import VERDICTS, Verdict
from kraft.client.core.records import DeliveryFailed, TopicPartition
from kraft.client.core.requests import ProduceAnswer, produce_request, produce_version, read_produce_response
from kraft.client.transactions import ProducerTransactions
from kraft.seam import Seam, WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

PRODUCER_ID_SLOT = -1
"""Key of the background job that requests a producer id. Every other job dials a broker and has the broker's id as key.
"""
CLOSED_BEFORE_ACK = "the producer was closed before the acknowledgement"
PRODUCER_CLOSED = "the producer is closed"
LOST = ProduceAnswer(ErrorCode.NETWORK_EXCEPTION, -1, -1, "the connection ended", None, None)
EXPIRED = DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, "it was not delivered in time", certain=False)
"""Error of a batch that reached its delivery timeout; its transaction, if any, must then be aborted."""
UNACKNOWLEDGED = ProduceAnswer(ErrorCode.NONE, -1, -1, None, None, None)


class Sender:
    """Runs in `nursery` from `start` until the nursery is cancelled. `topics` are the topics that the producer has
    used."""

    def __init__(
        self,
        config: ProducerConfig,
        seam: Seam,
        cluster: Cluster,
        accumulator: Accumulator,
        nursery: trio.Nursery,
    ) -> None:
        self.topics: dict[str, None] = {}
        self._config = config
        self._clock = seam.clock
        self._jitter = seam.random.stream("retry")
        self._cluster = cluster
        self._accumulator = accumulator
        self._nursery = nursery
        self._awaited: dict[int, tuple[int, Link]] = {}
        self._request_number = 0
        self._busy: set[int] = set()
        self._wake = trio.Event()
        self._room = trio.Event()
        self._metadata_wanted = trio.Event()
        self.is_closed = False
        self.transactions: ProducerTransactions | None = None
        if config.transactional_id is not None:
            self.transactions = ProducerTransactions(
                config, seam, cluster, accumulator, self._pause_ms, self._on_transaction_changed
            )

    def start(self) -> None:
        self._nursery.start_soon(self._run)
        self._nursery.start_soon(self._run_metadata)
        if self.transactions is not None:
            self._nursery.start_soon(self.transactions.run)

    def wake(self) -> None:
        """Wake the sending task, because there is something new to send."""
        self._wake.set()

    async def wait_room(self) -> None:
        """Wait until some batch is settled and its memory is free."""
        await self._room.wait()

    async def wait_sent(self) -> None:
        """Wait until all unacknowledged batches (acks=0) have been handed to the system."""
        while any(link.has_unsent for link in self._cluster.links.all_of("produce")):
            await self._clock.sleep_ms(1)

    def close(self) -> None:
        """Stop sending, and fail all batches that are not settled."""
        self.is_closed = True
        self._accumulator.fail_all(ErrorCode.REQUEST_TIMED_OUT, CLOSED_BEFORE_ACK)
        self._announce_room()

    def require_open(self) -> None:
        """Raise DeliveryFailed if the producer is closed, because a new record would never be settled."""
        if self.is_closed:
            raise DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, PRODUCER_CLOSED, certain=True)

    def _announce_room(self) -> None:
        self._room.set()
        self._room = trio.Event()

    async def _run(self) -> None:
        while True:
            self._wake = trio.Event()
            now_ms = self._clock.monotonic_ms()
            if self._accumulator.expire(now_ms):
                self._announce_room()
                if self.transactions is not None:
                    self.transactions.batch_failed(EXPIRED)
                    self.transactions.batches_changed()
            self._close_silent_links(now_ms)
            while self._send_ready(now_ms):
                pass
            await self._sleep(now_ms)

    async def _sleep(self, now_ms: int) -> None:
        deadlines = [sent_ms + self._config.request_timeout_ms for sent_ms, _ in self._awaited.values()]
        waiting_ms = self._accumulator.next_deadline_ms()
        if waiting_ms is not None:
            # A batch that is due but could not be sent waits for a connection, metadata or a response. Each of these
            # wakes the task. Only with acks=0 nothing reports that the connection has room again, so check again after
            # 1 ms.
            pause_ms = self._config.retry_backoff_max_ms if self._config.required_acks else 1
            deadlines.append(waiting_ms if waiting_ms > now_ms else now_ms + pause_ms)
        with trio.move_on_after(max(min(deadlines) - now_ms, 1) / 1000 if deadlines else float("inf")):
            await self._wake.wait()

    # sending

    def _send_ready(self, now_ms: int) -> bool:
        """Send one request to each leader that has ready batches and may get another request. Return True if any was
        sent."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in self._accumulator.ready(now_ms):
            leader = self._cluster.leader(topic_partition)
            if self.transactions is not None and not self.transactions.may_send(topic_partition):
                continue
            if self._accumulator.needs_identity(topic_partition):
                self._start_once(PRODUCER_ID_SLOT, self._acquire_identity)
            elif leader is None:
                self._metadata_wanted.set()
            else:
                by_leader.setdefault(leader.node_id, []).append(topic_partition)
        sent = False
        for node_id, partitions in by_leader.items():
            link = self._cluster.links.live(self._cluster.brokers[node_id].address, "produce")
            if link is None:
                self._start_once(node_id, partial(self._connect, node_id))
            elif self._has_room(link):
                free = [tp for tp in partitions if self._accumulator.may_send_on(tp, link)]
                if free:
                    self._send(link, free, now_ms)
                    sent = True
        return sent

    def _has_room(self, link: Link) -> bool:
        if self._config.required_acks == 0:
            return not link.has_unsent
        return link.in_flight < self._config.max_in_flight_requests_per_connection

    def _send(self, link: Link, partitions: list[TopicPartition], now_ms: int) -> None:
        batches: dict[TopicPartition, OutgoingBatch] = {}
        encoded: dict[TopicPartition, bytes] = {}
        left = self._config.max_request_size
        first = self._request_number % len(partitions)
        for topic_partition in partitions[first:] + partitions[:first]:
            if encoded and self._accumulator.next_bytes(topic_partition) > left:
                continue
            batches[topic_partition], encoded[topic_partition] = self._accumulator.take(topic_partition, link)
            left -= len(encoded[topic_partition])
        topic_ids = {topic: self._cluster.topic_id(topic) for topic, _ in encoded}
        transactions, transactional_id = self.transactions, self._config.transactional_id
        is_old = transactions is not None and not transactions.machine.is_v2
        version = produce_version(link.version(ApiKey.PRODUCE), topic_ids, is_before_v2_transactions=is_old)
        acks = self._config.required_acks
        timeout_ms = self._config.request_timeout_ms
        request = produce_request(version, acks, timeout_ms, encoded, topic_ids, transactional_id)
        self._request_number += 1
        number = self._request_number
        if acks == 0:
            link.send(ApiKey.PRODUCE, version, request, None)
            self._on_answer(batches, dict.fromkeys(batches, UNACKNOWLEDGED))
            return
        self._awaited[number] = (now_ms, link)

        def on_reply(body: memoryview | None) -> None:
            self._awaited.pop(number, None)
            answers: dict[TopicPartition, ProduceAnswer] = {}
            try:
                if body is not None:
                    answers = read_produce_response(version, body, topic_ids)
            finally:  # also called if the response does not parse, which closes the connection
                self._on_answer(batches, answers)

        link.send(ApiKey.PRODUCE, version, request, on_reply)

    def _close_silent_links(self, now_ms: int) -> None:
        for number, (sent_ms, link) in list(self._awaited.items()):
            if now_ms - sent_ms >= self._config.request_timeout_ms:
                del self._awaited[number]  # closing the connection calls its on_reply with None
                link.close()

    # responses

    def _on_answer(
        self, batches: dict[TopicPartition, OutgoingBatch], answers: dict[TopicPartition, ProduceAnswer]
    ) -> None:
        if self.is_closed:
            return
        for topic_partition, batch in batches.items():
            self._on_result(batch, answers.get(topic_partition, LOST))
            if self.transactions is not None and isinstance(batch.outcome, DeliveryFailed):
                self.transactions.batch_failed(batch.outcome)
        self._announce_room()
        if self.transactions is not None:
            self.transactions.batches_changed()
        self._wake.set()

    def _on_transaction_changed(self) -> None:
        self._announce_room()
        self._wake.set()

    def _on_result(self, batch: OutgoingBatch, result: ProduceAnswer) -> None:
        retry_at_ms = self._clock.monotonic_ms() + self._pause_ms(batch.attempts - 1)
        if VERDICTS.get(result.code) is Verdict.RETRY_ELSEWHERE:
            partition = batch.topic_partition
            if result.leader is not None and self._cluster.learn_leader(partition, result.leader, result.leader_broker):
                retry_at_ms = 0
            else:
                self._cluster.forget_leader(partition)
                self._metadata_wanted.set()
        self._accumulator.answered(
            batch,
            result.code,
            base_offset=result.base_offset,
            append_time_ms=result.log_append_time_ms,
            text=result.message or "",
            retry_at_ms=retry_at_ms,
        )

    def _pause_ms(self, failures: int) -> int:
        """Return the time to back off: `retry.backoff.ms`, doubled with each failure up to `retry.backoff.max.ms`, with
        20 % of random jitter."""
        pause_ms = min(self._config.retry_backoff_ms << min(failures, 20), self._config.retry_backoff_max_ms)
        return pause_ms * (80 + self._jitter.below(41)) // 100

    # connections, the producer id, metadata

    def _start_once(self, slot: int, work: Callable[[], Awaitable[None]]) -> None:
        if slot not in self._busy:
            self._busy.add(slot)
            self._nursery.start_soon(self._guarded, slot, work)

    async def _guarded(self, slot: int, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._busy.discard(slot)
            self._wake.set()

    async def _connect(self, node_id: int) -> None:
        if self._config.required_acks == 0:
            # with acks=0 only a closed connection shows that a broker is no longer the leader
            self._metadata_wanted.set()
        try:
            await self._cluster.link(node_id, "produce", learned=self.wake)
        except (*CONNECTION_FAILURES, WireError, KeyError):
            for topic_partition in self._accumulator.partitions():
                leader = self._cluster.leader(topic_partition)
                if leader is not None and leader.node_id == node_id:
                    self._cluster.forget_leader(topic_partition)
            self._metadata_wanted.set()
            await self._clock.sleep_ms(self._pause_ms(0))

    async def _acquire_identity(self) -> None:
        request = messages.build(messages.request_class(ApiKey.INIT_PRODUCER_ID), transactional_id=None)
        failures = 0
        while True:
            answer = await self._cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request, timeout_ms=float("inf"))
            code = ErrorCode.of(int(answer.error_code))
            if code is ErrorCode.NONE:
                self._accumulator.identity = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))
                return
            if code not in RETRIABLE:
                self._accumulator.fail_all(code, "no producer id could be obtained")
                self._announce_room()
                return
            await self._clock.sleep_ms(self._pause_ms(failures))
            failures += 1

    async def _run_metadata(self) -> None:
        failures = 0
        due_ms = self._clock.monotonic_ms() + self._config.metadata_max_age_ms
        while True:
            with trio.move_on_after(max(due_ms - self._clock.monotonic_ms(), 0) / 1000):
                await self._metadata_wanted.wait()
            self._metadata_wanted = trio.Event()
            wanted = self._accumulator.partitions()
            topics: Any = {topic for topic, _ in wanted}
            now_ms = self._clock.monotonic_ms()
            if not topics or now_ms >= due_ms:  # refresh all used topics: they may have got more partitions
                topics, due_ms = self.topics, now_ms + self._config.metadata_max_age_ms
            if not topics:
                continue
            errors = await self._cluster.refresh(topics, timeout_ms=float("inf"))
            unled = False
            for topic_partition in wanted:
                if self._cluster.leader(topic_partition) is None:
                    unled = True
                else:
                    self._accumulator.expedite(topic_partition)
            self._wake.set()
            failures = failures + 1 if errors or unled else 0
            await self._clock.sleep_ms(self._pause_ms(failures))
