"""The producer's sending side: one task that drains the accumulator to the leaders, and what their answers mean.

Requests to one broker are pipelined, at most `max.in.flight.requests.per.connection` of them; answers come back as
callbacks of the connection. A broker that does not answer within `request.timeout.ms` loses its connection, and with it
all that was on its way there is retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from kraft.client.cluster import RETRIABLE, Cluster
from kraft.client.connections import CONNECTION_FAILURES, Link
from kraft.client.core.accumulator import Accumulator
from kraft.client.core.batch import Batch, ProducerIdentity
from kraft.client.core.configs import ProducerConfig
from kraft.client.core.produce_errors import VERDICTS, Verdict
from kraft.client.core.records import DeliveryFailed, TopicPartition
from kraft.client.core.requests import ProduceAnswer, produce_request, produce_version, read_produce_response
from kraft.seam import Seam, WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

NOBODY = -1
"""The slot of the search for a producer id among the slots of brokers that are being dialled."""
CLOSED = "the producer was closed before the acknowledgement"
SHUT = "the producer is closed"
LOST = ProduceAnswer(ErrorCode.NETWORK_EXCEPTION, -1, -1, "the connection ended", None, None)
UNTOLD = ProduceAnswer(ErrorCode.NONE, -1, -1, None, None, None)


class Sender:
    """Runs in `nursery` from `start` until that is cancelled. `topics` are those that the producer has used."""

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

    def start(self) -> None:
        self._nursery.start_soon(self._run)
        self._nursery.start_soon(self._run_metadata)

    def wake(self) -> None:
        """There is something new to send."""
        self._wake.set()

    async def wait_room(self) -> None:
        """Until some batch has ended."""
        await self._room.wait()

    async def wait_sent(self) -> None:
        """Until what nobody acknowledges (acks=0) has left this process."""
        while any(link.has_unsent for link in self._cluster.links.all_of("produce")):
            await self._clock.sleep_ms(1)

    def close(self) -> None:
        """Nothing leaves any more; what is not settled is told so."""
        self.is_closed = True
        self._accumulator.fail_all(ErrorCode.REQUEST_TIMED_OUT, CLOSED)
        self._announce_room()

    def require_open(self) -> None:
        """DeliveryFailed once it is closed: nobody would ever say how a record ended."""
        if self.is_closed:
            raise DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, SHUT, certain=True)

    def _announce_room(self) -> None:
        self._room.set()
        self._room = trio.Event()

    async def _run(self) -> None:
        while True:
            self._wake = trio.Event()
            now_ms = self._clock.monotonic_ms()
            if self._accumulator.expire(now_ms):
                self._announce_room()
            self._close_silent_links(now_ms)
            while self._send_ready(now_ms):
                pass
            await self._sleep(now_ms)

    async def _sleep(self, now_ms: int) -> None:
        deadlines = [sent_ms + self._config.request_timeout_ms for sent_ms, _ in self._awaited.values()]
        waiting_ms = self._accumulator.next_deadline_ms()
        if waiting_ms is not None:
            # What is due and could not leave waits for a connection, for metadata or for an answer: each of them wakes.
            # Only without acknowledgements nothing tells that the connection has room again.
            pause_ms = self._config.retry_backoff_max_ms if self._config.required_acks else 1
            deadlines.append(waiting_ms if waiting_ms > now_ms else now_ms + pause_ms)
        with trio.move_on_after(max(min(deadlines) - now_ms, 1) / 1000 if deadlines else float("inf")):
            await self._wake.wait()

    # out

    def _send_ready(self, now_ms: int) -> bool:
        """One request to each leader that may get one. True if any left."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in self._accumulator.ready(now_ms):
            leader = self._cluster.leader(topic_partition)
            if self._accumulator.needs_identity(topic_partition):
                self._start_once(NOBODY, self._acquire_identity)
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
                free = [tp for tp in partitions if self._accumulator.may_go(tp, link)]
                if free:
                    self._send(link, free, now_ms)
                    sent = True
        return sent

    def _has_room(self, link: Link) -> bool:
        if self._config.required_acks == 0:
            return not link.has_unsent
        return link.in_flight < self._config.max_in_flight_requests_per_connection

    def _send(self, link: Link, partitions: list[TopicPartition], now_ms: int) -> None:
        batches: dict[TopicPartition, Batch] = {}
        encoded: dict[TopicPartition, bytes] = {}
        left = self._config.max_request_size
        first = self._request_number % len(partitions)
        for topic_partition in partitions[first:] + partitions[:first]:
            if encoded and self._accumulator.next_bytes(topic_partition) > left:
                continue
            batches[topic_partition], encoded[topic_partition] = self._accumulator.take(topic_partition, link)
            left -= len(encoded[topic_partition])
        topic_ids = {topic: self._cluster.topic_id(topic) for topic, _ in encoded}
        version = produce_version(link.version(ApiKey.PRODUCE), topic_ids)
        acks = self._config.required_acks
        request = produce_request(version, acks, self._config.request_timeout_ms, encoded, topic_ids)
        self._request_number += 1
        number = self._request_number
        if acks == 0:
            link.send(ApiKey.PRODUCE, version, request, None)
            self._on_answer(batches, dict.fromkeys(batches, UNTOLD))
            return
        self._awaited[number] = (now_ms, link)

        def on_reply(body: memoryview | None) -> None:
            self._awaited.pop(number, None)
            answers: dict[TopicPartition, ProduceAnswer] = {}
            try:
                if body is not None:
                    answers = read_produce_response(version, body, topic_ids)
            finally:  # also when the answer does not parse, which ends the connection
                self._on_answer(batches, answers)

        link.send(ApiKey.PRODUCE, version, request, on_reply)

    def _close_silent_links(self, now_ms: int) -> None:
        for number, (sent_ms, link) in list(self._awaited.items()):
            if now_ms - sent_ms >= self._config.request_timeout_ms:
                del self._awaited[number]  # its answer is that the connection ended, and comes when that has
                link.close()

    # answers

    def _on_answer(self, batches: dict[TopicPartition, Batch], answers: dict[TopicPartition, ProduceAnswer]) -> None:
        if self.is_closed:
            return
        for topic_partition, batch in batches.items():
            self._on_told(batch, answers.get(topic_partition, LOST))
        self._announce_room()
        self._wake.set()

    def _on_told(self, batch: Batch, told: ProduceAnswer) -> None:
        retry_at_ms = self._clock.monotonic_ms() + self._pause_ms(batch.attempts - 1)
        if VERDICTS.get(told.code) is Verdict.RETRY_ELSEWHERE:
            partition = batch.topic_partition
            if told.leader is not None and self._cluster.learn_leader(partition, told.leader, told.leader_broker):
                retry_at_ms = 0
            else:
                self._cluster.forget_leader(partition)
                self._metadata_wanted.set()
        self._accumulator.answered(
            batch,
            told.code,
            base_offset=told.base_offset,
            append_time_ms=told.log_append_time_ms,
            text=told.message or "",
            retry_at_ms=retry_at_ms,
        )

    def _pause_ms(self, failures: int) -> int:
        """`retry.backoff.ms`, doubled with each failure up to `retry.backoff.max.ms`, give or take a fifth."""
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
            self._metadata_wanted.set()  # only the end of its connection tells that a broker does not lead any more
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
                self._accumulator.fail_all(code, "no producer id could be had")
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
            if not topics or now_ms >= due_ms:  # also those that nothing waits for now: they may have grown
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
