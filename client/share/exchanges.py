"""The ShareFetch and ShareAcknowledge requests of a share consumer: one in flight to each broker that leads a partition
of it.

`ShareSessions` decides what to send; this module sends it, and follows the leaders. A share session ends with its
connection, so all its requests use one. Source: Kafka's ShareConsumeRequestManager, KIP-951 (hints).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog
import trio

from kraft.client.cluster import RETRIABLE, Cluster
from kraft.client.connections import CONNECTION_FAILURES, Disconnected, Link, TimedOut, VersionMismatch
from kraft.client.core.configs import ShareConsumerConfig
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.share.acknowledging import Settled, ShareCommit
from kraft.client.core.share.answers import SESSION_LOST
from kraft.client.core.share.records import TopicIdPartition
from kraft.client.core.share.requests import (
    PartitionShareResult,
    ShareAnswer,
    ShareFetchSize,
    ShareMemberId,
    read_share_acknowledge,
    read_share_fetch,
    share_acknowledge_message,
    share_fetch_message,
)
from kraft.client.core.share.session import (
    FIRST_VERSION_WITH_RECORD_LIMIT,
    INITIAL_EPOCH,
    ShareSession,
    ShareSessionRequest,
)
from kraft.client.core.share.sessions import ShareSessions
from kraft.seam import WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

log = structlog.get_logger("kraft.client")

SHARE = "share"
"""Purpose of the connections."""
FETCH_GRACE_MS = 5_000
"""Milliseconds by which a response may exceed the maximum wait of a ShareFetch without acknowledgements, before the
connection is closed. With acknowledgements it is `request.timeout.ms`, because the broker writes them first."""
END_TIMEOUT_MS = 1_500
LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
TRANSIENT = RETRIABLE | LEADER_MOVED | {ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.SHARE_SESSION_LIMIT_REACHED}
"""Errors of a fetch that are not reported to the application."""


class ShareExchanges:
    """Runs in `nursery`, and exchanges requests with brokers until the nursery is cancelled. `arrived()` is called when
    records or results have arrived, `settled(result)` for each result of acknowledgements, and `failed(error)` for an
    error that the application must receive."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        cluster: Cluster,
        member: ShareMemberId,
        nursery: trio.Nursery,
        arrived: Callable[[], None],
        settled: Callable[[Settled], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.lock_ms: int | None = None
        """Duration of locks, as in the last response that had it."""
        self.is_wanted = False
        """Whether the application waits for records."""
        self.sessions = ShareSessions(
            timeout_ms=config.default_api_timeout_ms,
            backoff_ms=config.retry_backoff_ms,
            backoff_ms_max=config.retry_backoff_max_ms,
            check_crcs=config.check_crcs,
        )
        self._size = ShareFetchSize(
            wait_ms=config.fetch_max_wait_ms,
            bytes_min=config.fetch_min_bytes,
            bytes_max=config.fetch_max_bytes,
            records_max=config.max_poll_records,
            is_record_limit=config.is_record_limit,
        )
        self._config = config
        self._cluster = cluster
        self._clock = cluster.seam.clock
        self._member = member
        self._nursery = nursery
        self._arrived = arrived
        self._on_settled = settled
        self._failed = failed
        self._links: dict[ShareSession, Link] = {}
        self._busy: set[int] = set()
        """Brokers with a request in flight."""
        self._fetching: set[int] = set()
        """Brokers with a ShareFetch in flight."""
        self._pauses_ms: dict[int, float] = {}
        """Brokers from which nothing is fetched for a while after an error, and the length of the pause."""
        self._paused: set[int] = set()
        self._last_fetched = -1
        self._is_refreshing = False
        self._is_closing = False
        self._unseen: dict[TopicPartition, KafkaError] = {}
        """Failed acknowledgements that no commit has reported."""
        self._settled = trio.Event()
        self._woken = trio.Event()

    def wake(self) -> None:
        """Start every request that has become possible."""
        self._woken.set()

    def assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch from exactly these partitions. Buffered records of others are released."""
        if partitions != self.assigned:
            self.assigned = partitions
            self.sessions.release_others(partitions, self._clock.monotonic_ms())
            self.wake()

    async def run(self) -> None:
        while True:
            self._woken = trio.Event()
            due_ms = self._start_due_work()
            with trio.move_on_after(max(due_ms - self._clock.monotonic_ms(), 0) / 1000):
                await self._woken.wait()

    def _start_due_work(self) -> float:
        """Start what can be sent now. Return the time when more is due."""
        now_ms = self._clock.monotonic_ms()
        self._report(self.sessions.fail_ended())
        if self._is_closing:
            return float("inf")
        by_node = self._leaders()
        is_fetch_due = self.is_wanted and not self.sessions.has_more(now_ms) and not self.sessions.has_renewals
        for node_id in self._in_turn({*by_node, *self.sessions.current}):
            if node_id in self._busy:
                continue
            may_fetch = is_fetch_due and node_id not in self._paused
            may_fetch = may_fetch and not (self._size.is_record_limit and self._fetching)
            request = self.sessions.next_request(node_id, by_node.get(node_id, {}), now_ms, may_fetch=may_fetch)
            if request is not None:
                self._start(request)
        return self.sessions.due_ms(self._busy)

    def _in_turn(self, node_ids: set[int]) -> list[int]:
        """Return the brokers, beginning after the one that was asked last, so that each gets its turn."""
        ordered = sorted(node_ids)
        later = [node_id for node_id in ordered if node_id > self._last_fetched]
        return later + [node_id for node_id in ordered if node_id <= self._last_fetched]

    def _leaders(self) -> dict[int, dict[TopicIdPartition, TopicPartition]]:
        """Return the assigned partitions by leader. Request metadata if a leader or a topic id is not known."""
        by_node: dict[int, dict[TopicIdPartition, TopicPartition]] = {}
        is_complete = True
        for name in sorted(self.assigned):
            leader, topic_id = self._cluster.leader(name), self._cluster.topic_id(name[0])
            if leader is None or topic_id is None:
                is_complete = False
            else:
                by_node.setdefault(leader.node_id, {})[(topic_id, name[1])] = name
        if not is_complete and not self._is_refreshing:
            self._is_refreshing = True
            self._nursery.start_soon(self._refresh)
        return by_node

    async def _refresh(self) -> None:
        """Request metadata until every assigned partition has a leader."""
        pause_ms = self._config.retry_backoff_ms
        try:
            while any(self._cluster.leader(name) is None for name in self.assigned):
                await self._cluster.refresh({topic for topic, _ in self.assigned}, timeout_ms=float("inf"))
                self.wake()
                await self._clock.sleep_ms(pause_ms)
                pause_ms = min(2 * pause_ms, self._config.retry_backoff_max_ms)
        finally:
            self._is_refreshing = False
            self.wake()

    # one request

    def _start(self, request: ShareSessionRequest) -> None:
        node_id = request.session.node_id
        self._busy.add(node_id)
        if request.is_fetch:
            self._fetching.add(node_id)
            self._last_fetched = node_id
        self._nursery.start_soon(self._exchange, request)

    async def _exchange(self, request: ShareSessionRequest) -> None:
        node_id = request.session.node_id
        try:
            await self._send(request, timeout_ms=self._config.request_timeout_ms)
        finally:
            self._busy.discard(node_id)
            self._fetching.discard(node_id)
            self.wake()

    async def _send(self, request: ShareSessionRequest, *, timeout_ms: int) -> None:
        """Send a request, and process the response, or its absence."""
        try:
            answer = await self._ask(request, timeout_ms=timeout_ms)
        except (KafkaError, VersionMismatch) as failure:
            code = failure.code if isinstance(failure, KafkaError) else ErrorCode.UNSUPPORTED_VERSION
            self._lose(request, code, str(failure))
            self._failed(failure)
            self._pause(request.session.node_id, self._config.retry_backoff_max_ms)
        except (*CONNECTION_FAILURES, WireError, KeyError) as failure:
            is_silent = isinstance(failure, TimedOut)
            link = self._links.get(request.session)
            if link is not None:
                link.close()  # so that a late response cannot be taken for another one
            self._lose(request, ErrorCode.REQUEST_TIMED_OUT if is_silent else ErrorCode.NETWORK_EXCEPTION)
            for name in request.session.partitions.values():
                self._cluster.forget_leader(name)
            self._pause(request.session.node_id)
        else:
            self._answered(request, answer)

    async def _ask(self, request: ShareSessionRequest, *, timeout_ms: int) -> ShareAnswer:
        session = request.session
        link = self._links.get(session)
        if request.epoch == INITIAL_EPOCH:
            link = await self._cluster.link(session.node_id, SHARE, learned=self.wake)
            if session.is_over:
                raise Disconnected("the session has ended while its connection was opened")
            self._links[session] = link
            session.version = link.version(ApiKey.SHARE_FETCH)
            if self._size.is_record_limit and session.version < FIRST_VERSION_WITH_RECORD_LIMIT:
                text = "share.acquire.mode=record_limit needs ShareFetch in version 2 (KIP-1206): upgrade the brokers"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        if link is None or link.is_closed:
            raise Disconnected("the connection with the share session has ended")
        if request.is_fetch:
            message = share_fetch_message(self._member, request, self._size)
            grace_ms = timeout_ms if request.acknowledged else FETCH_GRACE_MS
            wait_ms = self._size.wait_ms + grace_ms
            return read_share_fetch(await link.request(ApiKey.SHARE_FETCH, message, timeout_ms=wait_ms))
        message = share_acknowledge_message(self._member, request)
        return read_share_acknowledge(await link.request(ApiKey.SHARE_ACKNOWLEDGE, message, timeout_ms=timeout_ms))

    def _lose(self, request: ShareSessionRequest, code: ErrorCode, message: str = "") -> None:
        self._links.pop(request.session, None)
        self._report(self.sessions.lose(request, code, message))

    def _answered(self, request: ShareSessionRequest, answer: ShareAnswer) -> None:
        session, node_id = request.session, request.session.node_id
        if answer.code is not ErrorCode.NONE:
            # the broker does not have the session any more, and so it has released the records
            code = ErrorCode.NETWORK_EXCEPTION if answer.code in SESSION_LOST else answer.code
            self._lose(request, code, answer.message)
            if answer.code not in SESSION_LOST | TRANSIENT:
                text = answer.message.rstrip(". ") or "the request was rejected"
                self._failed(KafkaError(answer.code, f"share group {self._member.group_id}: {text}"))
            self._pause(node_id)
            return
        if answer.lock_ms > 0:
            self.lock_ms = answer.lock_ms
        names = dict(session.partitions)
        names.update((partition, held.partition) for partition, held in session.held.items())
        now_ms = self._clock.monotonic_ms()
        self._report(self.sessions.accept(request, answer, now_ms))
        if request.is_final:
            self._links.pop(session, None)
            self.sessions.ended(session)
        self.sessions.release_others(self.assigned, now_ms)
        is_failing = False
        for partition, row in answer.partitions.items():
            if row.code is not ErrorCode.NONE or row.acknowledge_code is not ErrorCode.NONE:
                self._on_partition_error(names.get(partition), row)
                is_failing |= row.code is not ErrorCode.NONE
        if is_failing:
            self._pause(node_id)
        elif request.is_fetch:
            self._pauses_ms.pop(node_id, None)
        if any(row.acquired for row in answer.partitions.values()):
            self._arrived()

    def _on_partition_error(self, name: TopicPartition | None, row: PartitionShareResult) -> None:
        """Learn the new leader, or find it; report an error that is not transient."""
        if name is None:
            return
        if row.code in LEADER_MOVED or row.acknowledge_code in LEADER_MOVED:
            if row.leader is None or not self._cluster.learn_leader(name, row.leader, row.leader_broker):
                self._cluster.forget_leader(name)
        elif row.code in TRANSIENT:
            self._cluster.forget_leader(name)
        elif row.code is not ErrorCode.NONE:
            text = f"fetching {name[0]}-{name[1]}{': ' if row.message else ''}{row.message}"
            self._failed(KafkaError(row.code, text))

    def _pause(self, node_id: int, pause_ms: float | None = None) -> None:
        """Fetch nothing from a broker for a while. The pauses grow until a fetch succeeds."""
        first, most = self._config.retry_backoff_ms, self._config.retry_backoff_max_ms
        pause_ms = pause_ms or min(2 * self._pauses_ms.get(node_id, first / 2), most)
        self._pauses_ms[node_id] = pause_ms
        if node_id not in self._paused:
            self._paused.add(node_id)
            self._nursery.start_soon(self._end_pause, node_id, pause_ms)

    async def _end_pause(self, node_id: int, pause_ms: float) -> None:
        await self._clock.sleep_ms(pause_ms)
        self._paused.discard(node_id)
        self.wake()

    # results

    def _report(self, results: Iterable[Settled]) -> None:
        """Report results of acknowledgements, also to the commits that wait for them."""
        is_changed = False
        for one in results:
            is_changed = True
            self._on_settled(one)
            live = [commit for commit in one.commits if not commit.is_cancelled]
            for commit in live:
                commit.settle(one.partition, one.error)
            if one.error is None or any(commit.is_awaited for commit in live):
                continue
            if live:
                self._failed(one.error)
            else:
                self._unseen.setdefault(one.partition, one.error)
                log.warning("acknowledgements failed", records=len(one.offsets), problem=str(one.error))
        if is_changed:
            self._settled.set()
            self._settled = trio.Event()
            self._arrived()

    def begin_commit(self, *, is_awaited: bool) -> ShareCommit:
        """Send every queued acknowledgement. The commit gets the results of all without one."""
        commit = ShareCommit(is_awaited=is_awaited)
        self.sessions.join(commit)
        self.wake()
        return commit

    async def finish_commit(self, commit: ShareCommit) -> dict[TopicPartition, KafkaError | None]:
        """Wait for the results of a commit, and return them, with earlier failures that no commit has reported. After a
        cancellation, the next commit reports the failures."""
        try:
            while commit.pending:
                await self._settled.wait()
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            commit.is_cancelled = True
            for name, error in commit.results.items():
                if error is not None:
                    self._unseen.setdefault(name, error)
            raise
        results = dict(commit.results)
        for name, error in self._unseen.items():
            if results.get(name) is None:
                results[name] = error
        self._unseen.clear()
        return results

    # leaving

    async def end_sessions(self) -> None:
        """Send what is queued, and end all sessions, so that the brokers release what is still held at once."""
        self._is_closing = True
        self.assigned = frozenset()
        requests = self.sessions.end_all()
        self._report(self.sessions.fail_ended())
        async with trio.open_nursery() as nursery:
            for request in requests:
                nursery.start_soon(self._end, request)
        self._is_closing = False

    async def _end(self, request: ShareSessionRequest) -> None:
        # A request may be in flight. The broker carries this one out after it, because both use the same connection.
        await self._send(request, timeout_ms=END_TIMEOUT_MS)
