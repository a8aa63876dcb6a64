"""A pending ShareFetch: acquire records of its session's partitions, answer, or park until there are some.

Invariants: each request is answered once. Records are acquired in the step in which the request is answered, so a
request that ends without an answer holds no records. Requests that wait for one share partition are served in the order
in which they were parked. Source: KIP-932, Kafka's DelayedShareFetch.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft.broker.api.share_fetch.led_share_partition import NS_PER_MS, LedSharePartition, ShareStage
from kraft.broker.api.share_fetch.share_acknowledgements import AcknowledgeErrors, partition_error
from kraft.broker.api.share_fetch.share_meters import topic_meters
from kraft.broker.api.share_fetch.share_reading import AcquireLimits, Acquisition, acquirable_bytes, acquire
from kraft.broker.api.share_fetch.share_sessions import ShareSession, TopicIdPartition
from kraft.broker.serving.gates import QuotaKind
from kraft.broker.serving.leader_hints import current_leader, endpoints_of
from kraft.broker.serving.purgatory import Parked
from kraft.broker.serving.request_versions import answer, part, respond
from kraft.broker.serving.throttling import mute
from kraft.seam import DiskError
from kraft.storage.handles import ColdRead
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext
    from kraft.broker.serving.session import Session
    from kraft.wire.messages.tagged import CurrentLeader
    from kraft.wire.server import Request

PERCENT = 100
WARMS_MAX = 100
"""Maximum reads into memory of one request."""

LOAD_ERRORS = MappingProxyType(
    {
        ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR: ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Error of loading a share partition → error in the response. After another error (the share coordinator moves, or the
group has not initialized the share partition yet) the partition has no records, and the next request loads it again."""


class ShareFetchLimits(NamedTuple):
    """The limits in a ShareFetch. `max_wait_ms` is 0 for a request that only acknowledges. A request is answered before
    `max_wait_ms` have passed when `bytes_min` can be acquired."""

    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_records: int
    is_strict: bool


class ShareFetchOperation(Parked):
    """One ShareFetch of a share session, once its acknowledgements are persisted. `kept` is the share session."""

    delayed_operation = "ShareFetch"
    __slots__ = (
        "acknowledged",
        "began_ns",
        "context",
        "is_done",
        "is_final",
        "is_wait_measured",
        "kept",
        "limits",
        "request",
        "session",
        "waited",
        "warms",
    )

    def __init__(
        self,
        context: HandlerContext,
        request: Request,
        session: Session,
        kept: ShareSession,
        limits: ShareFetchLimits,
        acknowledged: AcknowledgeErrors,
    ) -> None:
        self.bucket = -1
        self.context = context
        self.request = request
        self.session = session
        self.kept = kept
        self.limits = limits
        self.acknowledged = acknowledged
        self.waited: dict[TopicIdPartition, LedSharePartition] = {}
        """The share partitions that this request has seen; one that is closed meanwhile is not loaded again."""
        self.warms = 0
        self.began_ns = context.loop.clock.monotonic_ns()
        self.is_wait_measured = limits.records_max <= 0
        self.is_done = False
        self.is_final = limits.max_wait_ms <= 0

    def start(self) -> None:
        """Answer now, or park the request. If the session has ended meanwhile, nobody would give back what the request
        acquires, or end it with its connection."""
        self.kept.end_parked()
        for meters in topic_meters(self.context.find, self.kept.partitions):
            meters.share_fetches.count += 1
        if self.kept.is_open:
            self._try()
        else:
            self._finish({})

    def wake(self) -> None:
        """Check the request again at the end of this pass."""
        self.context.shares.woken[self] = None

    def check_again(self) -> None:
        """Try again, at the end of a pass with changes, or once missing bytes are in memory."""
        if not self.is_done:
            self.context.finish(self.request, self._try_or_end)

    def expire(self) -> None:
        """Answer without records, unless there are some now, because the maximum wait has passed."""
        self.bucket = -1
        self.is_final = True
        self.context.shares.counts.expired_fetches += 1
        self.check_again()

    def answer_empty(self) -> None:
        """Answer without records, because the session's next request has arrived or the session has ended."""
        if not self.is_done:
            self._finish({})

    def _try_or_end(self) -> None:
        try:
            self._try()
        except Exception:
            self._end()
            raise

    def _try(self) -> None:
        try:
            if not self.is_final and self._lacks_bytes():
                self._measure_wait(is_over=any(share.can_acquire for share in self.waited.values()))
                self._park()
                return
            found, is_waiting = self._acquire_all()
        except ColdRead as cold:
            self.warms += 1
            if self.warms > WARMS_MAX:
                self._finish({})
            else:
                self.kept.parked = self
                self.context.answer_later(self.request, self._warm, cold)
            return
        if found or self.is_final or not (is_waiting or self.kept.partitions) or self._needs_no_bytes():
            self._measure_wait(is_over=True)
            self._measure_ratio(found)
            self._finish(found)
        else:
            self._measure_wait(is_over=not self.is_wait_measured and self._acquirable_count({}) > 0)
            self._park()

    async def _warm(self, cold: ColdRead) -> None:
        """Read the missing bytes into memory, in a thread, then try again."""
        try:
            await self.context.loop.disk.offload(cold.warm)
            cold.adopt()
        except DiskError as trouble:
            self.context.failures.disk_failed_at(trouble)
        self.check_again()

    def _park(self) -> None:
        self.kept.parked = self
        if self.bucket < 0:
            loop = self.context.loop
            loop.deadlines.add(self, loop.clock.monotonic_ms() + self.limits.max_wait_ms)

    # reading

    def _lacks_bytes(self) -> bool:
        """Return whether fewer bytes than the request wants can be acquired, so that it waits for more. A partition
        with an error ends the wait."""
        wanted = self.limits.bytes_min
        if wanted <= 1 or not self.kept.partitions:
            return False
        size = 0
        for partition in self.kept.in_turn():
            share = self._share_of(partition)
            if isinstance(share, LedSharePartition):
                share.parked[self] = None
                size += acquirable_bytes(share, self.limits.bytes_max)
            if size >= wanted or (isinstance(share, ErrorCode) and share is not ErrorCode.NONE):
                return False
        return True

    def _needs_no_bytes(self) -> bool:
        """Return whether the request is content with nothing. As in Kafka, it waits until a share partition is
        loaded."""
        is_loaded = any(share.stage is ShareStage.ACTIVE for share in self.waited.values())
        return self.limits.bytes_min <= 0 and is_loaded

    def _acquire_all(self) -> tuple[dict[TopicIdPartition, Acquisition], bool]:
        """Acquire records of the session's partitions, up to the limits. Return what was found, and whether a share
        partition is watched. If something was found, the bytes that are not in memory are left to the next request."""
        found: dict[TopicIdPartition, Acquisition] = {}
        bytes_left, records_left, is_waiting = self.limits.bytes_max, self.limits.records_max, False
        for partition in self.kept.in_turn():
            if records_left <= 0 or (bytes_left <= 0 and found):
                break
            try:
                result = self._acquire_one(partition, bytes_left, records_left)
            except ColdRead:
                if found:
                    break
                raise
            if result is None:
                is_waiting = True
            elif result.error is not ErrorCode.NONE or result.acquired:
                found[partition] = result
                bytes_left -= len(result.records)
                records_left -= result.acquired_count
            elif result.goes_on:
                self.wake()
        return found, is_waiting

    def _acquire_one(self, partition: TopicIdPartition, bytes_left: int, records_left: int) -> Acquisition | None:
        """Acquire records of one partition. Return None if there are none yet, and this request is woken when there may
        be some."""
        share = self._share_of(partition)
        if isinstance(share, ErrorCode):
            return None if share is ErrorCode.NONE else Acquisition(share)
        if share.stage is ShareStage.ACTIVE:
            limits = AcquireLimits(
                max(bytes_left, 0), records_left, self.limits.batch_records, is_strict=self.limits.is_strict
            )
            result = acquire(share, self.kept.member.member, limits, self.context.loop.clock.monotonic_ms())
            if result.error is not ErrorCode.NONE or result.acquired or result.goes_on:
                return result
        share.parked[self] = None
        return None

    def _share_of(self, partition: TopicIdPartition) -> LedSharePartition | ErrorCode:
        """Return the share partition, loaded or being loaded, or the error of the partition. NONE means that the
        partition has no records for this request, because its state cannot be loaded now."""
        error = partition_error(self.context, self.session, *partition)
        if error is not ErrorCode.NONE:
            return error
        share = self.waited.get(partition)
        if share is not None and share.stage is ShareStage.CLOSED:
            return LOAD_ERRORS.get(share.load_error, ErrorCode.NONE)
        replica = self.context.find(*partition)
        assert replica is not None
        share = self.waited[partition] = self.context.shares.find_or_load(self.kept.member.group, replica)
        return share

    # measuring

    def _acquirable_count(self, found: dict[TopicIdPartition, Acquisition]) -> int:
        """Return the number of partitions that could be acquired: `found` has their records, or there are none yet."""
        shares, group = self.context.shares, self.kept.member.group
        count = 0
        for partition in self.kept.partitions:
            one, share = found.get(partition), shares.find(group, partition)
            count += bool(one is not None and one.acquired) or (share is not None and share.can_acquire)
        return count

    def _measure_wait(self, *, is_over: bool) -> None:
        """Measure, once for each request, how long it took until a partition could be acquired."""
        meters = self.context.shares.group_meters.get(self.kept.member.group)
        if is_over and not self.is_wait_measured and meters is not None:
            self.is_wait_measured = True
            meters.acquire_ms.update((self.context.loop.clock.monotonic_ns() - self.began_ns) / NS_PER_MS)

    def _measure_ratio(self, found: dict[TopicIdPartition, Acquisition]) -> None:
        meters = self.context.shares.group_meters.get(self.kept.member.group)
        if meters is not None and self.kept.partitions and self.limits.records_max > 0:
            meters.fetch_ratio.update(PERCENT * self._acquirable_count(found) // len(self.kept.partitions))

    # answering

    def _end(self) -> None:
        self.is_done = True
        if self.bucket >= 0:
            self.context.loop.deadlines.remove(self)
            self.bucket = -1
        for share in self.waited.values():
            share.parked.pop(self, None)
        if self.kept.parked is self:
            self.kept.parked = None

    def _finish(self, found: dict[TopicIdPartition, Acquisition]) -> None:
        self._end()
        size = sum(len(one.records) for one in found.values())
        throttle_ms = self.context.gates.quotas.record(self.session, QuotaKind.FETCH_BYTES, size) if size else 0
        if throttle_ms:
            mute(self.context.loop, self.request, throttle_ms)
        for partition, one in found.items():
            replica = self.context.find(*partition)
            if replica is not None:
                replica.meters.fetches.count += 1
                replica.meters.bytes_out.count += len(one.records)
        failed = [partition for partition, one in found.items() if one.error is not ErrorCode.NONE]
        for meters in topic_meters(self.context.find, failed):
            meters.failed_share_fetches.count += 1
        group = self.kept.member.group
        lock_ms = self.context.shares.settings_of(group).limits.lock_duration_ms
        answer(
            self.request,
            share_fetch_response(
                self.context, self.session, found, self.acknowledged, lock_ms=lock_ms, throttle_ms=throttle_ms
            ),
        )


def share_fetch_response(
    context: HandlerContext,
    session: Session,
    found: dict[TopicIdPartition, Acquisition],
    acknowledged: AcknowledgeErrors,
    *,
    lock_ms: int,
    throttle_ms: int = 0,
) -> Any:
    """Return the response with these records and results of acknowledgements."""
    topic_part = part(ApiKey.SHARE_FETCH, "ShareFetchableTopicResponse")
    row, batch = part(ApiKey.SHARE_FETCH, "PartitionData"), part(ApiKey.SHARE_FETCH, "AcquiredRecords")
    leader_part = part(ApiKey.SHARE_FETCH, "LeaderIdAndEpoch")
    hints = LeaderHints(context, session)
    by_topic: dict[Any, list[Any]] = {}
    for partition in dict.fromkeys((*found, *acknowledged)):
        topic_id, index = partition
        one, acknowledge_error = found.get(partition, Acquisition()), acknowledged.get(partition, ErrorCode.NONE)
        hint = hints.of(topic_id, index, one.error, acknowledge_error)
        by_topic.setdefault(topic_id, []).append(
            row(
                partition_index=index,
                error_code=one.error,
                acknowledge_error_code=acknowledge_error,
                current_leader=leader_part(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch),
                records=one.records,
                acquired_records=[batch(**acquired._asdict()) for acquired in one.acquired],
            )
        )
    return respond(
        ApiKey.SHARE_FETCH,
        throttle_time=timedelta(milliseconds=throttle_ms),
        acquisition_lock_timeout=timedelta(milliseconds=lock_ms),
        responses=[topic_part(topic_id=topic_id, partitions=rows) for topic_id, rows in by_topic.items()],
        node_endpoints=hints.endpoints(part(ApiKey.SHARE_FETCH, "NodeEndpoint")),
    )


class LeaderHints:
    """The current leaders of partitions with NOT_LEADER_OR_FOLLOWER, and their addresses (KIP-951)."""

    def __init__(self, context: HandlerContext, session: Session) -> None:
        self._context = context
        self._session = session
        self._hinted: list[CurrentLeader] = []

    def of(self, topic_id: Any, index: int, *errors: ErrorCode) -> CurrentLeader:
        """Return the current leader if one of the errors needs it; otherwise -1 and -1."""
        if ErrorCode.NOT_LEADER_OR_FOLLOWER not in errors:
            return current_leader(None, index)
        hint = current_leader(self._context.image.topics.get_by_id(topic_id), index)
        self._hinted.append(hint)
        return hint

    def endpoints(self, make: Callable[..., Any]) -> list[Any]:
        """Return the addresses of the leaders that were named."""
        found = endpoints_of(self._context.image, self._hinted, self._session.listener)
        return [make(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack) for one in found]
