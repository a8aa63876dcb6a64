"""The consumer's fetcher: it finds first positions, and keeps one Fetch request in flight to each broker that it reads
from.

It reads from a partition's leader, or from a close replica if the consumer has a rack. Fetched data is kept as bytes
until the application polls. A partition is not fetched again while `max.partition.fetch.bytes` of its data are
buffered. No partition is fetched while `fetch.max.bytes` are buffered altogether. A response for a partition is dropped
if the partition was given up, or its position was changed by a seek, after the request was sent (C2).
Source: Kafka's Fetcher, OffsetFetcher, KIP-227 (sessions), KIP-320 (truncation), KIP-392 (closest replica), KIP-951
(hints), KIP-1106 (reset by duration).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from uuid import UUID

import trio

from kraft.client.cluster import RETRIABLE, Cluster
from kraft.client.commits import Commits
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.client.core.assigned import EARLIEST, LATEST, REFETCHED, Assignment, ConsumerPartition
from kraft.client.core.buffered_records import damaged_batch
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.fetch_session import SESSION_ERRORS, FetchSessionHandler
from kraft.client.core.fetched import FetchedBytes, FetchPosition
from kraft.client.core.records import KafkaError, LogTruncated, TopicPartition
from kraft.client.core.requests import FetchAnswer, PartitionFetchResult, fetch_request, read_fetch_response
from kraft.client.offsets import OffsetLookup
from kraft.seam import WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FIRST_VERSION_WITH_TOPIC_ID, FetchPartition

FETCH_GRACE_MS = 5_000
"""Milliseconds by which the response to a Fetch request may exceed the maximum wait in the request. After that, the
connection is closed."""
WAIT_WHILE_FULL_MS = 20
"""Maximum wait in ms of a Fetch request that leaves out some partitions of the broker because their buffers are full.
It is short, so that these partitions are fetched soon after the application has made room."""

METADATA, POSITIONS, DAMAGED = -1, -2, -3
"""Keys of background jobs. Only one job with the same key runs at a time. A job that fetches from a broker has the
broker's id as key."""

RequestedPartitions = dict[TopicPartition, tuple[ConsumerPartition, int]]
"""Type: the partitions in a Fetch request, each with the `version` that it had when the request was sent."""


class Fetcher:
    """Runs in `nursery` and fetches until the nursery is cancelled. `arrived()` is called when records are ready, and
    `failed(error)` for an error that the application must receive."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        assignment: Assignment,
        nursery: trio.Nursery,
        arrived: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.lookup = OffsetLookup(config, cluster)
        self.commits: Commits | None = None
        """Source of committed positions, for a consumer with a group."""
        self._config = config
        self._cluster = cluster
        self._clock = cluster.seam.clock
        self._assignment = assignment
        self._nursery = nursery
        self._arrived = arrived
        self._failed = failed
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._busy: set[int] = set()
        self._refreshed_ms = self._clock.monotonic_ms()
        self._refresh_pause_ms = config.retry_backoff_ms
        self._position_pause_ms = config.retry_backoff_ms
        self._woken = trio.Event()

    def wake(self) -> None:
        """Start every fetch that has become possible."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken = trio.Event()
            self._start_due_work()
            with trio.move_on_after(self._config.metadata_max_age_ms / 1000):
                await self._woken.wait()

    def _start_due_work(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._assignment.partitions and now_ms - self._refreshed_ms >= self._config.metadata_max_age_ms:
            self._start_once(METADATA, self._refresh)
        if any(a.fetch is None and not a.is_stuck for a in self._assignment.partitions.values()):
            self._start_once(POSITIONS, self._find_positions)
        if any(assigned.is_damaged for assigned in self._assignment.partitions.values()):
            self._start_once(DAMAGED, self._pause_before_damaged)
        by_node: dict[int, list[TopicPartition]] = {}
        full: set[int] = set()
        readable = {tp: assigned for tp, assigned in self._assignment.partitions.items() if assigned.is_fetchable}
        has_room = sum(assigned.waiting_bytes for assigned in readable.values()) < self._config.fetch_max_bytes
        for tp, assigned in readable.items():
            node_id = self._node_for(tp, assigned)
            if node_id is None:
                self._start_once(METADATA, self._refresh)
            elif has_room and assigned.waiting_bytes < self._config.max_partition_fetch_bytes:
                by_node.setdefault(node_id, []).append(tp)
            else:
                full.add(node_id)
        for node_id, partitions in by_node.items():
            wait_ms = self._config.fetch_max_wait_ms
            if node_id in full:
                wait_ms = min(wait_ms, WAIT_WHILE_FULL_MS)
            self._start_once(node_id, partial(self._fetch, node_id, partitions, wait_ms))

    def _node_for(self, tp: TopicPartition, assigned: ConsumerPartition) -> int | None:
        """Return the replica to fetch from: the one that the leader has named (KIP-392), else the leader. None if the
        leader is not known."""
        if assigned.preferred_replica in self._cluster.brokers:
            if self._clock.monotonic_ms() < assigned.preferred_until_ms:
                return assigned.preferred_replica
            assigned.preferred_replica = -1
        leader = self._cluster.leader(tp)
        return None if leader is None or self._cluster.topic(tp[0]) is None else leader.node_id

    def _start_once(self, slot: int, work: Callable[[], Awaitable[None]]) -> None:
        if slot not in self._busy:
            self._busy.add(slot)
            self._nursery.start_soon(self._guarded, slot, work)

    async def _guarded(self, slot: int, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (KafkaError, WireError, TimedOut) as failure:
            self._failed(failure)
            await self._clock.sleep_ms(self._config.retry_backoff_max_ms)
        finally:
            self._busy.discard(slot)
            self.wake()

    async def _refresh(self) -> None:
        await self._cluster.refresh({topic for topic, _ in self._assignment.partitions}, timeout_ms=float("inf"))
        self._refreshed_ms = self._clock.monotonic_ms()
        unled = any(self._cluster.leader(tp) is None for tp in self._assignment.partitions)
        first, most = self._config.retry_backoff_ms, self._config.retry_backoff_max_ms
        self._refresh_pause_ms = min(2 * self._refresh_pause_ms, most) if unled else first
        await self._clock.sleep_ms(self._refresh_pause_ms)

    # first positions

    async def _find_positions(self) -> None:
        """Find a position for each partition without one: the requested start, else the committed offset, else the
        position of the reset policy. Each position is used as soon as it is found, so a partition without a leader does
        not delay the others."""
        unknown = {tp: a for tp, a in self._assignment.partitions.items() if a.fetch is None and not a.is_stuck}
        versions = {tp: assigned.version for tp, assigned in unknown.items()}

        def use(found: Mapping[TopicPartition, FetchPosition]) -> None:
            for tp, position in found.items():
                assigned = unknown[tp]
                if self._assignment.partitions.get(tp) is assigned and assigned.version == versions[tp]:
                    assigned.seek(position)
            self.wake()

        committed = await self._committed([tp for tp, assigned in unknown.items() if assigned.start is None])
        use(committed)
        targets: dict[TopicPartition, int] = {}
        for tp, assigned in unknown.items():
            if tp not in committed:
                timestamp = self._reset_timestamp(tp, assigned) if assigned.start is None else assigned.start
                if timestamp is not None:
                    targets[tp] = timestamp
        if targets:
            await self._look_up(targets, use)

    async def _look_up(
        self, targets: Mapping[TopicPartition, int], use: Callable[[Mapping[TopicPartition, FetchPosition]], None]
    ) -> None:
        """Request the offsets at these timestamps once. Back off if some of them are not returned."""
        ends: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, int] = {}
        found: dict[TopicPartition, FetchPosition] = {}
        await self.lookup.ensure_topics(targets, timeout_ms=float("inf"))
        # Request the end offsets first. A record that is written during the lookup by time then comes after the end
        # offset, and is read.
        timed = {tp: LATEST for tp, timestamp in targets.items() if timestamp not in (EARLIEST, LATEST)}
        try:
            if timed:
                await self.lookup.ask(timed, ends)
            await self.lookup.ask(targets, offsets)
        finally:
            for tp, offset in offsets.items():
                if offset >= 0 or tp in ends:
                    found[tp] = FetchPosition(offset if offset >= 0 else ends[tp])
            use(found)
        missing = targets.keys() - found
        first, most = self._config.retry_backoff_ms, self._config.retry_backoff_max_ms
        if missing:
            await self.lookup.refresh({topic for topic, _ in missing}, timeout_ms=float("inf"))
            await self._clock.sleep_ms(self._position_pause_ms)
        self._position_pause_ms = min(2 * self._position_pause_ms, most) if missing else first

    async def _committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, FetchPosition]:
        if self.commits is None or not partitions:
            return {}
        committed = await self.commits.fetch(partitions)
        return {tp: FetchPosition(c.offset, c.leader_epoch) for tp, c in committed.items() if c is not None}

    def _reset_timestamp(self, tp: TopicPartition, assigned: ConsumerPartition) -> int | None:
        """Return the timestamp with which ListOffsets finds the position for `auto.offset.reset`. If the policy is
        none, report an error to the application and return None."""
        policy, back_ms = self._config.auto_offset_reset, self._config.reset_duration_ms
        if back_ms is not None:
            return max(self._clock.wall_ms() - back_ms, 0)  # negative timestamps are special values, such as EARLIEST
        if policy != "none":
            return EARLIEST if policy == "earliest" else LATEST
        assigned.is_stuck = True
        text = f"{tp[0]}-{tp[1]} has no position in its log, and auto.offset.reset is none: seek"
        self._failed(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
        return None

    # fetching

    async def _pause_before_damaged(self) -> None:
        """Back off before partitions with a damaged batch are fetched again."""
        await self._clock.sleep_ms(self._config.retry_backoff_ms)
        for assigned in self._assignment.partitions.values():
            assigned.is_damaged = False

    async def _fetch(self, node_id: int, partitions: list[TopicPartition], wait_ms: int) -> None:
        asked: RequestedPartitions = {}
        for tp in partitions:
            assigned = self._assignment.partitions.get(tp)
            if assigned is not None and assigned.fetch is not None:
                asked[tp] = (assigned, assigned.version)
        session = self._sessions.setdefault(node_id, FetchSessionHandler())
        try:
            answer = await self._ask(node_id, session, asked, wait_ms)
        except (*CONNECTION_FAILURES, KeyError) as failure:
            session.reset()
            self._give_up_node(node_id, asked, is_silent=isinstance(failure, TimedOut))
            await self._clock.sleep_ms(self._config.retry_backoff_ms)
            return
        session.answered(answer.code, answer.session_id)
        if answer.code in SESSION_ERRORS:
            return
        if answer.code is not ErrorCode.NONE:
            raise KafkaError(answer.code, f"broker {node_id} rejected a fetch")
        for tp, part in answer.partitions.items():
            assigned, version = asked.get(tp) or (None, 0)
            if assigned is None or self._assignment.partitions.get(tp) is not assigned or assigned.version != version:
                continue
            self._accept(tp, assigned, part)

    async def _ask(
        self, node_id: int, session: FetchSessionHandler, asked: RequestedPartitions, wait_ms: int
    ) -> FetchAnswer:
        link = await self._cluster.link(node_id, "fetch", learned=self.wake)
        version = link.version(ApiKey.FETCH)
        wanted: dict[TopicPartition, tuple[UUID | None, FetchPartition]] = {}
        for tp, (assigned, _) in asked.items():
            position = assigned.fetch
            topic, leader = self._cluster.topic(tp[0]), self._cluster.leader(tp)
            if position is None or topic is None:
                continue
            if topic.topic_id is None:
                version = min(version, FIRST_VERSION_WITH_TOPIC_ID - 1)
            epoch = -1 if leader is None else leader.epoch
            wanted[tp] = (
                topic.topic_id,
                FetchPartition(
                    tp[1], epoch, position.offset, position.last_epoch, -1, self._config.max_partition_fetch_bytes
                ),
            )
        request = fetch_request(
            version,
            session.request(wanted),
            wait_ms=wait_ms,
            bytes_min=self._config.fetch_min_bytes,
            bytes_max=self._config.fetch_max_bytes,
            read_committed=self._config.read_committed,
            rack=self._config.client_rack,
        )
        return await link.request_encoded(
            ApiKey.FETCH,
            version,
            [request],
            lambda body: read_fetch_response(version, body, session.topic_of),
            timeout_ms=wait_ms + FETCH_GRACE_MS,
        )

    def _give_up_node(self, node_id: int, asked: RequestedPartitions, *, is_silent: bool) -> None:
        for tp, (assigned, _) in asked.items():
            if assigned.preferred_replica == node_id:
                assigned.preferred_replica = -1
            else:
                self._cluster.forget_leader(tp)
        if is_silent and node_id in self._cluster.brokers:
            link = self._cluster.links.live(self._cluster.brokers[node_id].address, "fetch")
            if link is not None:
                link.close()

    def _accept(self, tp: TopicPartition, assigned: ConsumerPartition, part: PartitionFetchResult) -> None:
        """Process the response for one partition. If it has an error, the other partitions in the response are
        processed nevertheless."""
        if part.code is not ErrorCode.NONE:
            self._on_refused(tp, assigned, part)
            return
        if part.diverging is not None:
            self._on_truncated(tp, assigned, part.diverging[1])
            return
        assigned.high_watermark = part.high_watermark
        assigned.last_stable_offset = part.last_stable_offset
        if part.preferred_replica >= 0:
            assigned.preferred_replica = part.preferred_replica
            assigned.preferred_until_ms = self._clock.monotonic_ms() + self._config.metadata_max_age_ms
        assert assigned.fetch is not None
        fetched = FetchedBytes(
            part.records,
            assigned.fetch,
            aborted=part.aborted,
            read_committed=self._config.read_committed,
            check_crcs=self._config.check_crcs,
        )
        try:
            has_records = assigned.arrived(fetched)
        except WireError as damage:
            assigned.is_damaged = True
            self._failed(damaged_batch(tp, damage, REFETCHED))
            return
        if has_records:
            self._arrived()

    def _on_refused(self, tp: TopicPartition, assigned: ConsumerPartition, part: PartitionFetchResult) -> None:
        if assigned.preferred_replica >= 0:
            assigned.preferred_replica = -1  # a follower may lag: fetch from the leader before acting on the error
        elif part.code is ErrorCode.OFFSET_OUT_OF_RANGE and assigned.has_more:
            assigned.is_doubtful = True
        elif part.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            timestamp = self._reset_timestamp(tp, assigned)
            if timestamp is not None:
                assigned.seek_by_time(timestamp)
        elif part.code not in RETRIABLE:
            assigned.is_stuck = True
            self._failed(KafkaError(part.code, f"fetching {tp[0]}-{tp[1]}"))
        elif part.leader is None or not self._cluster.learn_leader(tp, part.leader, part.leader_broker):
            self._cluster.forget_leader(tp)

    def _on_truncated(self, tp: TopicPartition, assigned: ConsumerPartition, end_offset: int) -> None:
        """Handle a log that was truncated by an unclean election: continue reading at the offset where it diverges."""
        assert assigned.fetch is not None
        if assigned.has_more:
            assigned.is_doubtful = True
            return
        if self._config.auto_offset_reset == "none":
            assigned.is_stuck = True
            text = f"{tp[0]}-{tp[1]} was truncated to {end_offset}, {assigned.fetch.offset} was next: seek"
            self._failed(LogTruncated(ErrorCode.OFFSET_OUT_OF_RANGE, text))
            return
        assigned.seek(FetchPosition(min(assigned.fetch.offset, end_offset)))
