"""Produce, the general path: any number of partitions, each checked in the documented order, with an error for every
rejected batch.

Source: ProduceRequest 3 to 13, docs/produce-checks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from kraft.broker.api.produce.pending_produce import NO_TOPIC_ID, PartitionProduce, ProduceOperation, ProducePorts
from kraft.broker.api.produce.prepare_batch import Prepared, open_off_the_loop, prepare_at_once, turn_cost
from kraft.broker.api.produce.verification import (
    TransactionVerification,
    UnverifiedBatch,
    begin_verification,
    log_to_verify_in,
)
from kraft.broker.coordinator.internal_topics import TRANSACTION_TOPIC
from kraft.broker.partition.partition import EVERY_APPEND, INTERNAL_TOPICS, READY, Partition
from kraft.broker.partition.partition_host import PendingAppend
from kraft.broker.replica.validate import check_batch, needs_conversion, read_batch
from kraft.broker.serving.gates import Operation, QuotaKind, Resource, ResourceType, topic_resource
from kraft.broker.serving.throttling import mute
from kraft.seam import DiskError, InvariantError
from kraft.storage.append import AppendRefused
from kraft.storage.handles import ColdRead
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import ProduceRequest, ProduceResult
from kraft.wire.records import ATTRIBUTE_CODEC_MASK, BatchHeader
from kraft.wire.records.validation import CODEC_MAX, BatchRefused, has_other_magic

if TYPE_CHECKING:
    from kraft.broker.serving.session import Session
    from kraft.wire.server import Request

log = structlog.get_logger("kraft.broker.produce")

ADMIN_CLIENT_ID = "__admin_client"
ACKS_ALL = -1
ACKS_NONE = 0
ACKS = (-1, 0, 1)
RECORD_LEVEL = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
OUT_OF_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})
_WRITE = Operation.WRITE


def count_refused(partition: Partition, error: ErrorCode | int, size_bytes: int) -> None:
    """Count a batch that was rejected because of its content or its size. Source: Kafka's BrokerTopicMetrics."""
    meters = partition.meters
    if error in TOO_LARGE:
        meters.bytes_rejected.count += size_bytes
    elif error == ErrorCode.CORRUPT_MESSAGE:
        meters.invalid_crc.count += 1
    elif error in OUT_OF_SEQUENCE:
        meters.invalid_sequence.count += 1


class GeneralProduce:
    """One Produce request on the general path.

    Batches that wait keep a reference to this object, but not to the request's frame. Only `run` and `take_over` use
    views into the frame."""

    def __init__(self, ports: ProducePorts, request: Request, session: Session, produce: ProduceRequest) -> None:
        self._ports = ports
        self._request = request
        self._session = session
        self._acks = produce.acks
        self._operation = ProduceOperation(ports, request, session, produce.acks)
        self._transactional_id = produce.transactional_id
        self._verification: TransactionVerification | None = None
        """The batches that wait for the transaction coordinator; None if the request has no such batch."""

    def run(self, produce: ProduceRequest) -> None:
        """Try to append to every partition, then answer or wait (`ProduceOperation.settle`)."""
        operation = self._operation
        transactional = [found for found in self._headers(produce) if found.is_transactional]
        whole = self._whole_request_error(produce.transactional_id, transactional)
        for name, topic_id, partitions in produce.topics:
            rows = operation.topic(name, topic_id)
            topic_name, error = self._topic(name, topic_id)
            for index, data in partitions:
                slot = operation.slot(rows, index)
                if whole is not None:
                    slot.refuse(whole)
                elif error is not None:
                    slot.refuse(error)
                else:
                    self._try(slot, topic_name, index, data)
        operation.throttle_ms = self._ports.gates.throttle(
            self._session, QuotaKind.PRODUCE_BYTES, len(self._request.body)
        )
        if operation.throttle_ms:
            mute(self._ports.loop, self._request, operation.throttle_ms)
        if self._verification is not None:
            self._verification.ask()
        operation.settle(produce.timeout_ms)

    def take_over(
        self, produce: ProduceRequest, partition: Partition, data: memoryview, header: BatchHeader, trouble: Exception
    ) -> None:
        """Continue with a plain batch that passed all checks but whose append failed: either wait until the files are
        open, or reject the batch."""
        name, topic_id, _ = produce.topics[0]
        slot = self._operation.slot(self._operation.topic(name, topic_id), partition.index)
        self._in_trouble(slot, partition, data, header, trouble)
        self._operation.settle(produce.timeout_ms)

    # the request and its topics

    def _headers(self, produce: ProduceRequest) -> Iterator[BatchHeader]:
        for _, _, partitions in produce.topics:
            for _, data in partitions:
                found = read_batch(data, self._request.api_version)
                if not isinstance(found, BatchRefused):
                    yield found[0]

    def _whole_request_error(self, transactional_id: str | None, transactional: list[BatchHeader]) -> ErrorCode | None:
        if not transactional:
            return None
        if transactional_id is None or not self._ports.gates.authorize(
            self._session, _WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if len({(header.producer_id, header.producer_epoch) for header in transactional}) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return None

    def _topic(self, name: str | None, topic_id: UUID | None) -> tuple[str, ErrorCode | None]:
        """Return the topic's name, and the error for all its partitions (None if they may be appended to)."""
        if name is None:
            name = self._ports.newest_image().topics.name_of(topic_id or NO_TOPIC_ID)
            if name is None:
                return "", ErrorCode.UNKNOWN_TOPIC_ID
        if not self._ports.gates.authorize(self._session, _WRITE, topic_resource(name)):
            return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._ports.newest_image().topics.get(name) is None:
            return name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return name, None

    # each partition: its batch, the partition itself, header, records, size, producer

    def _try(self, slot: PartitionProduce, topic: str, index: int, data: memoryview | None) -> None:
        image = self._ports.newest_image().topics.get(topic)
        if image is None or image.find(index) is None:
            slot.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        found = read_batch(data, self._request.api_version)
        if isinstance(found, BatchRefused):
            hosted = self._ports.find(topic, index)
            if hosted is not None and has_other_magic(data):
                hosted.meters.invalid_magic.count += 1
            elif hosted is not None:
                count_refused(hosted, found.error, 0)
            slot.refuse(found.error, found.message)
            return
        header, size = found
        assert data is not None
        self._place(slot, topic, index, data[:size], header)

    def _place(
        self,
        slot: PartitionProduce,
        topic: str,
        index: int,
        data: memoryview,
        header: BatchHeader,
        *,
        verified: bool = False,
    ) -> None:
        """Find the partition and continue in `_admit`. A transactional batch continues there only once it is
        `verified`."""
        if self._acks not in ACKS:
            slot.refuse(ErrorCode.INVALID_REQUIRED_ACKS)
            return
        is_closed = header.is_transactional and topic == TRANSACTION_TOPIC
        if is_closed or (topic in INTERNAL_TOPICS and self._session.client_id != ADMIN_CLIENT_ID):
            slot.refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: clients may not write to it")
            return
        partition = self._ports.locate(topic, index)
        if isinstance(partition, ErrorCode):
            slot.refuse(partition)
        elif not header.is_transactional or verified or self._needs_no_answer(slot, partition, data, header):
            self._admit(slot, partition, data, header)

    def _needs_no_answer(
        self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader
    ) -> bool:
        """Return whether a transactional batch may continue at once. If not, it was rejected, or it waits for a reply
        of the transaction coordinator and continues in `_resume`."""
        error = partition.append_error()
        if error != ErrorCode.NONE:
            slot.refuse(error)
            return False
        version = self._request.api_version
        try:
            log = log_to_verify_in(partition)
            if log is not None and not begin_verification(self._ports, version, slot, log, header):
                return True
        except AppendRefused as refused:
            count_refused(partition, refused.error_code, len(data))
            slot.refuse(refused.error_code, str(refused))
            return False
        if self._verification is None:
            self._verification = TransactionVerification(
                self._ports, self._request, self._transactional_id or "", self._resume
            )
        copy = memoryview(bytearray(data))
        self._verification.wait(UnverifiedBatch(slot, partition, copy, header, self._hold(len(copy))))
        return False

    def _resume(self, batch: UnverifiedBatch) -> None:
        """Check a verified batch again, like a batch that has just arrived, because its partition may have moved."""
        batch.release()
        if not batch.slot.is_done:
            partition = batch.partition
            self._place(batch.slot, partition.topic, partition.index, batch.data, batch.header, verified=True)

    def _admit(self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader) -> None:
        """Check the partition, the header and the records. Then append the batch: at once, or after the partition's
        waiting batches.

        A batch that waits continues in `_append`, when `Partition.run_pending` removes it from the partition's queue.
        That happens when the log's files are open (`Partition.readied`) or the budget of dirty bytes has room
        (`AppendBudget`). A batch whose records take long to check continues in `_open_and_append`."""
        partition.meters.produces.count += 1
        error = partition.append_error()
        if error != ErrorCode.NONE:
            slot.refuse(error)
            return
        leader = partition.leader
        readable = partition.readable
        log_start = -1 if readable is None else readable.log_start_offset
        if self._acks == ACKS_ALL and leader is not None and not leader.has_enough_replicas:
            slot.finish(
                ProduceResult(
                    slot.index,
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    log_start_offset=log_start,
                    error_message=f"{partition.topic}-{partition.index} needs {leader.effective_min_isr} replicas in "
                    f"sync, it has {sorted(leader.isr.committed)}",
                )
            )
            return
        rules = partition.rules
        if header.attributes & ATTRIBUTE_CODEC_MASK <= CODEC_MAX:
            self._request.connection.spend(turn_cost(header))
        prepared: BatchHeader | BatchRefused | None
        if needs_conversion(header, rules):
            prepared = check_batch(data, header, rules)
        else:
            prepared = prepare_at_once(data, header, rules, self._ports.loop.clock.wall_ms())
        if isinstance(prepared, BatchRefused):
            self._refuse(slot, partition, prepared, len(data))
        elif prepared is None:
            self._open_and_append(slot, partition, data, header)
        elif partition.append_state is READY and not partition.pending and not self._ports.loop.disk.dirty_budget_full:
            self._append(slot, partition, data, prepared)
        else:
            partition.append_later(self._parked(slot, partition, data, prepared))
            self._ports.budget_may_be_full(partition)

    def _append(self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader) -> None:
        """Append the batch, unless the producer's state makes it invalid, and continue with `_wait`."""
        try:
            info = partition.append_as_leader(
                data, header, self._ports.loop.clock.wall_ms(), verification=slot.verification
            )
        except AppendRefused as refused:
            log_start = -1 if partition.log is None else partition.log.log_start_offset
            count_refused(partition, refused.error_code, len(data))
            slot.finish(
                ProduceResult(slot.index, refused.error_code, log_start_offset=log_start, error_message=str(refused))
            )
            return
        except (ColdRead, DiskError) as trouble:
            self._in_trouble(slot, partition, data, header, trouble)
            return
        partition.meters.messages_in.count += header.record_count
        partition.meters.bytes_in.count += len(data)
        log = partition.log
        assert log is not None
        slot.appended(info, log.log_start_offset)
        self._wait(slot, partition, info.last_offset + 1)
        self._ports.unverified.confirm(slot.verification)  # the transaction is open now

    def _wait(self, slot: PartitionProduce, partition: Partition, required: int) -> None:
        """Acknowledge the batch if it is as durable as acks requires, else queue it with the partition.

        A queued batch continues in `PartitionProduce.acknowledged`, called by `Partition.settle` at the end of the pass
        in which the high watermark passes it, or by `Partition.synced`.
        """
        log, leader = partition.log, partition.leader
        assert log is not None
        assert leader is not None
        if self._acks == ACKS_ALL:
            if partition.high_watermark >= required:
                slot.acknowledged(partition, leader.acknowledgement_error())
            else:
                partition.waiting.append((required, slot))
        elif partition.flush_records == EVERY_APPEND and self._acks != ACKS_NONE and log.synced_end_offset < required:
            partition.waiting_for_disk.append((required, slot))
        else:
            slot.acknowledged(partition, ErrorCode.NONE)

    def _in_trouble(
        self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader, trouble: Exception
    ) -> None:
        """Reject the batch after a disk error. After ColdRead, instead put the batch at the front of the queue: it
        continues in `_append` once the log's files are open again (`Partition.reopen_files_for`)."""
        if isinstance(trouble, DiskError):
            self._ports.disk_failed(partition, trouble)
            slot.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            partition.reopen_files_for(self._parked(slot, partition, data, header))

    def _refuse(self, slot: PartitionProduce, partition: Partition, refusal: BatchRefused, size: int) -> None:
        readable = partition.readable if refusal.error in RECORD_LEVEL else None
        count_refused(partition, refusal.error, size)
        slot.finish(
            ProduceResult(
                slot.index,
                refusal.error,
                log_start_offset=-1 if readable is None else readable.log_start_offset,
                record_errors=refusal.record_errors,
                error_message=refusal.message,
            )
        )

    # batches that must wait

    def _parked(
        self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader
    ) -> PendingAppend:
        """Return a function that appends a copy of the batch; `Partition.run_pending` calls it from the partition's
        queue."""
        copy = memoryview(bytearray(data))
        release = self._hold(len(copy))

        def run(error: ErrorCode) -> None:
            release()
            if slot.is_done:
                return
            if error == ErrorCode.NONE:
                self._append(slot, partition, copy, header)
            else:
                slot.refuse(error)

        return PendingAppend(run)

    def _hold(self, count: int) -> Callable[[], None]:
        """Charge `count` bytes to the memory budget until the returned function is called. The budget cannot reject
        them. While it is overdrawn, the connection is not read."""
        connection, memory = self._request.connection, self._ports.gates.memory
        memory.take(count)
        is_overdrawn = memory.used_bytes > memory.total_bytes
        if is_overdrawn:
            connection.pause()

        def release() -> None:
            memory.give(count)
            if is_overdrawn:
                connection.resume()

        return release

    def _open_and_append(
        self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader
    ) -> None:
        """Check the records in a thread, because there are many or the codec changes. Later batches of the partition
        wait.

        After the thread the request continues in `open_batch`, and then in `run`, when `Partition.run_pending` removes
        the batch from the queue. The connection is not read until then, so that a client that sends many such batches
        does not fill the memory or delay the batches of other clients."""
        source = bytes(data)
        release = self._hold(len(source))
        connection, memory = self._request.connection, self._ports.gates.memory
        prepared: list[Prepared | BatchRefused] = []

        def run(error: ErrorCode) -> None:
            release()
            if slot.is_done:
                return
            if error != ErrorCode.NONE:
                slot.refuse(error)
            elif isinstance(prepared[0], BatchRefused):
                self._refuse(slot, partition, prepared[0], len(source))
            else:
                self._append(slot, partition, *prepared[0])

        append = PendingAppend(run, ready=False)

        async def open_batch() -> None:
            try:
                ports = self._ports
                found = await open_off_the_loop(ports.loop, ports.openings, memory, source, header, partition.rules)
            except InvariantError:
                raise
            except Exception as trouble:
                log.exception("produced batch cannot be opened", topic=partition.topic, partition=partition.index)
                found = BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the batch cannot be opened: {trouble!r}")
            finally:
                connection.resume()
            prepared.append(found)
            append.ready = True
            partition.run_pending()
            self._ports.loop.request_pass()

        partition.append_later(append)
        connection.pause()
        self._ports.loop.start_task(open_batch)
