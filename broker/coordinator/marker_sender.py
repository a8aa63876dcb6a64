"""MarkerSender: have the leaders of a transaction's partitions write its markers, once the transaction is decided.

Each partition of a transaction that is being completed is in one place: queued for its leader, in the request to the
leader, or waiting for its next try. It is removed when its leader has confirmed the marker, when the metadata no longer
have the partition, or when the coordinator's shard closes. So the entries held here are bounded by the partitions of
decided transactions.

Each broker gets one request at a time, with everything that is queued for it. No transaction has a task.
Source: KIP-98, KIP-1228, Kafka's TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import structlog
import trio

from kraft.broker.coordinator.marker_writer import MarkerToWrite, OnWritten
from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.serving.purgatory import Parked
from kraft.broker.serving.request_versions import request_part
from kraft.broker.txn.ending import FIRST_BUMPING_VERSION
from kraft.image.partitions import NO_LEADER
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.coordinator.broker_connections import BrokerConnections
    from kraft.broker.coordinator.shard_driver import CoordinatorShard
    from kraft.broker.serving.loop import Loop
    from kraft.broker.txn.coordinator import TransactionCoordinator
    from kraft.broker.txn.records import TopicPartition
    from kraft.broker.txn.step import Markers
    from kraft.image import ImageDelta, MetadataImage

log = structlog.get_logger("kraft.broker.transactions")

PARTITIONS_PER_REQUEST_MAX = 2_000
RETRY_MS_FIRST, RETRY_MS_MAX = 20, 1_000
ANSWER_MARGIN_MS = 1_000
"""Milliseconds that the sender waits beyond the leader's timeout, so that the leader can report REQUEST_TIMED_OUT
itself."""
LAST_WITHOUT_VERSION, FIRST_WITH_VERSION = 1, 2
"""Versions of WriteTxnMarkers: the last that does not name the transaction's version, and the first that does."""


class MarkerAction(Enum):
    """The sender's next action after the result of one marker."""

    DONE = "the marker is written, or cannot be"
    RETRY = "send the marker again, to the leader in the newest image"
    STOP = "another coordinator, or another producer, owns the transaction"


MARKER_ACTIONS = MappingProxyType(
    {
        ErrorCode.NONE: MarkerAction.DONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerAction.DONE,
        ErrorCode.UNSUPPORTED_VERSION: MarkerAction.DONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION: MarkerAction.DONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: MarkerAction.RETRY,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: MarkerAction.RETRY,
        ErrorCode.NOT_ENOUGH_REPLICAS: MarkerAction.RETRY,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: MarkerAction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: MarkerAction.RETRY,
        ErrorCode.KAFKA_STORAGE_ERROR: MarkerAction.RETRY,
        ErrorCode.NETWORK_EXCEPTION: MarkerAction.RETRY,
        ErrorCode.INVALID_PRODUCER_EPOCH: MarkerAction.STOP,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerAction.STOP,
    }
)
"""Error code of a marker → the sender's action. After an error that is not listed, the sender logs it and sends the
marker again."""


class CompletionAttempt:
    """One attempt of a shard to complete a transaction, with the markers that it needs."""

    __slots__ = ("is_stopped", "markers", "retry", "shard", "tries")

    def __init__(self, shard: CoordinatorShard[TransactionCoordinator], markers: Markers) -> None:
        self.shard = shard
        self.markers = markers
        self.tries = 0
        """Number of retries since a marker was written."""
        self.retry: MarkerRetry | None = None
        """Markers that the leaders did not write, until their next try."""
        self.is_stopped = False

    @property
    def is_over(self) -> bool:
        """Whether no more markers are sent for this attempt."""
        return self.is_stopped or self.shard.state is ShardState.CLOSED

    @property
    def to_write(self) -> MarkerToWrite:
        one = self.markers
        return MarkerToWrite(
            one.producer_id, one.producer_epoch, self.shard.leader_epoch, one.is_commit, one.client_version
        )

    def report(self, partition: TopicPartition) -> None:
        """Report to the state machine that this partition needs no marker any more."""
        machine, one = self.shard.machine, self.markers
        if machine is not None:
            self.shard.run_now(lambda now: machine.marked(one.transactional_id, one.attempt, partition, now))


Entry = tuple[CompletionAttempt, "TopicPartition"]
"""One marker to write: the attempt that it belongs to, and its partition."""


class MarkerRetry(Parked):
    """Markers of one attempt that wait for their next try. `has_leaders` is False if their partitions have no
    leader."""

    __slots__ = ("_sender", "completion", "has_leaders", "partitions")

    def __init__(
        self,
        sender: MarkerSender,
        completion: CompletionAttempt,
        partitions: list[TopicPartition],
        *,
        has_leaders: bool,
    ) -> None:
        self.bucket = -1
        self._sender = sender
        self.completion = completion
        self.partitions = partitions
        self.has_leaders = has_leaders

    def expire(self) -> None:
        self._sender.try_again(self)


class MarkerSender:
    """The markers that one broker sends as a transaction coordinator. No public method is a coroutine."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        newest_image: Callable[[], MetadataImage],
        connections: BrokerConnections,
        write_here: Callable[[str, int, MarkerToWrite, OnWritten], None],
        timeout_ms: int,
    ) -> None:
        """`write_here` is `MarkerWriter.write`, for partitions that this broker leads. `timeout_ms` is how long a
        leader waits for its followers to replicate a marker."""
        self._loop = loop
        self._node_id = node_id
        self._newest_image = newest_image
        self._connections = connections
        self._write_here = write_here
        self._timeout_ms = timeout_ms
        self._queues: dict[int, deque[Entry]] = {}
        self._in_flight: set[int] = set()
        self._retries: dict[MarkerRetry, None] = {}
        self._flush_is_scheduled = False

    # for the coordinators

    def send(self, shard: CoordinatorShard[TransactionCoordinator], markers: Markers) -> None:
        """Start writing these markers. Each partition is reported to the shard's state machine once."""
        self._dispatch(CompletionAttempt(shard, markers), sorted(markers.partitions))

    def metadata_published(self, new: MetadataImage, delta: ImageDelta) -> None:
        """Send the markers that wait for their partitions to have a leader, if the newest image may name one."""
        self._connections.metadata_published(new)
        if delta.topics or delta.deleted_topics or delta.brokers:
            for retry in [one for one in self._retries if not one.has_leaders]:
                self._loop.deadlines.remove(retry)
                self.try_again(retry)

    @property
    def without_leader(self) -> int:
        """Number of markers whose partitions have no leader."""
        return sum(len(retry.partitions) for retry in self._retries if not retry.has_leaders)

    @property
    def waiting(self) -> int:
        """Number of markers that wait for a request or for their next try."""
        queued = sum(map(len, self._queues.values()))
        return queued + sum(len(retry.partitions) for retry in self._retries)

    # queues

    def _dispatch(self, completion: CompletionAttempt, partitions: Iterable[TopicPartition]) -> None:
        """Queue these markers for the leaders of the newest image."""
        if completion.is_over:
            return
        image, without_leader = self._newest_image(), []
        for partition in partitions:
            topic = image.topics.get(partition[0])
            state = None if topic is None else topic.find(partition[1])
            if state is None:
                completion.report(partition)
            elif state.leader == NO_LEADER:
                without_leader.append(partition)
            else:
                self._queues.setdefault(state.leader, deque()).append((completion, partition))
        if without_leader:
            self._retry_later(completion, without_leader, has_leaders=False)
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Send the queued markers in a later step, so that transactions completed in one pass share requests."""
        if self._queues and not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._loop.start_task(self._flush)

    async def _flush(self) -> None:
        await trio.lowlevel.checkpoint()
        self._flush_is_scheduled = False
        for broker_id in sorted(self._queues.keys() - self._in_flight):
            self._send_queue(broker_id)
        self._loop.request_pass()

    def _send_queue(self, broker_id: int) -> None:
        queue = self._queues.pop(broker_id)
        entries: list[Entry] = []
        while queue and len(entries) < PARTITIONS_PER_REQUEST_MAX:
            entry = queue.popleft()
            if not entry[0].is_over:
                entries.append(entry)
        if queue:
            self._queues[broker_id] = queue
        if not entries:
            return
        if broker_id == self._node_id:
            for completion, partition in entries:
                self._write_here(*partition, completion.to_write, partial(self._written, completion, partition))
            self._flush_soon()
            return
        self._in_flight.add(broker_id)
        request, version = write_request(entries)
        self._connections.send(
            broker_id,
            ApiKey.WRITE_TXN_MARKERS,
            version,
            request,
            partial(self._answered, broker_id, entries),
            timeout_ms=self._timeout_ms + ANSWER_MARGIN_MS,
        )

    # outcomes

    def _written(self, completion: CompletionAttempt, partition: TopicPartition, error: ErrorCode) -> None:
        self._take(completion, partition, error)
        self._loop.request_pass()

    def _answered(self, broker_id: int, entries: list[Entry], response: Any) -> None:
        self._in_flight.discard(broker_id)
        errors = {} if response is None else read_errors(response)
        for completion, partition in entries:
            key = (completion.markers.producer_id, *partition)
            self._take(completion, partition, errors.get(key, ErrorCode.NETWORK_EXCEPTION))
        self._flush_soon()

    def _take(self, completion: CompletionAttempt, partition: TopicPartition, error: ErrorCode) -> None:
        if completion.is_over:
            return
        action = MARKER_ACTIONS.get(error)
        if action is MarkerAction.DONE:
            completion.tries = 0
            completion.report(partition)
        elif action is MarkerAction.STOP:
            self._log(log.warning, "a marker was rejected: the transaction belongs to another", completion, error)
            completion.is_stopped = True
        else:
            if action is None:
                self._log(log.error, "a marker was not written, and is sent again", completion, error)
            self._retry_later(completion, [partition], has_leaders=True)

    def _log(self, write: Callable[..., Any], event: str, completion: CompletionAttempt, error: ErrorCode) -> None:
        markers = completion.markers
        write(event, transactional_id=markers.transactional_id, producer_id=markers.producer_id, error=error.name)

    # retries

    def _retry_later(
        self, completion: CompletionAttempt, partitions: list[TopicPartition], *, has_leaders: bool
    ) -> None:
        """Send these markers again after a delay, which doubles with each try. Markers that fail before the next try
        join it. Markers without a leader seldom need a try, because new metadata are a reason to send them at once."""
        if has_leaders and completion.retry is not None:
            completion.retry.partitions += partitions
            return
        retry = MarkerRetry(self, completion, partitions, has_leaders=has_leaders)
        delay_ms = RETRY_MS_MAX
        if has_leaders:
            completion.retry = retry
            delay_ms = min(RETRY_MS_FIRST << min(completion.tries, 10), RETRY_MS_MAX)
            completion.tries += 1
        self._retries[retry] = None
        self._loop.deadlines.add(retry, self._loop.clock.monotonic_ms() + delay_ms)

    def try_again(self, retry: MarkerRetry) -> None:
        """Send these markers again, to the leaders of the newest image."""
        self._retries.pop(retry, None)
        if retry.has_leaders:
            retry.completion.retry = None
        self._dispatch(retry.completion, retry.partitions)


def write_request(entries: Iterable[Entry]) -> tuple[Any, int]:
    """Return the WriteTxnMarkers request for these markers, and its version."""
    marker_part = request_part(ApiKey.WRITE_TXN_MARKERS, "WritableTxnMarker")
    topic_part = request_part(ApiKey.WRITE_TXN_MARKERS, "WritableTxnMarkerTopic")
    topics: dict[CompletionAttempt, dict[str, list[int]]] = {}
    for completion, (topic, index) in entries:
        topics.setdefault(completion, {}).setdefault(topic, []).append(index)
    rows = [
        marker_part(
            **marker_fields(completion.to_write),
            topics=[topic_part(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
        )
        for completion, by_topic in topics.items()
    ]
    names_version = any(one.markers.client_version >= FIRST_BUMPING_VERSION for one in topics)
    request = messages.build(messages.request_class(ApiKey.WRITE_TXN_MARKERS), markers=rows)
    return request, FIRST_WITH_VERSION if names_version else LAST_WITHOUT_VERSION


def marker_fields(marker: MarkerToWrite) -> dict[str, Any]:
    """Return the fields of a marker in a WriteTxnMarkers request, without its topics."""
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.is_commit,
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
    }


def read_errors(response: Any) -> dict[tuple[int, str, int], ErrorCode]:
    """Return the error code of each marker in a response, by producer id, topic and partition."""
    return {
        (marker.producer_id, topic.name, row.partition_index): ErrorCode.of(int(row.error_code))
        for marker in response.markers
        for topic in marker.topics
        for row in topic.partitions
    }
