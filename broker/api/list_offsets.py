"""ListOffsets: return the first and last offset of a partition, or the offset for a timestamp.

Checks per partition, in this order: named twice, DESCRIBE permission, exists, hosted, leader epoch, leadership, then
the offset. A consumer never gets an end offset below one that it may have seen: until this leader's high watermark has
reached the start of its epoch, the response is OFFSET_NOT_AVAILABLE (KIP-207). Lookups by timestamp run in a thread. If
a lookup finds damage and the replica therefore goes offline, the error is NOT_LEADER_OR_FOLLOWER; otherwise it is
CORRUPT_MESSAGE.
Source: ListOffsetsRequest 1 to 11, KIP-207.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft.broker.api.fetch.metadata_topic import MetadataTopic
from kraft.broker.logs.damaged_logs import was_not_truncated
from kraft.broker.partition.log_waits import wait_open
from kraft.broker.partition.partition import Partition
from kraft.broker.partition.partition_checks import leader_epoch_error
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, kind, part, read, respond
from kraft.broker.serving.turns import Steps
from kraft.control.topics.names import METADATA_TOPIC
from kraft.node.stepping import run_steps
from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.handles import SegmentGone
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext
    from kraft.broker.serving.session import Session
    from kraft.storage.log import Log
    from kraft.storage.reading import TimestampedOffset
    from kraft.wire.server import Request

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
OF_TIERED_LOGS = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
"""Special timestamps for the remote part of a tiered log; no log of this broker is tiered."""

FIRST_VERSION_OF = MappingProxyType(
    {
        LATEST: 1,
        EARLIEST: 1,
        MAX_TIMESTAMP: 7,
        EARLIEST_LOCAL: 8,
        LATEST_TIERED: 9,
        EARLIEST_PENDING_UPLOAD: 11,
    }
)
FIRST_WITH_NOT_AVAILABLE = 5
DEBUG_REPLICA = -2
READ_COMMITTED = 1
NOT_FOUND = -1
STEP_PARTITIONS = 256
"""Number of partitions that are checked in one step."""


class OffsetAnswer(NamedTuple):
    """The ListOffsets result for one partition."""

    error: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: int = NOT_FOUND
    leader_epoch: int = -1


Deferred = tuple[Partition | MetadataTopic, int, int]
"""A lookup that must wait: (partition or metadata topic, timestamp, leader epoch)."""


class Asker(NamedTuple):
    """The fields of the request that apply to every partition."""

    version: int
    replica_id: int
    read_committed: bool

    @property
    def is_consumer(self) -> bool:
        return self.replica_id < 0


def handle_list_offsets(context: HandlerContext, request: Request, session: Session) -> Steps:
    """Answer at once if no lookup must wait, otherwise from a task."""
    message = read(request)
    return _Listing(context, request, session, message).answer_in_steps(message.topics)


class _Listing:
    """A pending ListOffsets request. `rows` has a result or a `Deferred` for each partition, in the request's order."""

    def __init__(self, context: HandlerContext, request: Request, session: Session, message: Any) -> None:
        self._context = context
        self._request = request
        self._asker = Asker(request.api_version, message.replica_id, message.isolation_level == READ_COMMITTED)
        self._session = session
        self._topics: list[tuple[str, list[tuple[int, OffsetAnswer | Deferred]]]] = []

    def answer_in_steps(self, topics: Sequence[Any]) -> Steps:
        """Check all partitions in order. Then answer, or start a task (`run`) for the lookups that must wait."""
        seen = Counter((topic.name, row.partition_index) for topic in topics for row in topic.partitions)
        looked_at = 0
        for topic in topics:
            name = topic.name
            allowed = self._context.gates.authorize_topic(self._session, Operation.DESCRIBE, name)
            rows: list[tuple[int, OffsetAnswer | Deferred]] = []
            for row in topic.partitions:
                looked_at += 1
                if not looked_at % STEP_PARTITIONS:
                    yield
                index = row.partition_index
                if seen[name, index] > 1:
                    rows.append((index, OffsetAnswer(ErrorCode.INVALID_REQUEST)))
                elif not allowed:
                    rows.append((index, OffsetAnswer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
                else:
                    rows.append((index, self._begin(name, index, row.timestamp, row.current_leader_epoch)))
            self._topics.append((name, rows))
        if any(not isinstance(found, OffsetAnswer) for _, rows in self._topics for _, found in rows):
            self._context.answer_later(self._request, self.run)
        else:
            self.answer()

    def _begin(self, topic: str, index: int, timestamp: int, epoch: int) -> OffsetAnswer | Deferred:
        first_version = 1 if timestamp >= 0 else FIRST_VERSION_OF.get(timestamp)
        if topic == METADATA_TOPIC and index == 0 and self._context.metadata_topic.may_read(self._session):
            return self._begin_metadata(timestamp)
        found = self._context.locate(topic, index)
        if isinstance(found, ErrorCode):
            return OffsetAnswer(found)
        if first_version is None or self._asker.version < first_version:
            return OffsetAnswer(ErrorCode.UNSUPPORTED_VERSION)
        if timestamp >= 0 or timestamp == MAX_TIMESTAMP or found.readable is None:
            return found, timestamp, epoch
        return list_offset(found, self._asker, timestamp, epoch)

    def _begin_metadata(self, timestamp: int) -> OffsetAnswer | Deferred:
        """Return the offset in the cluster's metadata log; only committed records are visible."""
        metadata = self._context.metadata_topic
        if timestamp >= 0:
            return metadata, timestamp, -1
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return OffsetAnswer(offset=metadata.log_start_offset)
        if timestamp == LATEST:
            return OffsetAnswer(offset=metadata.high_watermark)
        return OffsetAnswer(ErrorCode.NONE if timestamp in OF_TIERED_LOGS else ErrorCode.UNSUPPORTED_VERSION)

    async def run(self) -> None:
        """Make the deferred lookups, one after the other, then answer."""
        for _, rows in self._topics:
            for number, (index, found) in enumerate(rows):
                if not isinstance(found, OffsetAnswer):
                    rows[number] = (index, await self._look_up(*found))
        self.answer()

    async def _look_up(self, partition: Partition | MetadataTopic, timestamp: int, epoch: int) -> OffsetAnswer:
        if isinstance(partition, MetadataTopic):
            hit = await partition.offset_at(timestamp)
            return OffsetAnswer() if hit is None else OffsetAnswer(ErrorCode.NONE, hit.timestamp, hit.offset, -1)
        await wait_open(partition)
        error = check(partition, self._asker, epoch)
        if error != ErrorCode.NONE:
            return OffsetAnswer(error)
        if timestamp < 0 and timestamp != MAX_TIMESTAMP:
            return list_offset(partition, self._asker, timestamp, epoch)
        log = partition.log
        assert log is not None
        hit, error = await self._find(partition, log, timestamp)
        # the replica was moved to another directory meanwhile
        if partition.log is not None and partition.log is not log:
            return await self._look_up(partition, timestamp, epoch)
        error = error or check(partition, self._asker, epoch)
        if error != ErrorCode.NONE:
            return OffsetAnswer(error)
        end = end_offset(partition, self._asker)
        if hit is not None and hit.offset < end:
            return OffsetAnswer(ErrorCode.NONE, hit.timestamp, hit.offset, hit.leader_epoch)
        return OffsetAnswer(not_available(partition, self._asker))

    async def _find(self, partition: Partition, log: Log, timestamp: int) -> tuple[TimestampedOffset | None, ErrorCode]:
        """Return the result of a lookup by timestamp in this log, or an error if the log cannot be read any more."""
        context, truncations = self._context, log.truncations
        is_latest = timestamp == MAX_TIMESTAMP
        try:
            steps = log.max_timestamp_offset() if is_latest else log.offset_for_timestamp(timestamp)
            async with context.gates.opening():
                return await run_steps(context.loop.disk, steps), ErrorCode.NONE
        except UnreadableBatch as problem:
            if was_not_truncated(partition, log, truncations):
                context.damaged_logs.unreadable_batch_found(partition, problem)
                return None, ErrorCode.CORRUPT_MESSAGE
        except SegmentGone:
            pass
        except StorageCorrupt as damage:
            if was_not_truncated(partition, log, truncations) and not context.damaged_logs.damage_found(
                partition, damage
            ):
                return None, ErrorCode.CORRUPT_MESSAGE
        except DiskError as trouble:
            context.failures.disk_failed(partition, trouble)
        return None, ErrorCode.NOT_LEADER_OR_FOLLOWER

    def answer(self) -> None:
        row = kind(ApiKey.LIST_OFFSETS, "ListOffsetsPartitionResponse")
        topic = part(ApiKey.LIST_OFFSETS, "ListOffsetsTopicResponse")
        answer(
            self._request,
            respond(
                ApiKey.LIST_OFFSETS,
                topics=tuple(
                    topic(
                        name=name,
                        partitions=tuple(
                            row(
                                partition_index=index,
                                error_code=found.error,
                                timestamp=found.timestamp,
                                offset=found.offset,
                                leader_epoch=found.leader_epoch,
                            )
                            for index, found in rows
                            if isinstance(found, OffsetAnswer)
                        ),
                    )
                    for name, rows in self._topics
                ),
            ),
        )


def check(partition: Partition, asker: Asker, epoch: int) -> ErrorCode:
    """Return the error of a partition whose log cannot be read, whose leader epoch differs from the request's, or which
    this broker does not lead (debug replicas may read from a follower). NONE: the lookup may continue."""
    if partition.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    error = leader_epoch_error(partition, epoch)
    if error != ErrorCode.NONE:
        return error
    if partition.readable is None or partition.is_truncating:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if partition.leader is None and asker.replica_id != DEBUG_REPLICA:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def list_offset(partition: Partition, asker: Asker, timestamp: int, epoch: int) -> OffsetAnswer:
    """Return the offset for a special timestamp (except MAX_TIMESTAMP), from a log that is open or was never
    written."""
    error = check(partition, asker, epoch)
    if error != ErrorCode.NONE:
        return OffsetAnswer(error)
    log = partition.readable
    assert log is not None
    if timestamp == LATEST:
        error = not_available(partition, asker)
        if error != ErrorCode.NONE:
            return OffsetAnswer(error)
        return OffsetAnswer(offset=end_offset(partition, asker), leader_epoch=partition.leader_epoch)
    if timestamp in OF_TIERED_LOGS:
        return OffsetAnswer()
    start = log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset
    return OffsetAnswer(offset=start, leader_epoch=log.epochs.epoch_for(start))


def end_offset(partition: Partition, asker: Asker) -> int:
    """Return the end offset that this client or replica may see."""
    log = partition.readable
    assert log is not None
    if not asker.is_consumer:
        return log.log_end_offset
    return log.last_stable_offset if asker.read_committed else partition.high_watermark


def not_available(partition: Partition, asker: Asker) -> ErrorCode:
    """Return the error that a consumer gets until the new leader's high watermark has reached the start of its epoch.
    Before that, the leader may not know all offsets that its predecessor had committed."""
    leader = partition.leader
    if leader is None or not asker.is_consumer or partition.high_watermark >= leader.epoch_start_offset:
        return ErrorCode.NONE
    if asker.version >= FIRST_WITH_NOT_AVAILABLE:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE
