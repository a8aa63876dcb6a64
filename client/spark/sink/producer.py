"""Synchronous: an idempotent producer over blocking connections, for a sink's task. It sends whole batches.

Order, sequence numbers, retries and error handling are those of `kraft.client.core`. This module sends the batches that
are ready and waits for responses, on several connections at once and without threads. The first batch that cannot be
delivered ends the write: `send` and `finish` then raise WriteFailed. Not thread-safe. Invariants: acks=all; at most
IN_FLIGHT_MAX requests per broker are in flight; unacknowledged batches have at most `buffer_bytes`, except for a single
larger batch.
Source: KIP-98, KIP-360, KIP-951.
"""

from __future__ import annotations

import random
import select
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from kraft.client.core.accumulator import Accumulator, AccumulatorSettings
from kraft.client.core.batch import OutgoingBatch, ProducerIdentity
from kraft.client.core.produce_errors import VERDICTS, Verdict
from kraft.client.core.records import DeliveryFailed, KafkaError, TopicPartition
from kraft.client.core.requests import ProduceAnswer, produce_version, read_produce_response
from kraft.client.core.retriable import RETRIABLE
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.blocking.link import LinkFailed, SyncLink, Ticket, build_request
from kraft.client.spark.blocking.retries import ClusterUnreachable, RetriableError, classify
from kraft.client.spark.settings import SinkSettings
from kraft.client.spark.sink.batches import SealedBatch, SequenceLost
from kraft.client.spark.sink.column_encoder import OpenRecords
from kraft.seam import WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import encode_produce_request
from kraft.wire.records.compression import Compression

IN_FLIGHT_MAX = 5
REQUEST_BYTES_MAX = 8 * 1024 * 1024
"""Maximum bytes of a request that has batches of several partitions."""
DIAL_TIMEOUT_MS = 3_000
"""Milliseconds in which a leader must accept a connection; otherwise connecting is retried later."""
RETRY_BACKOFF_MS = 50
RETRY_BACKOFF_MS_MAX = 1_000
METADATA_TIMEOUT_MS = 3_000
IDLE_MS = 50
"""Milliseconds between checks while a batch is due but cannot be sent yet."""
ALL_REPLICAS = -1
_LOST = ProduceAnswer(ErrorCode.NETWORK_EXCEPTION, -1, -1, "the connection ended", None, None)


class WriteFailed(KafkaError):
    """A partition's records could not be written. `certain` True: they are not in the log. False: they may be in the
    log."""

    def __init__(self, topic_partition: TopicPartition, code: ErrorCode, message: str, *, certain: bool) -> None:
        topic, partition = topic_partition
        doubt = "its records are not in the log" if certain else "some of its records may be in the log"
        super().__init__(code, f"topic {topic}, partition {partition}: {message}; {doubt}")
        self.topic_partition = topic_partition
        self.certain = certain


class EnlistingTransaction(Protocol):
    """Interface of a transaction for the producer. `enlist` adds partitions to the transaction, before the first batch
    for them is sent."""

    @property
    def transactional_id(self) -> str: ...
    @property
    def identity(self) -> ProducerIdentity: ...
    def enlist(self, partitions: Iterable[TopicPartition]) -> None: ...


@dataclass(slots=True)
class _InFlightRequest:
    """A Produce request in flight."""

    ticket: Ticket
    deadline_ms: int
    version: int
    topic_ids: Mapping[str, UUID | None]
    batches: dict[TopicPartition, OutgoingBatch]


TRANSACTION_VERSION_MAX = 11
"""Highest Produce version that is sent in a transaction. From version 12 on, brokers add partitions to the transaction
themselves (KIP-890), which requires EndTxn version 5."""


class SyncProducer:
    """The producer of one task. `transaction`: the transaction that all batches belong to; if it is None, the producer
    is idempotent but not transactional."""

    def __init__(
        self, cluster: SyncCluster, settings: SinkSettings, transaction: EnlistingTransaction | None = None
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._transaction = transaction
        self._accumulator = Accumulator(
            AccumulatorSettings(
                batch_bytes=settings.batch_bytes,
                buffer_bytes=settings.buffer_bytes,
                delivery_timeout_ms=settings.delivery_timeout_ms,
                compression=Compression.named(settings.compression),
                in_flight_max=IN_FLIGHT_MAX,
            ),
            None if transaction is None else transaction.identity,
        )
        self._failures: list[SealedBatch] = []
        self._last_refusal: dict[TopicPartition, str] = {}
        self._sent: dict[SyncLink, deque[_InFlightRequest]] = {}
        self._clock = _Clock()
        self._dial_at_ms: dict[int, int] = {}
        self._metadata_wanted = False
        self._metadata_at_ms = 0
        self._metadata_failures = 0

    @staticmethod
    def wall_ms() -> int:
        """Return the present time in ms since 1970, which is the timestamp of rows that have none."""
        return int(time.time() * 1000)

    def waiting_bytes(self, topic: str, partition: int) -> int:
        """Return the bytes of this partition that are not sent yet."""
        return self._accumulator.waiting_bytes((topic, partition))

    def send(self, topic_partition: TopicPartition, records: OpenRecords) -> None:
        """Queue a full batch once there is room for it. Raises WriteFailed as soon as any batch has failed."""
        self._clock.resume()
        now_ms = self._clock.now_ms()
        batch = SealedBatch(
            topic_partition,
            records,
            now_ms=now_ms,
            deadline_ms=now_ms + self._settings.delivery_timeout_ms,
            compression=self._accumulator.settings.compression,
            transaction=None if self._transaction is None else self._transaction.identity,
            failures=self._failures,
        )
        while not self._accumulator.has_room(batch.size_bytes):
            self._turn(is_waiting=True)
        self._accumulator.append(batch)
        self._turn(is_waiting=False)
        self._clock.stop()

    def finish(self) -> None:
        """Wait until the in-sync replicas have acknowledged all batches. Raises WriteFailed if a batch cannot be
        delivered."""
        self._clock.resume()
        while any(True for _ in self._accumulator.pending()):
            self._turn(is_waiting=True)
        self._clock.stop()

    def _turn(self, *, is_waiting: bool) -> None:
        """Handle received responses and send ready batches. With `is_waiting`, wait for a response or a deadline."""
        self._take_answers(0)
        now_ms = self._clock.now_ms()
        self._accumulator.expire(now_ms)
        self._raise_failure()
        if self._metadata_wanted and now_ms >= self._metadata_at_ms:
            self._refresh()
        while self._send_ready(now_ms):
            pass
        if is_waiting:
            self._take_answers(self._wait_ms(now_ms))
        self._raise_failure()

    def _raise_failure(self) -> None:
        for batch in self._failures:
            outcome = batch.outcome
            assert isinstance(outcome, DeliveryFailed)
            text = str(outcome).removeprefix(f"{outcome.code.name}: ")
            refusal = self._last_refusal.get(batch.topic_partition)
            if refusal is not None and refusal not in text:
                text += f" (last attempt: {refusal})"
            raise WriteFailed(batch.topic_partition, outcome.code, text, certain=outcome.certain)

    def _wait_ms(self, now_ms: int) -> int:
        due_ms = [sent[0].deadline_ms for sent in self._sent.values()]
        due_ms += [dial_ms for dial_ms in self._dial_at_ms.values() if dial_ms > now_ms]
        next_ms = self._accumulator.next_deadline_ms()
        if next_ms is not None:
            due_ms.append(next_ms if next_ms > now_ms else now_ms + (1_000 if self._sent else IDLE_MS))
        if self._metadata_wanted:
            due_ms.append(self._metadata_at_ms)
        return max(min(due_ms, default=now_ms + IDLE_MS) - now_ms, 1)

    # sending

    def _send_ready(self, now_ms: int) -> bool:
        """Send one request to each leader for which batches are ready and that may get another request. Return True if
        any was sent."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in self._accumulator.ready(now_ms):
            if self._accumulator.needs_identity(topic_partition):
                self._accumulator.identity = acquire_identity(self._cluster)
            try:
                leader = self._cluster.leader_of(topic_partition)
            except RetriableError as problem:
                self._last_refusal[topic_partition] = str(problem)
                self._want_metadata()
            else:
                by_leader.setdefault(leader.node_id, []).append(topic_partition)
        sent = False
        for node_id, partitions in by_leader.items():
            link = self._dialled(node_id, partitions, now_ms)
            if link is not None and len(self._sent.get(link, ())) < IN_FLIGHT_MAX:
                free = [one for one in partitions if self._accumulator.may_send_on(one, link)]
                sent = (bool(free) and self._send(link, free)) or sent
        return sent

    def _dialled(self, node_id: int, partitions: list[TopicPartition], now_ms: int) -> SyncLink | None:
        if now_ms < self._dial_at_ms.get(node_id, 0):
            return None
        try:
            return self._cluster.link(node_id, timeout_ms=DIAL_TIMEOUT_MS)
        except (LinkFailed, WireError, KafkaError) as problem:
            self._last_refusal.update(dict.fromkeys(partitions, str(problem)))
            self._dial_at_ms[node_id] = self._clock.now_ms() + RETRY_BACKOFF_MS
            self._want_metadata()
            return None

    def _send(self, link: SyncLink, partitions: list[TopicPartition]) -> bool:
        if self._transaction is not None:
            self._transaction.enlist(partitions)
        batches: dict[TopicPartition, OutgoingBatch] = {}
        topics: dict[str, list[tuple[int, bytes]]] = {}
        left = REQUEST_BYTES_MAX
        for topic_partition in partitions:
            if batches and self._accumulator.next_bytes(topic_partition) > left:
                continue
            batch, encoded = self._take(topic_partition, link)
            batches[topic_partition] = batch
            topics.setdefault(topic_partition[0], []).append((topic_partition[1], encoded))
            left -= len(encoded)
        topic_ids = {name: self._cluster.topics[name].topic_id for name in topics}
        version = produce_version(link.version(ApiKey.PRODUCE), topic_ids)
        if self._transaction is not None:
            version = min(version, TRANSACTION_VERSION_MAX)
        timeout_ms = self._settings.connection.request_timeout_ms
        request = encode_produce_request(
            version,
            acks=ALL_REPLICAS,
            timeout_ms=timeout_ms,
            topics=[(name, topic_ids[name], entries) for name, entries in topics.items()],
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
        )
        try:
            ticket = link.send(ApiKey.PRODUCE, version, request, timeout_ms=timeout_ms)
        except LinkFailed as failure:
            self._drop_link(link, str(failure))
            self._answer(batches, {}, str(failure))
            return False
        deadline_ms = self._clock.now_ms() + timeout_ms
        self._sent.setdefault(link, deque()).append(_InFlightRequest(ticket, deadline_ms, version, topic_ids, batches))
        return True

    def _take(self, topic_partition: TopicPartition, link: SyncLink) -> tuple[OutgoingBatch, bytes]:
        try:
            return self._accumulator.take(topic_partition, link)
        except SequenceLost:
            text = "an earlier batch of the transaction was rejected; the transaction is aborted"
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            raise WriteFailed(topic_partition, code, text, certain=False) from None

    # responses

    def _take_answers(self, wait_ms: int) -> None:
        """Wait at most `wait_ms` for a response, and handle all that have arrived. Then close the connections on which
        a response is overdue."""
        for link in [link for link in self._sent if link.is_closed]:
            self._drop_link(link, f"the connection to {link.address} ended")  # by another request that failed on it
        if not self._sent:
            time.sleep(wait_ms / 1000)
        readable = self._readable(wait_ms)
        while readable:
            for link in readable:
                self._receive(link)
            readable = self._readable(0)
        now_ms = self._clock.now_ms()
        for link in [link for link, sent in self._sent.items() if now_ms >= sent[0].deadline_ms]:
            self._drop_link(link, f"{link.address} did not answer Produce in time")

    def _readable(self, wait_ms: int) -> list[SyncLink]:
        if not self._sent:
            return []
        decrypted = [link for link in self._sent if link.has_decrypted]
        poll = select.poll()
        by_fileno = {link.fileno(): link for link in self._sent}
        for fileno in by_fileno:
            poll.register(fileno, select.POLLIN)
        return decrypted or [by_fileno[fileno] for fileno, _ in poll.poll(wait_ms)]

    def _receive(self, link: SyncLink) -> None:
        sent = self._sent[link][0]
        try:
            body = link.receive(sent.ticket)
            answers = read_produce_response(sent.version, body, sent.topic_ids)
        except (LinkFailed, WireError) as problem:
            self._drop_link(link, str(problem))
            return
        self._sent[link].popleft()
        if not self._sent[link]:
            del self._sent[link]
        self._answer(sent.batches, answers, "the answer leaves it out")

    def _drop_link(self, link: SyncLink, reason: str) -> None:
        """Close a connection, and requeue the batches that were in flight on it."""
        link.close()
        for sent in self._sent.pop(link, ()):
            self._answer(sent.batches, {}, reason)

    def _answer(
        self, batches: dict[TopicPartition, OutgoingBatch], answers: dict[TopicPartition, ProduceAnswer], reason: str
    ) -> None:
        for topic_partition, batch in batches.items():
            reported = answers.get(topic_partition, _LOST)
            text = reason if reported is _LOST else reported.message or reported.code.name.lower().replace("_", " ")
            retry_at_ms = self._clock.now_ms() + _pause_ms(batch.attempts - 1)
            if reported.code is not ErrorCode.NONE:
                self._last_refusal[topic_partition] = f"{reported.code.name}: {text}"
            if VERDICTS.get(reported.code) is Verdict.RETRY_ELSEWHERE:
                if reported.leader is not None and self._cluster.learn_leader(
                    topic_partition, reported.leader, reported.leader_broker
                ):
                    retry_at_ms = 0
                else:
                    self._want_metadata()
            self._accumulator.answered(
                batch,
                reported.code,
                base_offset=reported.base_offset,
                append_time_ms=reported.log_append_time_ms,
                text=text,
                retry_at_ms=retry_at_ms,
            )

    # metadata

    def _want_metadata(self) -> None:
        if not self._metadata_wanted:
            self._metadata_wanted = True
            pause_ms = _pause_ms(self._metadata_failures) if self._metadata_failures else 0
            self._metadata_at_ms = self._clock.now_ms() + pause_ms

    def _refresh(self) -> None:
        """Refresh the leaders in the metadata. Batches whose partition has a leader may be sent at once. While a
        partition has no leader, the pauses between refreshes grow."""
        self._metadata_wanted = False
        wanted = self._accumulator.partitions()
        try:
            self._cluster.refresh({topic for topic, _ in wanted}, timeout_ms=METADATA_TIMEOUT_MS)
        except ClusterUnreachable as problem:
            self._last_refusal.update(dict.fromkeys(wanted, str(problem)))
        self._metadata_failures += 1
        if all(self._has_leader(one) for one in wanted):
            self._metadata_failures = 0

    def _has_leader(self, topic_partition: TopicPartition) -> bool:
        try:
            self._cluster.leader_of(topic_partition)
        except RetriableError:
            return False
        return True


def acquire_identity(cluster: SyncCluster) -> ProducerIdentity:
    """Return a new producer id, requested without a transactional id. Raises KafkaError if the broker denies the
    request; ClusterUnreachable."""

    def attempt(wait_ms: float) -> ProducerIdentity:
        request = build_request(ApiKey.INIT_PRODUCER_ID, transactional_id=None)
        answer = cluster.request_any(ApiKey.INIT_PRODUCER_ID, request, timeout_ms=wait_ms)
        code = ErrorCode.of(int(answer.error_code))
        if code is not ErrorCode.NONE:
            raise classify(code, RETRIABLE, "no producer id (InitProducerId)")
        return ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))

    return cluster.retry(attempt)


def _pause_ms(failures: int) -> int:
    """Return the milliseconds to wait before the next retry: RETRY_BACKOFF_MS, doubled with each failure up to
    RETRY_BACKOFF_MS_MAX, ± 20 %."""
    pause_ms = min(RETRY_BACKOFF_MS << min(max(failures, 0), 20), RETRY_BACKOFF_MS_MAX)
    return int(pause_ms * random.uniform(0.8, 1.2))


class _Clock:
    """Clock that counts only the time spent inside the producer. Timeouts do not advance while the caller makes the
    next rows, because nothing can be sent or received then."""

    def __init__(self) -> None:
        self._away_s = 0.0
        self._stopped_at = time.monotonic()

    def stop(self) -> None:
        self._stopped_at = time.monotonic()

    def resume(self) -> None:
        self._away_s += time.monotonic() - self._stopped_at

    def now_ms(self) -> int:
        return int((time.monotonic() - self._away_s) * 1000)
