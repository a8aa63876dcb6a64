"""FollowedPartition: one partition in a fetcher. It carries out what `kraft.broker.replica.follower` decides.

Invariants: while the log is being cut (`truncation`) nothing is fetched, appended or led. Where appends wait for the
disk, the next fetch offset, which acknowledges, is sent only after the sync.
Source: Kafka's AbstractFetcherThread, docs/storage.md#group-commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from kraft.broker.partition.blank_log import BLANK_LOG, BlankLog
from kraft.broker.partition.partition import EVERY_APPEND
from kraft.broker.partition.partition_following import append_from_leader, take_leader_marks
from kraft.broker.replica.follower import (
    FollowerState,
    FollowerStatus,
    Resolution,
    Sent,
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
    from kraft.broker.logs.truncation import LogCutter
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.replication_quota import ReplicationQuota
    from kraft.storage.log import Log
    from kraft.wire.messages.fetch import FetchResult

log = structlog.get_logger("kraft.broker.fetcher")

LIST_OFFSETS_VERSION = 7
LATEST = -1
EARLIEST = -2


@dataclass(frozen=True, slots=True)
class Following:
    """What the followed partitions of all fetchers share. `begin_to_follow` has a partition fetched from its leader, if
    it has one that it is not fetched from."""

    node_id: int
    quota: ReplicationQuota
    failures: DiskFailures
    cutter: LogCutter
    begin_to_follow: Callable[[Partition], None]


class LogView:
    """The local log as the pure core sees it."""

    __slots__ = ("_log", "high_watermark")

    def __init__(self, log: Log | BlankLog, high_watermark: int) -> None:
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
    """One partition, in one leader epoch, from one leader."""

    __slots__ = ("fetcher", "is_over", "leader_high_watermark", "partition", "state")

    def __init__(self, fetcher: LeaderFetcher, partition: Partition, leader_epoch: int) -> None:
        self.fetcher = fetcher
        self.partition = partition
        self.is_over = False
        self.leader_high_watermark = 0
        """As the leader said last."""
        latest = self._readable.epochs.latest_epoch
        view = LogView(self._readable, partition.high_watermark)
        self.state = FollowerState(fetcher.leader_id, leader_epoch, start_offset(view, latest), latest)

    def begin(self) -> None:
        """Where appends wait for the disk, the first fetch waits for what an earlier role has appended."""
        partition, opened = self.partition, self.partition.log
        if opened is not None and partition.waits_for_disk and opened.synced_end_offset < opened.log_end_offset:
            partition.host.want_sync(partition)
            self._hold_until_synced(opened)

    @property
    def _log(self) -> Log:
        opened = self.partition.log
        assert opened is not None
        return opened

    @property
    def _readable(self) -> Log | BlankLog:
        """The log; an empty one of a replica that was never written."""
        return BLANK_LOG if self.partition.is_blank else self._log

    @property
    def lag(self) -> int:
        """Committed records that are still to be fetched."""
        return max(0, self.leader_high_watermark - self.state.fetch_offset)

    def wish(self) -> tuple[int, int, int, int]:
        """(fetch offset, leader epoch, last fetched epoch, log start offset) for the next request."""
        state = self.state
        return state.fetch_offset, state.leader_epoch, state.last_fetched_epoch, self._readable.log_start_offset

    def take(self, result: FetchResult, sent_offset: int, sent_epoch: int) -> None:
        """The leader's answer to what was sent."""
        state = self.state
        if self.partition.is_blank and result.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            if not _says_nothing(result):
                self._open_log()
            return
        if (
            result.error_code == ErrorCode.NONE
            and result.diverging_epoch is None
            and state.status is FollowerStatus.FETCHING
            and state.fetch_offset == sent_offset
            and state.leader_epoch == sent_epoch
        ):  # the usual answer, for which `decide_answer` would say APPEND
            self._append(result)
            return
        view = LogView(self._readable, self.partition.high_watermark)
        step = decide_answer(self.state, Sent(sent_offset, sent_epoch), view, result.error_code, result.diverging_epoch)
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
            self._cut(step.offset, fully=False)
        elif kind is StepKind.RESOLVE:
            self._ask_offset(LATEST)
        elif kind is StepKind.BACK_OFF:
            self._back_off()
        elif kind is StepKind.STOP:
            self._set(FollowerStatus.STOPPED)

    def _open_log(self) -> None:
        """The leader has something for a replica that was never written: make the log, then ask again."""
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
                    "records from the leader are not taken",
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
        """What was appended is on disk (or the role has changed): the leader may know."""
        self.fetcher.release()

    async def _warm(self, cold: ColdRead) -> None:
        if await self.fetcher.following.failures.warmed(self.partition, cold):
            self._resume()

    # errors

    def _back_off(self) -> None:
        loop = self.fetcher.loop
        self.state.back_off(loop.clock.monotonic_ms(), self.fetcher.backoff_ms_max)
        self.fetcher.changed(self)
        loop.deadlines.add(Retry(self), self.state.retry_at_ms)

    def retry(self) -> None:
        """The backoff is over."""
        if self.state.status is FollowerStatus.BACKOFF:
            self._resume()

    def _set(self, status: FollowerStatus) -> None:
        self.state.status = status
        self.fetcher.changed(self)

    def _resume(self) -> None:
        """Fetch on from the log's end."""
        if self.is_over or (self.partition.log is None and not self.partition.is_blank):
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
            self._cut(offset, fully=resolution is Resolution.RESTART)

    # cutting

    def _cut(self, offset: int, *, fully: bool) -> None:
        self._set(FollowerStatus.BACKOFF)
        self.partition.cut_begun()
        self.fetcher.loop.start_task(self._cut_now, offset, fully)

    async def _cut_now(self, offset: int, fully: bool) -> None:
        partition, following = self.partition, self.fetcher.following
        if await following.cutter.cut(partition, offset, fully=fully):
            partition.cut_done()
            self._resume()
            following.begin_to_follow(partition)  # another leader, if the role changed meanwhile
            self.fetcher.loop.request_pass()


class Retry(Parked):
    """The end of a partition's backoff."""

    __slots__ = ("_followed",)

    def __init__(self, followed: FollowedPartition) -> None:
        self.bucket = -1
        self._followed = followed

    def expire(self) -> None:
        self._followed.retry()


def _says_nothing(result: FetchResult) -> bool:
    """What a leader tells of an empty log."""
    return (
        result.error_code == ErrorCode.NONE
        and result.diverging_epoch is None
        and not result.records
        and result.high_watermark <= 0
        and result.log_start_offset <= 0
    )


def _listed_offset(body: memoryview) -> int | None:
    """The offset in an answer for one partition; None if it is an error."""
    try:
        answer: Any = messages.decode_response(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
    except WireError:
        return None
    rows = [row for topic in answer.topics for row in topic.partitions]
    if len(rows) != 1 or rows[0].error_code != ErrorCode.NONE:
        return None
    return int(rows[0].offset)
