"""Produce, the fast path: decode, check, append, answer. The package docstring describes the path of a request.

A request that is not plain (`_append_plain`), and every batch that is rejected, goes through the general path
(`general_produce`), which makes the same checks in their documented order.
Source: ProduceRequest 3 to 13, docs/produce-checks.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.api.produce.general_produce import ACKS, ACKS_ALL, ACKS_NONE, GeneralProduce
from kraft.broker.api.produce.pending_produce import ProducePorts, SingleProduce, success_for
from kraft.broker.api.produce.prepare_batch import TURN_BYTES, prepare_at_once, takes_long, turn_cost
from kraft.broker.partition.partition import EVERY_APPEND, INTERNAL_TOPICS, READY, Partition
from kraft.broker.replica.validate import read_batch
from kraft.broker.serving.gates import Operation, QuotaKind, Resource, ResourceType
from kraft.broker.serving.throttling import mute
from kraft.seam import DiskError
from kraft.storage.append import AppendRefused
from kraft.storage.handles import ColdRead
from kraft.wire.messages.produce import ProduceRequest, ProduceResult, decode_produce_request, encode_produce_response
from kraft.wire.records import (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BatchHeader,
)
from kraft.wire.records.validation import CODEC_MAX, BatchRefused

if TYPE_CHECKING:
    from kraft.broker.serving.session import Session
    from kraft.storage.append import AppendInfo
    from kraft.wire.server import Request

_WRITE = Operation.WRITE
PLAIN_TURN_BYTES = TURN_BYTES[0]


class ProduceHandler:
    """The Produce handler of one broker."""

    __slots__ = ("_clock", "_disk", "_find", "_gates", "_ports")

    def __init__(self, ports: ProducePorts) -> None:
        self._ports = ports
        self._clock = ports.loop.clock
        self._disk = ports.loop.disk
        self._find = ports.find
        self._gates = ports.gates

    def handle(self, request: Request, session: Session) -> None:
        """Append the batches of the request. Answer as its acks require, during this call or later (`_answer_plain`,
        `GeneralProduce.run`)."""
        produce = decode_produce_request(request.api_version, request.body)
        topics = produce.topics
        if len(topics) != 1 or len(topics[0][2]) != 1 or not self._append_plain(request, session, produce):
            GeneralProduce(self._ports, request, session, produce).run(produce)

    def _append_plain(self, request: Request, session: Session, produce: ProduceRequest) -> bool:
        """Append the single batch of a plain request, and continue in `_answer_plain`. Return False without changing
        anything if the request is not plain; `GeneralProduce.run` then handles it."""
        name, topic_id, partitions = produce.topics[0]
        index, data = partitions[0]
        version = request.api_version
        partition = self._find(name if topic_id is None else topic_id, index)
        if (
            partition is None
            or partition.append_state is not READY
            or partition.pending
            or partition.topic in INTERNAL_TOPICS
        ):
            return False
        leader = partition.leader
        acks = produce.acks
        if (
            leader is None
            or data is None
            or acks not in ACKS
            or (acks == ACKS_ALL and not leader.has_enough_replicas)
            or self._disk.dirty_budget_full
            or not self._gates.authorizer.authorize(session, _WRITE, partition.resource)
        ):
            return False
        found = read_batch(data, version)
        if isinstance(found, BatchRefused):
            return False
        header, size = found
        attributes = header.attributes
        rules = partition.rules
        codec = attributes & ATTRIBUTE_CODEC_MASK
        if attributes & ATTRIBUTE_TRANSACTIONAL and not self._may_write_in(session, produce.transactional_id):
            return False
        if attributes & ATTRIBUTE_LOG_APPEND_TIME or (rules.codec is not None and codec != rules.codec):
            return False
        if 0 < codec <= CODEC_MAX and takes_long(header):
            return False
        if size != len(data):
            data = data[:size]
        if 0 < codec <= CODEC_MAX or size > PLAIN_TURN_BYTES:
            request.connection.spend(turn_cost(header))
        now_ms = self._clock.wall_ms()
        prepared = prepare_at_once(data, header, rules, now_ms)
        if prepared is None or isinstance(prepared, BatchRefused):
            return False
        header = prepared
        try:
            info = partition.append_as_leader(data, header, now_ms)
        except AppendRefused:
            return False
        except (ColdRead, DiskError) as trouble:
            GeneralProduce(self._ports, request, session, produce).take_over(produce, partition, data, header, trouble)
            return True
        self._answer_plain(request, session, produce, partition, header, info)
        return True

    def _may_write_in(self, session: Session, transactional_id: str | None) -> bool:
        """Return whether the client may append to this transaction. The log rejects the batch that opens a transaction
        here, because it is not verified; that batch continues on the general path."""
        return transactional_id is not None and self._gates.authorizer.authorize(
            session, _WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
        )

    def _answer_plain(
        self,
        request: Request,
        session: Session,
        produce: ProduceRequest,
        partition: Partition,
        header: BatchHeader,
        info: AppendInfo,
    ) -> None:
        """Count an appended plain batch. Answer, or park the response until the batch is acknowledged.

        A parked response continues in `SingleProduce.acknowledged`. `Partition.settle` calls it at the end of the pass
        in which the high watermark passes the batch. If the topic flushes each append, `Partition.synced` calls it
        instead. At the deadline of the request, the response continues in `SingleProduce.expire`."""
        meters = partition.meters
        meters.messages_in.count += header.record_count
        meters.bytes_in.count += header.batch_length
        meters.produces.count += 1
        throttle_ms = self._gates.quotas.record(session, QuotaKind.PRODUCE_BYTES, len(request.body))
        acks = produce.acks
        if acks == ACKS_NONE:
            request.connection.meter.produced_partitions += 1
            request.respond_nothing()
            if throttle_ms:
                mute(self._ports.loop, request, throttle_ms)
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
            mute(self._ports.loop, request, throttle_ms)
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
        waiting = SingleProduce(self._ports, request, body, name, topic_id, partition.index)
        queue.append((required, waiting))
        self._ports.loop.deadlines.add(waiting, self._clock.monotonic_ms() + max(produce.timeout_ms, 0))
