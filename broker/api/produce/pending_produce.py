"""A produce on its way: the results of its partitions, the high watermarks that it waits for, and its one answer.

Invariants: each partition answers once. The answer leaves when all partitions have answered, or at the deadline, with
REQUEST_TIMED_OUT for the others, whose outcome is unknown to the client. With acks=0 there is no answer, and any error
closes the connection. Source: ProduceRequest 3 to 13, Kafka's DelayedProduce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kraft.broker.serving.leader_hints import current_leader, endpoints_of
from kraft.broker.serving.purgatory import Parked
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import (
    FIRST_VERSION_WITH_LEADER,
    ProduceResult,
    ProduceSuccess,
    encode_produce_response,
)
from kraft.wire.request_meter import PRODUCE

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.session import Session
    from kraft.storage.append import AppendInfo
    from kraft.wire.server import Request

HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors whose answer names the leader (v10 and newer)."""


class SingleProduce(Parked):
    """The usual case, parked: one partition, its batch appended, the answer built; the acknowledgement is missing."""

    delayed_operation = "Produce"
    __slots__ = ("broker", "partition_index", "request", "success", "topic", "topic_id")

    def __init__(
        self,
        broker: Broker,
        request: Request,
        success: bytes,
        topic: str | None,
        topic_id: UUID | None,
        index: int,
    ) -> None:
        self.bucket = -1
        self.broker = broker
        self.request = request
        self.success = success
        self.topic = topic
        self.topic_id = topic_id
        self.partition_index = index

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """The high watermark has passed the batch (NONE), or never will here."""
        if self.bucket < 0:
            return
        self.broker.replicas.deadlines.remove(self)
        self.bucket = -1
        if error == ErrorCode.NONE:
            self.request.connection.meter.produced_partitions += 1
            self.request.respond(self.success)
        else:
            self._fail(error)

    def expire(self) -> None:
        self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, error: ErrorCode) -> None:
        self.broker.finish(self.request, self._refuse, error)

    def _refuse(self, error: ErrorCode) -> None:
        session: Session = self.request.connection.session  # type: ignore[assignment]
        rows = [(self.topic, self.topic_id, [ProduceResult(self.partition_index, error)])]
        answer_produce(self.broker, self.request, session, rows)


ProduceRows = list[tuple[str | None, UUID | None, list[ProduceResult]]]


class ProduceOperation(Parked):
    """The general case: any number of partitions, each with its own fate."""

    delayed_operation = "Produce"
    __slots__ = ("acks", "broker", "remaining", "request", "rows", "session", "slots", "throttle_ms")

    def __init__(self, broker: Broker, request: Request, session: Session, acks: int) -> None:
        self.bucket = -1
        self.broker = broker
        self.request = request
        self.session = session
        self.acks = acks
        self.throttle_ms = 0
        self.rows: ProduceRows = []
        self.slots: list[PartitionProduce] = []
        self.remaining = 0

    def topic(self, name: str | None, topic_id: UUID | None) -> list[ProduceResult]:
        """Begin the rows of a topic, in the request's order."""
        rows: list[ProduceResult] = []
        self.rows.append((name, topic_id, rows))
        return rows

    def slot(self, rows: list[ProduceResult], index: int) -> PartitionProduce:
        """The place of the next partition of the topic that was begun last."""
        slot = PartitionProduce(self, rows, len(rows), index)
        rows.append(ProduceResult(index, ErrorCode.REQUEST_TIMED_OUT))
        self.slots.append(slot)
        self.remaining += 1
        return slot

    def settle(self, timeout_ms: int) -> None:
        """All partitions were tried: answer, or wait for those that have not answered."""
        if self.remaining == 0:
            self._answer()
        elif timeout_ms <= 0:
            self.expire()
        else:
            replicas = self.broker.replicas
            replicas.deadlines.add(self, replicas.clock.monotonic_ms() + timeout_ms)

    def one_done(self) -> None:
        self.remaining -= 1
        if self.remaining == 0 and self.bucket >= 0:
            self.broker.replicas.deadlines.remove(self)
            self.bucket = -1
            self.broker.finish(self.request, self._answer)

    def expire(self) -> None:
        self.bucket = -1
        for slot in self.slots:
            slot.is_done = True
        self.broker.finish(self.request, self._answer)

    def _answer(self) -> None:
        if self.acks != 0:
            answer_produce(self.broker, self.request, self.session, self.rows, self.throttle_ms)
            return
        failed = [row for _, _, rows in self.rows for row in rows if row.error_code]
        if failed:
            self.request.fail(f"a produce with acks=0 failed: {ErrorCode(failed[0].error_code).name}")
        else:
            self.request.connection.meter.produced_partitions += len(self.slots)
            self.request.respond_nothing()


class PartitionProduce:
    """One partition of a ProduceOperation. Its row says REQUEST_TIMED_OUT until its answer is known: a batch that is
    appended and not acknowledged is no success when the time is over."""

    __slots__ = ("index", "is_done", "operation", "place", "rows", "success")

    def __init__(self, operation: ProduceOperation, rows: list[ProduceResult], place: int, index: int) -> None:
        self.operation = operation
        self.rows = rows
        self.place = place
        self.index = index
        self.is_done = False
        self.success: ProduceResult | None = None

    def finish(self, result: ProduceResult) -> None:
        """This is the partition's answer. Later ones have no effect."""
        if not self.is_done:
            self.is_done = True
            self.rows[self.place] = result
            self.operation.one_done()

    def refuse(self, error: ErrorCode, message: str | None = None) -> None:
        """The partition is not appended to."""
        self.finish(ProduceResult(self.index, error, error_message=message))

    def appended(self, info: AppendInfo, log_start_offset: int) -> None:
        """Keep where the batch went, for the answer."""
        self.success = ProduceResult(
            self.index, ErrorCode.NONE, info.base_offset, info.log_append_time_ms, log_start_offset
        )

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """The append is as durable as was asked (NONE), or its outcome is unknown."""
        if error == ErrorCode.NONE and self.success is not None:
            self.finish(self.success)
        else:
            self.finish(ProduceResult(self.index, error))


def answer_produce(broker: Broker, request: Request, session: Session, rows: ProduceRows, throttle_ms: int = 0) -> None:
    """Encode and send, with the leaders of misdirected partitions for those who can read that (v10)."""
    version = request.api_version
    _count_errors(broker, request, rows)
    endpoints = []
    if version >= FIRST_VERSION_WITH_LEADER:
        image = broker.image
        hinted: ProduceRows = []
        for name, topic_id, results in rows:
            if any(result.error_code in HINTED for result in results):
                topic = image.topics.get(name) if name is not None else image.topics.get_by_id(topic_id or NO_TOPIC_ID)
                results = [
                    result._replace(current_leader=current_leader(topic, result.partition))
                    if result.error_code in HINTED
                    else result
                    for result in results
                ]
            hinted.append((name, topic_id, results))
        rows = hinted
        leaders = (result.current_leader for _, _, results in rows for result in results)
        endpoints = endpoints_of(image, leaders, session.listener)
    request.respond(encode_produce_response(version, rows, throttle_ms, endpoints))


def _count_errors(broker: Broker, request: Request, rows: ProduceRows) -> None:
    """What the answer tells of each partition; by topic only of those hosted here: nobody makes a metric by asking for
    a topic that does not exist."""
    meter = request.connection.meter
    for name, topic_id, results in rows:
        for result in results:
            meter.errors[PRODUCE, int(result.error_code)] += 1
            if result.error_code:
                partition = broker.replicas.find(name if topic_id is None else topic_id, result.partition)
                if partition is not None:
                    partition.meters.failed_produces.count += 1


NO_TOPIC_ID = UUID(int=0)


def success_for(partition: Partition, version: int, topic: str | None, topic_id: UUID | None) -> ProduceSuccess:
    """The prepared answer for one partition and version."""
    success = partition.success_answers[version] = ProduceSuccess(version, topic, topic_id, partition.index)
    return success
