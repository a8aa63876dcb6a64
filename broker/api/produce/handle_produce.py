"""Produce: check, append, answer.

A plain batch for one partition that can take it at once goes the short way. Everything else, and every refusal, goes
the long way, which makes the same checks in their documented order.
Source: ProduceRequest 3 to 13, docs/produce-checks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from kraft.broker.api.produce.pending_produce import (
    NO_TOPIC_ID,
    PartitionProduce,
    ProduceOperation,
    SingleProduce,
    success_for,
)
from kraft.broker.api.produce.prepare_batch import (
    TURN_BYTES,
    Prepared,
    open_off_the_loop,
    prepare_at_once,
    takes_long,
    turn_cost,
)
from kraft.broker.partition.partition import EVERY_APPEND, INTERNAL_TOPICS, READY, Partition
from kraft.broker.partition.partition_host import PendingAppend
from kraft.broker.replica.validate import check_batch, needs_conversion, read_batch
from kraft.broker.serving.gates import Operation, QuotaKind, Resource, ResourceType, topic_resource
from kraft.broker.serving.throttling import mute
from kraft.seam import DiskError, InvariantError
from kraft.storage.append import AppendRefused
from kraft.storage.handles import ColdRead
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import ProduceRequest, ProduceResult, decode_produce_request, encode_produce_response
from kraft.wire.records import (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BatchHeader,
)
from kraft.wire.records.validation import CODEC_MAX, BatchRefused, has_other_magic

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker
    from kraft.broker.serving.session import Session
    from kraft.storage.append import AppendInfo
    from kraft.wire.server import Request

log = structlog.get_logger("kraft.broker.produce")

ADMIN_CLIENT_ID = "__admin_client"
ACKS_ALL = -1
ACKS_NONE = 0
ACKS = (-1, 0, 1)
FIRST_WITH_ABORTABLE = 11
SPECIAL_ATTRIBUTES = ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_LOG_APPEND_TIME
RECORD_LEVEL = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
OUT_OF_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})
_WRITE = Operation.WRITE
PLAIN_TURN_BYTES = TURN_BYTES[0]


def handle_produce(broker: Broker, request: Request, session: Session) -> None:
    """Append what the request holds, and answer as its acks ask."""
    produce = decode_produce_request(request.api_version, request.body)
    topics = produce.topics
    if len(topics) != 1 or len(topics[0][2]) != 1 or not _append_plain(broker, request, session, produce):
        _Produce(broker, request, session, produce).run(produce)


def _append_plain(broker: Broker, request: Request, session: Session, produce: ProduceRequest) -> bool:
    """The short way. False if the request is not plain; then nothing has happened."""
    name, topic_id, partitions = produce.topics[0]
    index, data = partitions[0]
    replicas = broker.replicas
    version = request.api_version
    partition = replicas.find(name if topic_id is None else topic_id, index)
    if (
        partition is None
        or partition.append_state is not READY
        or partition.pending
        or partition.topic in INTERNAL_TOPICS
    ):
        return False
    leader = partition.leader
    gates = broker.gates
    acks = produce.acks
    if (
        leader is None
        or data is None
        or acks not in ACKS
        or (acks == ACKS_ALL and not leader.has_enough_replicas)
        or replicas.disk.dirty_budget_full
        or not gates.authorizer.authorize(session, _WRITE, partition.resource)
    ):
        return False
    found = read_batch(data, version)
    if isinstance(found, BatchRefused):
        return False
    header, size = found
    attributes = header.attributes
    rules = partition.rules
    codec = attributes & ATTRIBUTE_CODEC_MASK
    if attributes & SPECIAL_ATTRIBUTES or (rules.codec is not None and codec != rules.codec):
        return False
    if 0 < codec <= CODEC_MAX and takes_long(header):
        return False
    if size != len(data):
        data = data[:size]
    if 0 < codec <= CODEC_MAX or size > PLAIN_TURN_BYTES:
        request.connection.spend(turn_cost(header))
    now_ms = replicas.clock.wall_ms()
    prepared = prepare_at_once(data, header, rules, now_ms)
    if prepared is None or isinstance(prepared, BatchRefused):
        return False
    header = prepared
    try:
        info = partition.append_as_leader(data, header, now_ms)
    except AppendRefused:
        return False
    except (ColdRead, DiskError) as trouble:
        _Produce(broker, request, session, produce).take_over(produce, partition, data, header, trouble)
        return True
    _answer_plain(broker, request, session, produce, partition, header, info)
    return True


def _answer_plain(
    broker: Broker,
    request: Request,
    session: Session,
    produce: ProduceRequest,
    partition: Partition,
    header: BatchHeader,
    info: AppendInfo,
) -> None:
    """A plain batch stands in the log: count it, and answer or park."""
    meters = partition.meters
    meters.messages_in.count += header.record_count
    meters.bytes_in.count += header.batch_length
    meters.produces.count += 1
    throttle_ms = broker.gates.quotas.record(session, QuotaKind.PRODUCE_BYTES, len(request.body))
    acks = produce.acks
    if acks == ACKS_NONE:
        request.connection.meter.produced_partitions += 1
        request.respond_nothing()
        if throttle_ms:
            mute(broker.replicas.loop, request, throttle_ms)
        return
    name, topic_id, _ = produce.topics[0]
    log = partition.log
    assert log is not None
    success = partition.success_answers.get(request.api_version) or success_for(
        partition, request.api_version, name, topic_id
    )
    body = success.body(info.base_offset, info.log_append_time_ms, log.log_start_offset)
    if throttle_ms:
        row = ProduceResult(partition.index, 0, info.base_offset, info.log_append_time_ms, log.log_start_offset)
        body = encode_produce_response(request.api_version, [(name, topic_id, [row])], throttle_ms)
        mute(broker.replicas.loop, request, throttle_ms)
    required = info.last_offset + 1
    if acks == ACKS_ALL:
        is_done = partition.high_watermark >= required
        queue = partition.waiting
    else:
        is_done = partition.flush_records != EVERY_APPEND or log.synced_end_offset >= required
        queue = partition.waiting_for_disk
    if is_done:
        request.connection.meter.produced_partitions += 1
        request.respond(body)
        return
    replicas = broker.replicas
    waiting = SingleProduce(broker, request, body, name, topic_id, partition.index)
    queue.append((required, waiting))
    replicas.deadlines.add(waiting, replicas.clock.monotonic_ms() + max(produce.timeout_ms, 0))


def count_refused(partition: Partition, error: ErrorCode | int, size_bytes: int) -> None:
    """A batch was refused for what it is. Source: Kafka's BrokerTopicMetrics."""
    meters = partition.meters
    if error in TOO_LARGE:
        meters.bytes_rejected.count += size_bytes
    elif error == ErrorCode.CORRUPT_MESSAGE:
        meters.invalid_crc.count += 1
    elif error in OUT_OF_SEQUENCE:
        meters.invalid_sequence.count += 1


class _Produce:
    """The long way: the checks of every partition in their documented order.

    Batches that wait keep a reference to this, but not to the frame: the request's views into the frame go no further
    than `run` and `take_over`.
    """

    def __init__(self, broker: Broker, request: Request, session: Session, produce: ProduceRequest) -> None:
        self._broker = broker
        self._request = request
        self._session = session
        self._acks = produce.acks
        self._operation = ProduceOperation(broker, request, session, produce.acks)

    def run(self, produce: ProduceRequest) -> None:
        """Try every partition, then answer or wait."""
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
        operation.throttle_ms = self._broker.gates.throttle(
            self._session, QuotaKind.PRODUCE_BYTES, len(self._request.body)
        )
        if operation.throttle_ms:
            mute(self._broker.replicas.loop, self._request, operation.throttle_ms)
        operation.settle(produce.timeout_ms)

    def take_over(
        self, produce: ProduceRequest, partition: Partition, data: memoryview, header: BatchHeader, trouble: Exception
    ) -> None:
        """A plain batch whose append failed after all checks: wait for the files, or refuse."""
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
        if transactional_id is None or not self._broker.gates.authorize(
            self._session, _WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if len({(header.producer_id, header.producer_epoch) for header in transactional}) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return None

    def _topic(self, name: str | None, topic_id: UUID | None) -> tuple[str, ErrorCode | None]:
        """The topic's name, or why none of its partitions is appended to."""
        if name is None:
            name = self._broker.image.topics.name_of(topic_id or NO_TOPIC_ID)
            if name is None:
                return "", ErrorCode.UNKNOWN_TOPIC_ID
        if not self._broker.gates.authorize(self._session, _WRITE, topic_resource(name)):
            return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._broker.image.topics.get(name) is None:
            return name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return name, None

    # each partition: its batch, the partition itself, header, records, size, producer

    def _try(self, slot: PartitionProduce, topic: str, index: int, data: memoryview | None) -> None:
        image = self._broker.image.topics.get(topic)
        if image is None or image.find(index) is None:
            slot.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        found = read_batch(data, self._request.api_version)
        if isinstance(found, BatchRefused):
            hosted = self._broker.replicas.find(topic, index)
            if hosted is not None and has_other_magic(data):
                hosted.meters.invalid_magic.count += 1
            elif hosted is not None:
                count_refused(hosted, found.error, 0)
            slot.refuse(found.error, found.message)
            return
        header, size = found
        assert data is not None
        if header.is_transactional:
            abortable = self._request.api_version >= FIRST_WITH_ABORTABLE
            slot.refuse(
                ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_TXN_STATE,
                "this cluster has no transaction coordinator that could have begun the transaction",
            )
            return
        if self._acks not in ACKS:
            slot.refuse(ErrorCode.INVALID_REQUIRED_ACKS)
            return
        if topic in INTERNAL_TOPICS and self._session.client_id != ADMIN_CLIENT_ID:
            slot.refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: clients may not write to it")
            return
        partition = self._broker.replicas.locate(topic, index)
        if isinstance(partition, ErrorCode):
            slot.refuse(partition)
            return
        self._admit(slot, partition, data[:size], header)

    def _admit(self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader) -> None:
        """Check the partition, the header and the records, then append, now or after the batches that already wait."""
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
            prepared = prepare_at_once(data, header, rules, self._broker.replicas.clock.wall_ms())
        if isinstance(prepared, BatchRefused):
            self._refuse(slot, partition, prepared, len(data))
        elif prepared is None:
            self._open_and_append(slot, partition, data, header)
        elif (
            partition.append_state is READY
            and not partition.pending
            and not self._broker.replicas.disk.dirty_budget_full
        ):
            self._append(slot, partition, data, prepared)
        else:
            partition.append_later(self._parked(slot, partition, data, prepared))
            self._broker.replicas.budget.may_be_full(partition)

    def _append(self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader) -> None:
        """Append the batch, unless the producer's state refuses it."""
        try:
            info = partition.append_as_leader(data, header, self._broker.replicas.clock.wall_ms())
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

    def _wait(self, slot: PartitionProduce, partition: Partition, required: int) -> None:
        """Done as far as acks asks, or in the line of those that wait."""
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
        if isinstance(trouble, DiskError):
            self._broker.replicas.failures.disk_failed(partition, trouble)
            slot.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            partition.cooled(self._parked(slot, partition, data, header))

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

    # what has to wait

    def _parked(
        self, slot: PartitionProduce, partition: Partition, data: memoryview, header: BatchHeader
    ) -> PendingAppend:
        """A copy of the batch, to be appended in its turn."""
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
        """Take so many bytes, which cannot be refused, from the memory budget until the returned function is called. If
        the budget is overdrawn, the connection is not read meanwhile."""
        connection, memory = self._request.connection, self._broker.gates.memory
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
        """The records take long to walk, or get another codec: off the loop; what comes after the batch waits. So does
        what comes on its connection, so that a peer that sends many of them neither fills the memory nor delays those
        of others."""
        source = bytes(data)
        release = self._hold(len(source))
        connection, memory = self._request.connection, self._broker.gates.memory
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
                replicas = self._broker.replicas
                found = await open_off_the_loop(
                    replicas.loop, replicas.openings, memory, source, header, partition.rules
                )
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
            self._broker.seam.network.request_pass()

        partition.append_later(append)
        connection.pause()
        self._broker.replicas.loop.start_task(open_batch)
