"""DeleteRecords: raise the log start offset of partitions, and answer when every live replica has raised its offset
too.

Invariants: the log start offset never passes the high watermark. When a request is answered, the log start offsets are
in the checkpoint, so a restart does not lower them. The next retention run removes the files.
Source: DeleteRecordsRequest 0 to 2, KIP-107.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.broker.partition.log_waits import wait_open
from kraft.broker.partition.partition import Partition
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.purgatory import Parked
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext
    from kraft.broker.replica.leader import LeaderState
    from kraft.broker.serving.session import Session
    from kraft.wire.server import Request

HIGH_WATERMARK = -1
UNKNOWN = -1


def handle_delete_records(context: HandlerContext, request: Request, session: Session) -> None:
    """Check each partition, raise its log start offset, then wait for the partition's replicas."""
    message = read(request)
    deletion = DeleteRecords(context, request)
    for topic in message.topics:
        name = topic.name
        rows = deletion.topic(name)
        allowed = context.gates.authorize_topic(session, Operation.DELETE, name)
        for row in topic.partitions:
            if not allowed:
                rows.append(PartitionDeletion(row.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            found = context.locate(name, row.partition_index)
            if isinstance(found, ErrorCode):
                rows.append(PartitionDeletion(row.partition_index, found))
            else:
                rows.append(_begin(found, row.offset))
    timeout_ms = milliseconds(message.timeout)
    closed = [row.partition for row in deletion.rows() if row.partition is not None and row.partition.log is None]
    if not closed:
        deletion.start(timeout_ms)
        return

    async def when_open() -> None:
        for partition in closed:
            await wait_open(partition)
        for row in deletion.rows():
            if row.partition is not None and row.is_waiting and row.target == UNKNOWN:
                row.begin()
        deletion.start(timeout_ms)

    context.answer_later(request, when_open)


class PartitionDeletion:
    """The deletion in one partition. It is either rejected, or waits until the partition's replicas reach `target`. It
    is a watcher of its partition."""

    __slots__ = ("error", "index", "low_watermark", "operation", "partition", "target", "wanted")

    def __init__(self, index: int, error: ErrorCode, partition: Partition | None = None, wanted: int = -1) -> None:
        self.index = index
        self.error = error
        self.partition = partition
        self.wanted = wanted
        self.target = UNKNOWN
        self.low_watermark = UNKNOWN
        self.operation: DeleteRecords | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the deletion is neither rejected nor complete."""
        return self.error == ErrorCode.NONE and self.partition is not None and self.low_watermark == UNKNOWN

    def begin(self) -> None:
        """Raise the local log start offset, if that is allowed."""
        partition = self.partition
        assert partition is not None
        self.error = _refusal(partition, self.wanted)
        if self.error != ErrorCode.NONE:
            return
        log = partition.log
        assert log is not None
        self.target = partition.high_watermark if self.wanted == HIGH_WATERMARK else self.wanted
        if log.advance_log_start(self.target):
            partition.host.changed[partition] = None
        self.check()

    def check(self) -> None:
        """Complete the deletion if all live replicas have reached the target."""
        partition = self.partition
        if partition is None or not self.is_waiting:
            return
        leader, log = partition.leader, partition.log
        if leader is None or log is None:
            self.error = ErrorCode.KAFKA_STORAGE_ERROR if partition.is_offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        low = leader.low_watermark(log.log_start_offset, partition.host.eligible)
        if low >= self.target:
            self.low_watermark = low

    def partition_changed(self) -> None:
        """Check again, because the partition changed or a follower reported its log start offset."""
        self.check()
        if not self.is_waiting and self.operation is not None:
            self.operation.check()

    def refresh_followers(self, leader: LeaderState) -> None:
        """Do nothing: `partition_changed` is called when a follower next reports its log start offset."""


def _begin(partition: Partition, wanted: int) -> PartitionDeletion:
    deletion = PartitionDeletion(partition.index, ErrorCode.NONE, partition, wanted)
    if partition.log is not None:
        deletion.begin()
    return deletion


def _refusal(partition: Partition, wanted: int) -> ErrorCode:
    if partition.is_internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if partition.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if partition.leader is None or partition.log is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if "delete" not in partition.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION
    if wanted != HIGH_WATERMARK and not 0 <= wanted <= partition.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


class DeleteRecords(Parked):
    """One DeleteRecords request. It is parked until every partition has been rejected or has reached its target."""

    delayed_operation = "DeleteRecords"
    __slots__ = ("_context", "_is_done", "_request", "_topics")

    def __init__(self, context: HandlerContext, request: Request) -> None:
        self.bucket = -1
        self._context = context
        self._request = request
        self._topics: list[tuple[str, list[PartitionDeletion]]] = []
        self._is_done = False

    def topic(self, name: str) -> list[PartitionDeletion]:
        """Add a topic. Return the list to which the caller appends the topic's partitions."""
        rows: list[PartitionDeletion] = []
        self._topics.append((name, rows))
        return rows

    def rows(self) -> list[PartitionDeletion]:
        return [row for _, rows in self._topics for row in rows]

    def start(self, timeout_ms: int) -> None:
        """Answer, or wait for the followers, after all log start offsets were raised on this broker. The request
        continues in `PartitionDeletion.partition_changed`, called by `Partition.settle` at the end of a pass, or in
        `expire`."""
        loop = self._context.loop
        loop.request_pass()
        for row in self.rows():
            if row.is_waiting and row.partition is not None:
                row.operation = self
                row.partition.watch_start(row)
        loop.deadlines.add(self, loop.clock.monotonic_ms() + max(timeout_ms, 0))
        self.check()

    def check(self) -> None:
        """Answer if no partition is waiting any more."""
        if not self._is_done and not any(row.is_waiting for row in self.rows()):
            self._context.loop.deadlines.remove(self)
            self._finish()

    def expire(self) -> None:
        for row in self.rows():
            if row.is_waiting:
                row.error = ErrorCode.REQUEST_TIMED_OUT
        if not self._is_done:
            self._finish()

    def _finish(self) -> None:
        self._is_done = True
        for row in self.rows():
            if row.operation is not None and row.partition is not None:
                row.partition.unwatch_start(row)
        self._context.answer_later(self._request, self._checkpoint_and_answer)

    async def _checkpoint_and_answer(self) -> None:
        """Write the raised log start offsets to the checkpoint, then answer. A restart must not lower the offsets after
        the answer."""
        raised = [row.partition for row in self.rows() if row.error == ErrorCode.NONE and row.partition is not None]
        directories = dict.fromkeys(partition.directory for partition in raised)
        for directory in directories:
            if directory is not None and directory.is_online:
                await self._context.write_log_starts_of(directory)
        self._answer()

    def _answer(self) -> None:
        row_class = part(ApiKey.DELETE_RECORDS, "DeleteRecordsPartitionResult")
        topic_class = part(ApiKey.DELETE_RECORDS, "DeleteRecordsTopicResult")

        def row(found: PartitionDeletion) -> Any:
            return row_class(partition_index=found.index, low_watermark=found.low_watermark, error_code=found.error)

        topics = tuple(topic_class(name=name, partitions=tuple(map(row, rows))) for name, rows in self._topics)
        answer(self._request, respond(ApiKey.DELETE_RECORDS, topics=topics))
