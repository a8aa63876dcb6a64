"""MarkerWriter: append transaction markers to partitions that this broker leads.

A marker is reported as written when the high watermark has passed it, as with acks=all. Markers for partitions of
`__consumer_offsets` are written by the group coordinator, because a marker commits or drops the staged offsets.
Source: KIP-98, KIP-890, KIP-1228, WriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kraft.broker.group.requests import MarkerRequest
from kraft.broker.partition.partition_host import PendingAppend
from kraft.broker.serving.purgatory import Parked
from kraft.seam import DiskError
from kraft.storage.append import AppendOrigin, AppendRefused
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import read_header
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control

if TYPE_CHECKING:
    from kraft.broker.coordinator.group_coordinators import GroupCoordinators
    from kraft.broker.coordinator.shard_driver import CoordinatorPorts
    from kraft.broker.partition.partition import Partition

OnWritten = Callable[[ErrorCode], None]


class MarkerToWrite(NamedTuple):
    """A marker to append, which ends a producer's transaction. `transaction_version` is the transaction's version; 0 if
    it is not known."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0

    def encoded(self, timestamp_ms: int) -> bytearray:
        """Return the marker as a control batch."""
        kind = ControlRecordType.COMMIT if self.is_commit else ControlRecordType.ABORT
        return encode_control(
            ControlRecord(type=kind, coordinator_epoch=self.coordinator_epoch),
            timestamp_ms=timestamp_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )


class MarkerWriter:
    """Appends markers on one broker. No method is a coroutine."""

    def __init__(
        self,
        ports: CoordinatorPorts,
        groups: GroupCoordinators,
        locate: Callable[[str, int], Partition | ErrorCode],
        timeout_ms: int,
    ) -> None:
        """`locate` is `ReplicaIndex.locate`. An append that is not committed after `timeout_ms` is reported as
        REQUEST_TIMED_OUT."""
        self._ports = ports
        self._groups = groups
        self._locate = locate
        self._timeout_ms = timeout_ms

    def write(self, topic: str, index: int, marker: MarkerToWrite, done: OnWritten) -> None:
        """Append the marker and report its outcome once, now or later. INVALID_TOPIC_EXCEPTION for
        `__transaction_state`, which no transaction writes to."""
        if topic == TRANSACTION_TOPIC:
            done(ErrorCode.INVALID_TOPIC_EXCEPTION)
            return
        partition = self._locate(topic, index)
        error = partition if isinstance(partition, ErrorCode) else partition.append_error()
        if isinstance(partition, ErrorCode) or error is not ErrorCode.NONE:
            done(error)
        elif topic == OFFSETS_TOPIC:
            self._groups.write_marker(index, MarkerRequest(*marker), lambda reply: done(reply.error))
        else:
            self._write(partition, marker, done)

    def _write(self, partition: Partition, marker: MarkerToWrite, done: OnWritten) -> None:
        is_ready = partition.appendable and not partition.pending and not self._ports.loop.disk.dirty_budget_full
        if is_ready and partition.log is not None and partition.log.warm_for_append() is None:
            self._append(partition, marker, done)
        else:
            self._append_later(partition, marker, done)

    def _append_later(self, partition: Partition, marker: MarkerToWrite, done: OnWritten) -> None:
        def resume(error: ErrorCode) -> None:
            opened = partition.log
            if error is not ErrorCode.NONE or opened is None:
                done(error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif opened.warm_for_append() is not None:
                partition.reopen_files_for(pending)
            else:
                self._append(partition, marker, done)

        pending = PendingAppend(resume)
        partition.append_later(pending)
        self._ports.budget_may_be_full(partition)

    def _append(self, partition: Partition, marker: MarkerToWrite, done: OnWritten) -> None:
        leader, opened = partition.leader, partition.log
        if leader is None or opened is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not leader.has_enough_replicas:
            done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        now_ms = self._ports.loop.clock.wall_ms()
        batch = marker.encoded(now_ms)
        try:
            opened.producers.check_marker(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version
            )
            info = partition.append_as_leader(memoryview(batch), read_header(batch), now_ms, AppendOrigin.COORDINATOR)
        except AppendRefused as refused:
            done(refused.error_code)
            return
        except DiskError as error:
            self._ports.disk_failed(partition, error)
            done(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        self._wait(partition, info.last_offset + 1, done)

    def _wait(self, partition: Partition, required: int, done: OnWritten) -> None:
        leader = partition.leader
        if partition.high_watermark >= required and leader is not None:
            done(leader.acknowledgement_error())
            return
        waiting = WaitingMarker(self._ports, done)
        partition.waiting.append((required, waiting))
        self._ports.loop.deadlines.add(waiting, self._ports.loop.clock.monotonic_ms() + self._timeout_ms)


class WaitingMarker(Parked):
    """An appended marker that waits for the high watermark."""

    delayed_operation = "Produce"
    __slots__ = ("_done", "_ports")

    def __init__(self, ports: CoordinatorPorts, done: OnWritten) -> None:
        self.bucket = -1
        self._ports = ports
        self._done: OnWritten | None = done

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """Report the result. NONE: the high watermark has passed the marker. An error: it never will on this broker."""
        self._ports.loop.deadlines.remove(self)
        self._report(error)

    def expire(self) -> None:
        self._report(ErrorCode.REQUEST_TIMED_OUT)

    def _report(self, error: ErrorCode) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(error)
