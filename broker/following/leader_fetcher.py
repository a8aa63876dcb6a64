"""LeaderFetcher: fetch all partitions that this broker follows from one leader, over one connection and one fetch
session.

Fetching is a chain of callbacks on that connection. In the pass in which a response arrives, its records are appended
and the next request is sent. The task only connects and reconnects.

Invariants:
- a response is applied only to a partition whose state is unchanged since the request was sent (`decide_answer`);
- a partition that is being truncated, has failed or backs off is not in the request, and the other partitions continue;
- a partition whose response had records is placed behind the others in a full request, so partitions for which the last
  response had no room come first;
- when a partition is added while a long poll waits at the leader, a second request ends that poll at once, so an idle
  partition never delays an added one;
- when many partitions join a session, they are added in several requests, none of which waits at the leader.
Source: KIP-227, Kafka's AbstractFetcherThread, ReplicaFetcherThread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
import trio

from kraft.broker.following.fetch_requests import InFlight, Key, RequestedFetch, by_topic, forgotten_by_topic
from kraft.broker.following.followed_partition import FetcherContext, FollowedPartition
from kraft.broker.partition.hosted import HostedReplicas
from kraft.broker.replica.follower import FollowerStatus
from kraft.seam import CloseReason, WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.client import ClientConnection
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchRequest, FetchResult, encode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response

if TYPE_CHECKING:
    from kraft.broker.following.leader_dialer import LeaderDialer
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.config import NodeConfig
    from kraft.image.registrations import Endpoint

log = structlog.get_logger("kraft.broker.fetcher")

FETCH_VERSION = 17
REDIAL_MS_FIRST = 20
THROTTLE_MS = 100
"""Milliseconds for which a throttled replica is not fetched before the rate is checked again."""
IN_FLIGHT_MAX = 2
SESSION_PARTITIONS_MAX = 250
"""Maximum number of partitions named in one request of a session, so that neither broker is busy with it for long. A
response has at most as many partitions (`pending_fetch`)."""
BATCHES_PER_STEP_MAX = 8
"""Maximum number of batches of SESSION_PARTITIONS_MAX partitions that are examined in one step, if none of their
partitions is to be fetched now."""
DROPPED_MAX = 2_000
CLOSE_SESSION = -1
EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """The settings of a fetcher, from the config keys that begin with `replica.`."""

    max_wait_ms: int
    min_bytes: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms_max: int
    timeout_ms: int

    @staticmethod
    def of(config: NodeConfig) -> FetcherSettings:
        return FetcherSettings(
            max_wait_ms=config.integer("replica.fetch.wait.max.ms"),
            min_bytes=config.integer("replica.fetch.min.bytes"),
            partition_bytes_max=config.integer("replica.fetch.max.bytes"),
            response_bytes_max=config.integer("replica.fetch.response.max.bytes"),
            backoff_ms_max=config.integer("replica.fetch.backoff.ms"),
            timeout_ms=config.integer("replica.socket.timeout.ms"),
        )


class LeaderFetcher:
    """The fetcher of one leader. `run` is a coroutine; the other public methods do not suspend."""

    def __init__(
        self,
        loop: Loop,
        leader_id: int,
        settings: FetcherSettings,
        leaders: LeaderDialer,
        following: FetcherContext,
        broker_epoch: Callable[[], int],
    ) -> None:
        self.loop = loop
        self.leader_id = leader_id
        self.following = following
        self._leaders = leaders
        self._broker_epoch = broker_epoch
        self._followed: dict[Key, FollowedPartition] = {}
        self._replicas = HostedReplicas()
        """The replicas that this fetcher follows."""
        self._connection: ClientConnection | None = None
        self._closed = trio.Event()
        self._needed = trio.Event()
        self._pausing: trio.CancelScope | None = None
        self._session_id = 0
        self._epoch = 0
        self._is_first = True
        self._incarnation: UUID | None = None
        """Incarnation id of the leader at the time of the current connection."""
        self._in_flight: deque[InFlight] = deque()
        self._in_session: dict[Key, RequestedFetch] = {}
        """The partitions in the leader's session after the leader has handled all requests in flight."""
        self._confirmed: dict[Key, RequestedFetch] = {}
        """The partitions that were in the session when the leader handled the request that it answered last."""
        self._holds = 0
        self._adds = False
        """Whether the request being built names partitions that are not in the session yet."""
        self._changed: dict[Key, None] = {}
        self._not_yet_added: Iterator[Partition] | None = None
        """Partitions that are not in a new session yet. Requests name them after the partitions that have changed."""
        self._scan_is_scheduled = False
        self.requests = 0
        self.answer_bytes = 0
        """Total bytes of all response bodies from the leader."""
        self._throttled: dict[Key, None] = {}
        """Partitions that are not fetched at present because of follower.replication.throttled.rate."""
        self._max_wait_ms = settings.max_wait_ms
        self._min_bytes = settings.min_bytes
        self._partition_bytes_max = settings.partition_bytes_max
        self._response_bytes_max = settings.response_bytes_max
        self._backoff_ms_max = settings.backoff_ms_max
        self._timeout_ms = settings.timeout_ms

    @property
    def all_followed(self) -> Iterable[FollowedPartition]:
        return self._followed.values()

    @property
    def client_id(self) -> str:
        return f"broker-{self.following.node_id}-fetcher"

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def connection(self) -> ClientConnection | None:
        return self._connection

    def followed(self, partition: Partition) -> FollowedPartition | None:
        return self._followed.get(partition.key)

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Start fetching this partition from its log end. The caller calls `nudge` when all partitions are added."""
        followed = FollowedPartition(self, partition, leader_epoch)
        self._followed[partition.key] = followed
        self._replicas.add(partition)
        followed.begin()
        self._changed[partition.key] = None
        self._needed.set()

    def remove(self, partition: Partition) -> None:
        """Stop fetching the partition at once, so that a late response has no effect on it."""
        followed = self._followed.pop(partition.key, None)
        if followed is not None:
            followed.is_over = True
            self._replicas.discard(partition)
            self._changed[partition.key] = None
        if not self._followed and self._needed.is_set():  # `run` may wait on an event that is not set
            self._needed = trio.Event()

    def changed(self, followed: FollowedPartition) -> None:
        """Record that the partition's next fetch has changed, was added or was removed."""
        self._changed[followed.partition.key] = None

    def nudge(self) -> None:
        """Send a request if there are changes that the leader should receive before the next response."""
        if self._connection is None or self._holds or not self._has_more or self._scan_is_scheduled:
            return
        if len(self._in_flight) < IN_FLIGHT_MAX:
            self._send()

    def endpoint_changed(self) -> None:
        """Reconnect soon instead of after a long pause, because the leader's registration changed. Close a connection
        to an earlier incarnation: it may be dead without having been closed, because its host lost power."""
        if self._connection is not None and self._incarnation != self._leaders.incarnation(self.leader_id):
            self._connection.close("the leader has registered again")
        if self._pausing is not None:
            self._pausing.cancel()

    def hold(self) -> None:
        """Send no request until `release` is called, because appended records must be synced before they are
        acknowledged."""
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1
        if self._holds:
            return
        if self._in_flight:
            self.nudge()
        else:
            self._send()

    @property
    def backoff_ms_max(self) -> int:
        return self._backoff_ms_max

    # the connection

    async def run(self) -> None:
        """Stay connected while there are partitions to fetch, until cancelled."""
        clock = self.loop.clock
        pause_ms = 0
        while True:
            await self._needed.wait()
            began_ms = clock.monotonic_ms()
            endpoint = self._leaders.endpoint(self.leader_id)
            if endpoint is not None and await self._dial(endpoint):
                self._send()
                await self._closed.wait()
            if clock.monotonic_ms() - began_ms > self._backoff_ms_max:
                pause_ms = 0
            pause_ms = min(max(2 * pause_ms, REDIAL_MS_FIRST), self._backoff_ms_max)
            with trio.CancelScope() as self._pausing:
                await clock.sleep_ms(pause_ms)
            self._pausing = None

    async def _dial(self, endpoint: Endpoint) -> bool:
        self._closed = trio.Event()
        self._incarnation = self._leaders.incarnation(self.leader_id)
        connection = await self._leaders.dial(self.leader_id, endpoint, self.client_id, self._on_closed)
        if connection is None:
            return False
        self._connection = connection
        self._new_session()
        return True

    def _on_closed(self, connection: ClientConnection, reason: CloseReason) -> None:
        if connection is self._connection or self._connection is None:
            self._connection = None
            self._new_session()
            self._closed.set()

    def _new_session(self) -> None:
        self._session_id = self._epoch = 0
        self._is_first = True
        for sent in self._in_flight:
            self.loop.deadlines.remove(sent)
        self._in_flight.clear()
        for old in (self._in_session, self._confirmed, self._changed):
            if len(old) > DROPPED_MAX:
                self.loop.start_task(_drop, old)
        self._in_session, self._confirmed = {}, {}
        self._changed, self._not_yet_added = {}, iter(self._replicas)  # the next request starts to name all partitions

    # requests

    def _send(self) -> None:
        """Send the next request, if there is anything to fetch."""
        connection = self._connection
        if connection is None or self._holds:
            return
        is_full = self._session_id == 0
        if is_full:
            if self._in_flight:
                return
            if not self._is_first:  # without a session each request names all partitions
                self._changed = dict.fromkeys(self._followed)
        mentioned, forgotten = self._next_requested()
        scanned = 1
        while self._has_more and not (mentioned or forgotten):
            if scanned == BATCHES_PER_STEP_MAX:
                self._continue_scan_soon()
                if self._in_flight or not self._in_session:
                    return
                break
            mentioned, forgotten = self._next_requested()
            scanned += 1
        if self._in_session:
            epoch = self._epoch
            self._epoch = 1 if epoch >= EPOCH_MAX else epoch + 1
        elif is_full:
            return
        else:
            epoch, mentioned, forgotten = CLOSE_SESSION, {}, []
        fetch = FetchRequest(
            # The first response gives the session's id, without which no partition can be added. The leader also
            # examines an added partition in every fetch until the partition has been in a response.
            max_wait_ms=0 if self._is_first or self._adds or epoch == CLOSE_SESSION else self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._response_bytes_max,
            topics=by_topic(mentioned, self._partition_bytes_max),
            session_id=self._session_id,
            session_epoch=epoch,
            forgotten=forgotten_by_topic(forgotten),
            replica_id=self.following.node_id,
            replica_epoch=self._broker_epoch(),
        )
        if epoch == CLOSE_SESSION:
            self._session_id = self._epoch = 0
        self._send_now(connection, fetch, mentioned, forgotten)

    def _send_now(
        self,
        connection: ClientConnection,
        fetch: FetchRequest,
        mentioned: dict[Key, RequestedFetch],
        forgotten: list[Key],
    ) -> None:
        sent = InFlight(connection, is_full=fetch.session_epoch <= 0, mentioned=mentioned, forgotten=forgotten)
        self._in_flight.append(sent)
        self.requests += 1
        self.loop.deadlines.add(sent, self.loop.clock.monotonic_ms() + self._timeout_ms)

        def on_reply(body: memoryview | None) -> None:
            if body is not None and connection is self._connection:
                self._take_answer(connection, body)

        connection.send(ApiKey.FETCH, FETCH_VERSION, [encode_fetch_request(FETCH_VERSION, fetch)], on_reply)

    def _next_requested(self) -> tuple[dict[Key, RequestedFetch], list[Key]]:
        """Return the changes since the last request: partitions to fetch with their new values, and partitions that are
        not to be fetched at present."""
        mentioned: dict[Key, RequestedFetch] = {}
        forgotten: list[Key] = []
        in_session = self._in_session
        self._adds = False
        for key in self._next_changed():
            followed = self._followed.get(key)
            if followed is not None and followed.partition.follower_throttled and self._must_wait(followed):
                followed = None
            if followed is None or followed.state.status is not FollowerStatus.FETCHING:
                if in_session.pop(key, None) is not None:
                    forgotten.append(key)
                continue
            requested = followed.requested_fetch()
            before = in_session.get(key)
            if before != requested:
                self._adds = self._adds or (before is None and self._session_id != 0)
                in_session[key] = mentioned[key] = requested
        return mentioned, forgotten

    def _next_changed(self) -> Iterable[Key]:
        """Return the changed partitions for the next request; without a session return all of them."""
        changed = self._changed
        if not (self._is_first or self._session_id):
            self._changed, self._not_yet_added = {}, None
            return changed
        if len(changed) <= SESSION_PARTITIONS_MAX:
            self._changed, taken = {}, list(changed)
        else:
            taken = list(islice(changed, SESSION_PARTITIONS_MAX))
            for key in taken:
                del changed[key]
        if self._not_yet_added is not None and len(taken) < SESSION_PARTITIONS_MAX:
            room = SESSION_PARTITIONS_MAX - len(taken)
            added = [partition.key for partition in islice(self._not_yet_added, room)]
            if len(added) < room:
                self._not_yet_added = None
            taken += added
        return taken

    @property
    def _has_more(self) -> bool:
        """Whether there may be changes that the leader has not received."""
        return bool(self._changed) or self._not_yet_added is not None

    def _continue_scan_soon(self) -> None:
        """Continue examining changed partitions in another step, because this step has examined many and found none to
        fetch now."""
        if not self._scan_is_scheduled:
            self._scan_is_scheduled = True
            self.loop.start_task(self._continue_scan)

    async def _continue_scan(self) -> None:
        await trio.lowlevel.checkpoint()
        self._scan_is_scheduled = False
        if self._in_flight:
            self.nudge()
        else:
            self._send()

    def _must_wait(self, followed: FollowedPartition) -> bool:
        """Return whether the partition is skipped because its replica is throttled, is not in sync, and the replication
        rate is exceeded. If so, it is checked again soon."""
        following = self.following
        if not following.quota.holds_back(followed.partition, following.node_id):
            return False
        if not self._throttled:
            self.loop.start_task(self._end_wait)
        self._throttled[followed.partition.key] = None
        return True

    async def _end_wait(self) -> None:
        await self.loop.clock.sleep_ms(THROTTLE_MS)
        self._changed.update(self._throttled)
        self._throttled.clear()
        self.nudge()

    # responses

    def _take_answer(self, connection: ClientConnection, body: memoryview) -> None:
        try:
            response = decode_fetch_response(FETCH_VERSION, body)
        except WireError as problem:
            connection.close(f"the leader's answer does not parse: {problem}", CloseReason.BAD_BYTES)
            return
        self.answer_bytes += len(body)
        sent = self._in_flight.popleft()
        self.loop.deadlines.remove(sent)
        self._is_first = False
        if sent.is_full:
            self._confirmed = dict(sent.mentioned)
        else:
            self._confirmed.update(sent.mentioned)
            for key in sent.forgotten:
                self._confirmed.pop(key, None)
        if response.error_code:
            self._refused(response.error_code)
            return
        if sent.is_full:
            self._session_id = response.session_id
            # the leader has no session slot for this fetcher: every request names all partitions
            if not self._session_id:
                self._epoch = 0
                self._in_session.clear()
        for _, topic_id, results in response.topics:
            if topic_id is not None:
                for result in results:
                    self._take_result((topic_id, result.partition), result)
        if self._in_flight:
            # send the changes that were made while two requests were in flight, without waiting for the end of a long
            # poll
            self.nudge()
        else:
            self._send()

    def _take_result(self, key: Key, result: FetchResult) -> None:
        followed = self._followed.get(key)
        requested = self._confirmed.get(key)
        if followed is not None and requested is not None:
            if result.records and not self._session_id:  # with a session, the leader keeps this order
                self._followed[key] = self._followed.pop(key)
            followed.take(result, requested[0], requested[1])

    def _refused(self, error: int) -> None:
        """Handle a top-level error: begin a new session. After any error other than a lost session, back off first."""
        log.info("fetch was refused by the leader", leader=self.leader_id, error=ErrorCode.of(error).name)
        lost = error in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        )
        if lost and not self._in_flight:
            self._new_session()
            self._send()
        elif not self._in_flight or not lost:
            connection = self._connection
            if connection is not None:
                connection.close("the leader refuses this fetcher")


async def _drop(old: dict[Key, Any]) -> None:
    """Empty a large dict, a few entries at a time."""
    while old:
        for _ in range(min(DROPPED_MAX, len(old))):
            old.popitem()
        await trio.lowlevel.checkpoint()
