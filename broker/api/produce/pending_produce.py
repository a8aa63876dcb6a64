"""A pending Produce request: the results of its partitions, the high watermarks for which it waits, and its single
response.

Invariants: each partition gets one result. The response is sent when all partitions have results. At the deadline it is
sent with REQUEST_TIMED_OUT for the remaining partitions, whose outcome is unknown to the client. With acks=0 there is
no response, and any error closes the connection. Source: ProduceRequest 3 to 13, Kafka's DelayedProduce.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

import trio

from kraft.broker.api.produce.waiting_batches import WaitingBatches
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
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.loop import Loop
    from kraft.broker.serving.session import Session
    from kraft.broker.txn.requests import AddRequest, VerifyRequest
    from kraft.image.image import MetadataImage
    from kraft.seam import DiskError
    from kraft.storage.append import AppendInfo
    from kraft.storage.producers.verification import Verification
    from kraft.wire.server import Request

HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors for which the response also names the current leader (v10 and newer)."""
OPENINGS_AT_ONCE_MAX = 1
"""Maximum number of produced batches that are decompressed in threads at the same time. The largest batch may use 150
MB for 30 ms."""


@dataclass(frozen=True, slots=True)
class ProducePorts:
    """The parts of a broker that Produce uses. `find` and `locate` are those of `ReplicaIndex`, `disk_failed` is that
    of `DiskFailures`, `budget_may_be_full` is `AppendBudget.may_be_full`. `finish(request, function, *arguments)` calls
    the function; an error in it fails this request alone. `enrol(request, answered)` asks the transaction coordinator
    about partitions (`PartitionEnrolment.ask`). `verifies_transactions` returns
    transaction.partition.verification.enable. If it is False, partitions are not verified; requests of version 12 or
    newer add them nevertheless."""

    loop: Loop
    gates: Gates
    find: Callable[[str | UUID | None, int], Partition | None]
    locate: Callable[[str, int], Partition | ErrorCode]
    newest_image: Callable[[], MetadataImage]
    disk_failed: Callable[[Partition, DiskError], None]
    budget_may_be_full: Callable[[Partition], None]
    finish: Callable[..., None]
    enrol: Callable[[AddRequest | VerifyRequest, Callable[[Mapping[tuple[str, int], ErrorCode]], None]], None]
    verifies_transactions: Callable[[], bool]
    openings: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(OPENINGS_AT_ONCE_MAX))
    """Limits the number of threads that decompress produced batches."""
    unverified: WaitingBatches = field(default_factory=WaitingBatches)
    """The batches that wait for a transaction coordinator."""


class SingleProduce(Parked):
    """A parked plain Produce request. Its single batch is appended and its response is built; it waits only for the
    acknowledgement."""

    delayed_operation = "Produce"
    __slots__ = ("partition_index", "ports", "request", "success", "topic", "topic_id")

    def __init__(
        self,
        ports: ProducePorts,
        request: Request,
        success: bytes,
        topic: str | None,
        topic_id: UUID | None,
        index: int,
    ) -> None:
        self.bucket = -1
        self.ports = ports
        self.request = request
        self.success = success
        self.topic = topic
        self.topic_id = topic_id
        self.partition_index = index

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """Send the response. NONE: the high watermark has passed the batch. An error: it never will on this broker."""
        if self.bucket < 0:
            return
        self.ports.loop.deadlines.remove(self)
        self.bucket = -1
        if error == ErrorCode.NONE:
            self.request.connection.meter.produced_partitions += 1
            self.request.respond(self.success)
        else:
            self._fail(error)

    def expire(self) -> None:
        self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, error: ErrorCode) -> None:
        self.ports.finish(self.request, self._refuse, error)

    def _refuse(self, error: ErrorCode) -> None:
        session: Session = self.request.connection.session  # type: ignore[assignment]
        rows = [(self.topic, self.topic_id, [ProduceResult(self.partition_index, error)])]
        answer_produce(self.ports, self.request, session, rows)


ProduceRows = list[tuple[str | None, UUID | None, list[ProduceResult]]]


class ProduceOperation(Parked):
    """A pending Produce request for any number of partitions, each with its own result."""

    delayed_operation = "Produce"
    __slots__ = ("acks", "ports", "remaining", "request", "rows", "session", "slots", "throttle_ms")

    def __init__(self, ports: ProducePorts, request: Request, session: Session, acks: int) -> None:
        self.bucket = -1
        self.ports = ports
        self.request = request
        self.session = session
        self.acks = acks
        self.throttle_ms = 0
        self.rows: ProduceRows = []
        self.slots: list[PartitionProduce] = []
        self.remaining = 0

    def topic(self, name: str | None, topic_id: UUID | None) -> list[ProduceResult]:
        """Add a topic, in the request's order. Return the list for the results of the topic's partitions."""
        rows: list[ProduceResult] = []
        self.rows.append((name, topic_id, rows))
        return rows

    def slot(self, rows: list[ProduceResult], index: int) -> PartitionProduce:
        """Add the next partition of the topic that was added last."""
        slot = PartitionProduce(self, rows, len(rows), index)
        rows.append(ProduceResult(index, ErrorCode.REQUEST_TIMED_OUT))
        self.slots.append(slot)
        self.remaining += 1
        return slot

    def settle(self, timeout_ms: int) -> None:
        """Answer if every partition has its result, otherwise wait. Called after every partition was tried.

        The request continues in `one_done` with the last result, or in `expire` at its deadline."""
        if self.remaining == 0:
            self._answer()
        elif timeout_ms <= 0:
            self.expire()
        else:
            loop = self.ports.loop
            loop.deadlines.add(self, loop.clock.monotonic_ms() + timeout_ms)

    def one_done(self) -> None:
        """Count a result; after the last result, answer."""
        self.remaining -= 1
        if self.remaining == 0 and self.bucket >= 0:
            self.ports.loop.deadlines.remove(self)
            self.bucket = -1
            self.ports.finish(self.request, self._answer)

    def expire(self) -> None:
        self.bucket = -1
        for slot in self.slots:
            slot.is_done = True
        self.ports.finish(self.request, self._answer)

    def _answer(self) -> None:
        if self.acks != 0:
            answer_produce(self.ports, self.request, self.session, self.rows, self.throttle_ms)
            return
        failed = [row for _, _, rows in self.rows for row in rows if row.error_code]
        if failed:
            self.request.fail(f"a produce with acks=0 failed: {ErrorCode(failed[0].error_code).name}")
        else:
            self.request.connection.meter.produced_partitions += len(self.slots)
            self.request.respond_nothing()


class PartitionProduce:
    """One partition of a ProduceOperation. Its row in the response is REQUEST_TIMED_OUT until the result is known,
    because a batch that is appended but not acknowledged at the deadline is not a success."""

    __slots__ = ("index", "is_done", "operation", "place", "rows", "success", "verification")

    def __init__(self, operation: ProduceOperation, rows: list[ProduceResult], place: int, index: int) -> None:
        self.operation = operation
        self.rows = rows
        self.place = place
        self.index = index
        self.is_done = False
        self.success: ProduceResult | None = None
        self.verification: Verification | None = None
        """The log's permission to open the batch's transaction; None if the batch is not transactional or its
        transaction is open."""

    def finish(self, result: ProduceResult) -> None:
        """Set the partition's result. Later results have no effect."""
        if not self.is_done:
            self.is_done = True
            self.rows[self.place] = result
            self.operation.one_done()

    def refuse(self, error: ErrorCode, message: str | None = None) -> None:
        """Finish with this error; nothing was appended."""
        self.finish(ProduceResult(self.index, error, error_message=message))

    def appended(self, info: AppendInfo, log_start_offset: int) -> None:
        """Record the offsets of the appended batch for the response."""
        self.success = ProduceResult(
            self.index, ErrorCode.NONE, info.base_offset, info.log_append_time_ms, log_start_offset
        )

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """Set the partition's result. NONE: the append is as durable as acks requires. An error: its outcome is
        unknown."""
        if error == ErrorCode.NONE and self.success is not None:
            self.finish(self.success)
        else:
            self.finish(ProduceResult(self.index, error))


def answer_produce(
    ports: ProducePorts, request: Request, session: Session, rows: ProduceRows, throttle_ms: int = 0
) -> None:
    """Send the response. From version 10 on, it names the leaders of misdirected partitions."""
    version = request.api_version
    _count_errors(ports, request, rows)
    endpoints = []
    if version >= FIRST_VERSION_WITH_LEADER:
        image = ports.newest_image()
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


def _count_errors(ports: ProducePorts, request: Request, rows: ProduceRows) -> None:
    """Count the errors of a response. The metrics of a topic include only replicas hosted here, so that a client cannot
    create metrics by naming topics that do not exist."""
    meter = request.connection.meter
    for name, topic_id, results in rows:
        for result in results:
            meter.errors[PRODUCE, int(result.error_code)] += 1
            if result.error_code:
                partition = ports.find(name if topic_id is None else topic_id, result.partition)
                if partition is not None:
                    partition.meters.failed_produces.count += 1


NO_TOPIC_ID = UUID(int=0)


def success_for(partition: Partition, version: int, topic: str | None, topic_id: UUID | None) -> ProduceSuccess:
    """Return the successful response for one partition and version. Prepared responses are cached."""
    success = partition.success_answers[version] = ProduceSuccess(version, topic, topic_id, partition.index)
    return success
