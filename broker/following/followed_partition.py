"""FollowedPartition: one partition in a fetcher. It carries out the decisions of `kraft.broker.replica.follower`.

Invariants: while the log is being truncated (`truncation`), it is not fetched or appended to, and the replica does not
lead. A new fetch offset acknowledges the records below it. So if appends must be synced, the new fetch offset is sent
only after the sync.
Source: Kafka's AbstractFetcherThread, docs/storage.md#group-commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from kraft.broker.partition.partition import EVERY_APPEND
from kraft.broker.partition.partition_following import append_from_leader, take_leader_marks
from kraft.broker.partition.unwritten_log import UNWRITTEN_LOG, UnwrittenLog
from kraft.broker.replica.follower import (
    FollowerState,
    FollowerStatus,
    Resolution,
    SentFetch,
    StepKind,
    decide_answer,
    decide_out_of_range,
    start_offset,
)
from kraft.broker.serving.purgatory import Parked
from kraft.seam import DiskError, WireError
from kraft.storage.append import AppendRefused
from kraft.storage.handles import ColdRead
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.following.leader_fetcher import LeaderFetcher
    from kraft.broker.logs.disk_failures import DiskFailures
    from kraft.broker.logs.truncation import LogTruncator
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.replication_quota import ReplicationQuota
    from kraft.storage.log import Log
    from kraft.wire.messages.fetch import FetchResult

log = structlog.get_logger("kraft.broker.fetcher")

LIST_OFFSETS_VERSION = 7
LATEST = -1
EARLIEST = -2


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """The parts that the followed partitions of all fetchers share. `begin_to_follow` starts fetching a partition from
    its leader, if it has a leader and is not being fetched yet."""

    node_id: int
    quota: ReplicationQuota
    failures: DiskFailures
    truncator: LogTruncator
    begin_to_follow: Callable[[Partition], None]


class LocalLogView:
    """The local log in the form that the pure module `kraft.broker.replica.follower` needs."""

    __slots__ = ("_log", "high_watermark")

    def __init__(self, log: Log | UnwrittenLog, high_watermark: int) -> None:
        self._log = log
        self.high_watermark = high_watermark

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        return self._log.epochs.end_offset_for(epoch, self._log.log_end_offset)


class FollowedPartition:
    """One partition that is fetched from one leader, in one leader epoch."""

    __slots__ = ("fetcher", "is_over", "leader_high_watermark", "partition", "state")

    def __init__(self, fetcher: LeaderFetcher, partition: Partition, leader_epoch: int) -> None:
        self.fetcher = fetcher
        self.partition = partition
        self.is_over = False
        self.leader_high_watermark = 0
        """The leader's high watermark in its last response."""
        latest = self._readable.epochs.latest_epoch
        view = LocalLogView(self._readable, partition.high_watermark)
        self.state = FollowerState(fetcher.leader_id, leader_epoch, start_offset(view, latest), latest)

    def begin(self) -> None:
        """Delay the first fetch until the appends of an earlier role are synced, if appends must be synced."""
        partition, opened = self.partition, self.partition.log
        if opened is not None and partition.waits_for_disk and opened.synced_end_offset < opened.log_end_offset:
            partition.host.request_sync(partition)
            self._hold_until_synced(opened)

    @property
    def _log(self) -> Log:
        opened = self.partition.log
        assert opened is not None
        return opened

    @property
    def _readable(self) -> Log | UnwrittenLog:
        """The log, or an empty log for a replica that was never written."""
        return UNWRITTEN_LOG if self.partition.is_unwritten else self._log

    @property
    def lag(self) -> int:
        """Number of committed records that this replica has not fetched yet."""
        return max(0, self.leader_high_watermark - self.state.fetch_offset)

    def requested_fetch(self) -> tuple[int, int, int, int]:
        """Return (fetch offset, leader epoch, last fetched epoch, log start offset) for the next request."""
        state = self.state
        return state.fetch_offset, state.leader_epoch, state.last_fetched_epoch, self._readable.log_start_offset

    def take(self, result: FetchResult, sent_offset: int, sent_epoch: int) -> None:
        """Apply the leader's response to a request that named this partition."""
        state = self.state
        if self.partition.is_unwritten and result.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            if not _reports_empty_log(result):
                self._open_log()
            return
        if (
            result.error_code == ErrorCode.NONE
            and result.diverging_epoch is None
            and state.status is FollowerStatus.FETCHING
            and state.fetch_offset == sent_offset
            and state.leader_epoch == sent_epoch
        ):  # the usual response, for which `decide_answer` would return APPEND
            self._append(result)
            return
        view = LocalLogView(self._readable, self.partition.high_watermark)
        step = decide_answer(
            self.state, SentFetch(sent_offset, sent_epoch), view, result.error_code, result.diverging_epoch
        )
        kind = step.kind
        if kind is StepKind.APPEND:
            self._append(result)
        elif kind is StepKind.TRUNCATE:
            log.info(
                "log differs from the leader's",
                topic=self.partition.topic,
                partition=self.partition.index,
                leader_epoch_and_end=result.diverging_epoch,
                truncate_to=step.offset,
                log_end_offset=self._log.log_end_offset,
            )
            self._truncate(step.offset, fully=False)
        elif kind is StepKind.RESOLVE:
            self._ask_offset(LATEST)
        elif kind is StepKind.BACK_OFF:
            self._back_off()
        elif kind is StepKind.STOP:
            self._set(FollowerStatus.STOPPED)

    def _open_log(self) -> None:
        """Create the log of a replica that was never written, because the leader has records for it. Then fetch them
        again."""
        self._set(FollowerStatus.BACKOFF)
        self.partition.when_open(self._resume)

    # appending

    def _append(self, result: FetchResult) -> None:
        partition, state, opened = self.partition, self.state, self._log
        fetcher = self.fetcher
        appended = False
        if result.records:
            data = result.records[0]
            try:
                if opened.log_end_offset != state.fetch_offset:
                    raise AppendRefused(
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        f"records from offset {state.fetch_offset} for a log that ends at {opened.log_end_offset}",
                    )
                info = append_from_leader(partition, data, state.leader_epoch, fetcher.loop.clock.wall_ms())  # type: ignore[arg-type]
            except AppendRefused as refused:
                log.warning(
                    "records from the leader were refused",
                    topic=partition.topic,
                    partition=partition.index,
                    error=str(refused),
                )
                self._back_off()
                return
            except ColdRead as cold:
                self._set(FollowerStatus.BACKOFF)
                fetcher.loop.start_task(self._warm, cold)
                return
            except DiskError as error:
                self._set(FollowerStatus.STOPPED)
                fetcher.following.failures.disk_failed(partition, error)
                return
            appended = info.last_offset >= info.base_offset
            partition.meters.replication_bytes_in.count += len(data)  # type: ignore[arg-type]
            if (
                partition.state is not None
                and partition.state.adding
                and partition.is_being_added(fetcher.following.node_id)
            ):
                partition.meters.reassignment_bytes_in.count += len(data)  # type: ignore[arg-type]
            if partition.follower_throttled:
                fetcher.following.quota.record(len(data))  # type: ignore[arg-type]
        state.backoff_ms = 0
        self.leader_high_watermark = result.high_watermark
        take_leader_marks(partition, result.high_watermark, result.log_start_offset)
        state.fetch_offset = opened.log_end_offset
        state.last_fetched_epoch = opened.epochs.latest_epoch
        fetcher.changed(self)
        if appended and partition.flush_records == EVERY_APPEND:
            self._hold_until_synced(opened)

    def _hold_until_synced(self, opened: Log) -> None:
        self.fetcher.hold()
        self.partition.waiting_for_disk.append((opened.log_end_offset, self))

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """Continue fetching: the appended records are synced (or the role has changed), so the next fetch may
        acknowledge them to the leader."""
        self.fetcher.release()

    async def _warm(self, cold: ColdRead) -> None:
        if await self.fetcher.following.failures.warmed(self.partition, cold):
            self._resume()

    # errors

    def _back_off(self) -> None:
        loop = self.fetcher.loop
        self.state.back_off(loop.clock.monotonic_ms(), self.fetcher.backoff_ms_max)
        self.fetcher.changed(self)
        loop.deadlines.add(RetryTimer(self), self.state.retry_at_ms)

    def retry(self) -> None:
        """Fetch again when the backoff is over."""
        if self.state.status is FollowerStatus.BACKOFF:
            self._resume()

    def _set(self, status: FollowerStatus) -> None:
        self.state.status = status
        self.fetcher.changed(self)

    def _resume(self) -> None:
        """Continue fetching from the log's end."""
        if self.is_over or (self.partition.log is None and not self.partition.is_unwritten):
            return
        readable = self._readable
        self.state.resume(readable.log_end_offset, readable.epochs.latest_epoch)
        self.fetcher.changed(self)
        self.fetcher.nudge()
        self.fetcher.loop.request_pass()

    # out of range

    def _ask_offset(self, timestamp: int, latest: int = -1) -> None:
        connection = self.fetcher.connection
        if connection is None:
            self._back_off()
            return
        self._set(FollowerStatus.RESOLVING)

        def on_reply(body: memoryview | None) -> None:
            if self.is_over or self.state.status is not FollowerStatus.RESOLVING:
                return
            offset = None if body is None else _listed_offset(body)
            if offset is None:
                self._back_off()
            elif timestamp == LATEST:
                self._resolve(offset, None)
            else:
                self._resolve(latest, offset)

        request = self._list_offsets(timestamp)
        connection.send(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, [request], on_reply)

    def _list_offsets(self, timestamp: int) -> bytes:
        request_class = messages.request_class(ApiKey.LIST_OFFSETS)
        topic_class = messages.nested_class(request_class, "topics")
        row_class = messages.nested_class(topic_class, "partitions")
        row = messages.build(
            row_class,
            partition_index=self.partition.index,
            current_leader_epoch=self.state.leader_epoch,
            timestamp=timestamp,
        )
        topic = messages.build(topic_class, name=self.partition.topic, partitions=(row,))
        request = messages.build(
            request_class, replica_id=self.fetcher.following.node_id, isolation_level=0, topics=(topic,)
        )
        return messages.encode_request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)

    def _resolve(self, leader_latest: int, leader_earliest: int | None) -> None:
        decision = decide_out_of_range(self._log.log_end_offset, leader_latest, leader_earliest)
        if decision is None:
            self._ask_offset(EARLIEST, leader_latest)
            return
        resolution, offset = decision
        log.info(
            "fetch offset was out of the leader's range",
            topic=self.partition.topic,
            partition=self.partition.index,
            log_end_offset=self._log.log_end_offset,
            resolution=resolution.name,
            offset=offset,
        )
        if resolution is Resolution.CONTINUE:
            self._back_off()
        else:
            self._truncate(offset, fully=resolution is Resolution.RESTART)

    # truncation

    def _truncate(self, offset: int, *, fully: bool) -> None:
        self._set(FollowerStatus.BACKOFF)
        self.partition.truncation_begun()
        self.fetcher.loop.start_task(self._truncate_now, offset, fully)

    async def _truncate_now(self, offset: int, fully: bool) -> None:
        partition, following = self.partition, self.fetcher.following
        if await following.truncator.truncate(partition, offset, fully=fully):
            partition.truncation_done()
            self._resume()
            following.begin_to_follow(partition)  # from another leader, if the role changed meanwhile
            self.fetcher.loop.request_pass()


class RetryTimer(Parked):
    """The timer at which a partition's backoff ends."""

    __slots__ = ("_followed",)

    def __init__(self, followed: FollowedPartition) -> None:
        self.bucket = -1
        self._followed = followed

    def expire(self) -> None:
        self._followed.retry()


def _reports_empty_log(result: FetchResult) -> bool:
    """Return whether the response comes from a leader whose log is empty."""
    return (
        result.error_code == ErrorCode.NONE
        and result.diverging_epoch is None
        and not result.records
        and result.high_watermark <= 0
        and result.log_start_offset <= 0
    )


def _listed_offset(body: memoryview) -> int | None:
    """Return the offset in a ListOffsets response for one partition, or None if the response is an error."""
    try:
        answer: Any = messages.decode_response(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
    except WireError:
        return None
    rows = [row for topic in answer.topics for row in topic.partitions]
    if len(rows) != 1 or rows[0].error_code != ErrorCode.NONE:
        return None
    return int(rows[0].offset)
