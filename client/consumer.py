"""The consumer, assigned by hand: it reads the partitions that it is told to.

    async with Consumer(bootstrap_servers="localhost:9092") as consumer:
        await consumer.assign([("orders", 0)], at="earliest")
        async for record in consumer:
            ...

One fetch is in flight per broker; what comes is kept per partition and handed out by `poll` in offset order. Positions
move when records are handed out, so a cancelled `poll` loses nothing. Read-committed filtering: broker-spec 1.10.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import trio

from kraft.client.cluster import RETRIABLE, RETRY_BACKOFF_MS, RETRY_BACKOFF_MS_MAX, Cluster, parse_bootstrap
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.client.core.fetched import decode_fetched
from kraft.client.core.records import ConsumerRecord, KafkaError, TopicPartition
from kraft.client.core.requests import (
    FetchedPartition,
    FetchPosition,
    fetch_request,
    list_offsets_request,
    read_fetch_response,
    read_list_offsets_response,
)
from kraft.client.default_seam import default_seam
from kraft.seam import Seam, WireError, sole_error
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

LATEST, EARLIEST = -1, -2
FETCH_GRACE_MS = 5_000
"""How long after its own wait a fetch may stay unanswered before its connection is given up."""


@dataclass(slots=True, eq=False)
class _Assigned:
    """A partition that is read: `fetch` is the next offset to ask for, `position` the next to hand out."""

    position: int
    fetch: FetchPosition
    leader_epoch: int = -1
    buffered: deque[ConsumerRecord] = field(default_factory=deque)
    generation: int = 0
    high_watermark: int = -1
    read_to: int = 0


class Consumer:
    """See the module. Arguments are Kafka's consumer configs; times in ms, sizes in bytes."""

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        client_id: str = "pykraft-consumer",
        isolation_level: str = "read_uncommitted",
        auto_offset_reset: str = "latest",
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52_428_800,
        max_partition_fetch_bytes: int = 1_048_576,
        queued_records_max: int = 100_000,
        client_rack: str = "",
        tls: object | None = None,
        seam: Seam | None = None,
    ) -> None:
        if isolation_level not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"isolation_level={isolation_level!r}: expected read_uncommitted or read_committed")
        if auto_offset_reset not in ("latest", "earliest", "none"):
            raise ValueError(f"auto_offset_reset={auto_offset_reset!r}: expected latest, earliest or none")
        self._read_committed = isolation_level == "read_committed"
        self._reset = auto_offset_reset
        self._limits: dict[str, int] = {
            "wait_ms": fetch_max_wait_ms,
            "bytes_min": fetch_min_bytes,
            "bytes_max": fetch_max_bytes,
            "partition_bytes_max": max_partition_fetch_bytes,
        }
        self._queued_max = queued_records_max
        self._rack = client_rack
        self._addresses = parse_bootstrap(bootstrap_servers)
        self._client_id = client_id
        self._tls = tls
        self._given_seam = seam
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._fetching: set[int] = set()
        self._arrived = trio.Event()
        self._room = trio.Event()
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._seam = await stack.enter_async_context(default_seam(self._given_seam))
            self._nursery = await stack.enter_async_context(trio.open_nursery())
            self._cluster = Cluster(self._addresses, self._seam, client_id=self._client_id, tls=self._tls)
            stack.callback(self._cluster.close)
            stack.callback(self._nursery.cancel_scope.cancel)
            self._nursery.start_soon(self._run)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stack.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if error is None or sole_error(group) is not sole_error(error):
                raise
            # What the application raised goes on as it is, not wrapped by our nursery: `except KafkaError` works.

    async def assign(self, partitions: Iterable[TopicPartition], *, at: str | int = "earliest") -> None:
        """Read exactly these partitions, from `at`: "earliest", "latest" or an offset. Replaces what was assigned."""
        wanted = list(partitions)
        for topic in sorted({topic for topic, _ in wanted}):
            await self._cluster.wait_topic(topic)
        starts = dict.fromkeys(wanted, at) if isinstance(at, int) else await self.offsets(wanted, at=at)
        self._assigned = {tp: self._at(int(starts[tp])) for tp in wanted}
        self._kick()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at `offset`; what was fetched before is dropped."""
        self._assigned[partition] = self._at(offset, self._assigned[partition].generation + 1)
        self._kick()

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that `poll` may give."""
        return self._assigned[partition].position

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    def _at(self, offset: int, generation: int = 0) -> _Assigned:
        return _Assigned(offset, FetchPosition(offset), generation=generation, read_to=offset)

    async def offsets(
        self, partitions: Iterable[TopicPartition], *, at: str | int = "latest", timeout_ms: int = 30_000
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at "earliest", "latest" or a timestamp in ms (-1 if there is none later)."""
        timestamp = {"earliest": EARLIEST, "latest": LATEST}[at] if isinstance(at, str) else at
        wanted = sorted(set(partitions))
        found: dict[TopicPartition, int] = {}
        deadline_ms = self._seam.clock.monotonic_ms() + timeout_ms
        backoff_ms = RETRY_BACKOFF_MS
        while True:
            await self._ask_offsets([tp for tp in wanted if tp not in found], timestamp, found)
            missing = [tp for tp in wanted if tp not in found]
            if not missing:
                return found
            if self._seam.clock.monotonic_ms() > deadline_ms:
                raise TimedOut(f"no offsets of {missing} within {timeout_ms} ms")
            await self._cluster.refresh({topic for topic, _ in missing})
            await self._seam.clock.sleep_ms(backoff_ms)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)

    async def _ask_offsets(
        self, wanted: Sequence[TopicPartition], timestamp: int, found: dict[TopicPartition, int]
    ) -> None:
        by_leader: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for tp in wanted:
            leader = self._cluster.leader(tp)
            if leader is not None:
                by_leader.setdefault(leader.node_id, {})[tp] = (timestamp, -1)
        for node_id, targets in sorted(by_leader.items()):
            request = list_offsets_request(targets, read_committed=self._read_committed)
            try:
                link = await self._cluster.link(node_id, "offsets")
                answer = await link.request(ApiKey.LIST_OFFSETS, request, timeout_ms=FETCH_GRACE_MS)
            except (*CONNECTION_FAILURES, KeyError):
                continue
            for tp, (code, offset, _) in read_list_offsets_response(answer).items():
                if code is ErrorCode.NONE:
                    found[tp] = offset
                elif code not in RETRIABLE:
                    raise KafkaError(code, f"offsets of {tp[0]}-{tp[1]}")

    async def poll(self, *, records_max: int = 500, timeout_ms: float | None = None) -> list[ConsumerRecord]:
        """Records that have come, at most `records_max`; waits for the first. Empty only when the time is over."""
        with trio.move_on_after(float("inf") if timeout_ms is None else timeout_ms / 1000):
            while not any(a.buffered for a in self._assigned.values()):
                if self._failure is not None:
                    raise self._failure
                await self._arrived.wait()
        return self._take(records_max)

    def _take(self, records_max: int) -> list[ConsumerRecord]:
        taken: list[ConsumerRecord] = []
        for assigned in self._assigned.values():
            while assigned.buffered and len(taken) < records_max:
                record = assigned.buffered.popleft()
                assigned.position = record.offset + 1
                taken.append(record)
            if not assigned.buffered:
                assigned.position = max(assigned.position, assigned.read_to)
        self._kick()
        return taken

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        return (await self.poll(records_max=1))[0]

    # fetching

    def _kick(self) -> None:
        self._room.set()

    def _announce(self) -> None:
        self._arrived.set()
        self._arrived = trio.Event()

    async def _run(self) -> None:
        while True:
            self._room = trio.Event()
            unled = False
            for node_id, partitions in self._by_leader().items():
                if node_id < 0:
                    unled = True
                elif node_id not in self._fetching and partitions:
                    self._fetching.add(node_id)
                    self._nursery.start_soon(self._fetch, node_id, partitions)
            if unled:
                await self._cluster.refresh({topic for topic, _ in self._assigned}, timeout_ms=float("inf"))
                await self._seam.clock.sleep_ms(RETRY_BACKOFF_MS)
            else:
                await self._room.wait()

    def _by_leader(self) -> dict[int, list[TopicPartition]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        if sum(len(a.buffered) for a in self._assigned.values()) >= self._queued_max:
            return by_leader
        for tp in self._assigned:
            leader = self._cluster.leader(tp)
            by_leader.setdefault(-1 if leader is None else leader.node_id, []).append(tp)
        return by_leader

    async def _fetch(self, node_id: int, partitions: list[TopicPartition]) -> None:
        try:
            await self._fetch_once(node_id, partitions)
        except (*CONNECTION_FAILURES, KeyError) as failure:
            for tp in partitions:
                self._cluster.forget_leader(tp)
            link = (
                None
                if node_id not in self._cluster.brokers
                else self._cluster.links.live(self._cluster.brokers[node_id].address, "fetch")
            )
            if isinstance(failure, TimedOut) and link is not None:
                link.close()
            await self._seam.clock.sleep_ms(RETRY_BACKOFF_MS)
        except (KafkaError, WireError) as failure:
            self._failure = failure
            self._announce()
        finally:
            self._fetching.discard(node_id)
            self._kick()

    async def _fetch_once(self, node_id: int, partitions: list[TopicPartition]) -> None:
        asked = {tp: self._assigned[tp] for tp in partitions if tp in self._assigned}
        generations = {tp: a.generation for tp, a in asked.items()}
        positions = {}
        for tp, assigned in asked.items():
            leader = self._cluster.leader(tp)
            positions[tp] = (assigned.fetch, -1 if leader is None else leader.epoch)
        link = await self._cluster.link(node_id, "fetch")
        version = link.version(ApiKey.FETCH)
        request = fetch_request(
            version, positions, read_committed=self._read_committed, rack=self._rack, **self._limits
        )
        code, parts = await link.request_encoded(
            ApiKey.FETCH,
            version,
            [request],
            lambda body: read_fetch_response(version, body),
            timeout_ms=self._limits["wait_ms"] + FETCH_GRACE_MS,
        )
        if code is not ErrorCode.NONE:
            raise KafkaError(code, "the broker refused the fetch")
        resets = []
        for tp, part in parts.items():
            assigned = self._assigned.get(tp)  # type: ignore[assignment]
            if assigned is None or assigned is not asked.get(tp) or assigned.generation != generations[tp]:
                continue
            if not self._accept(tp, assigned, part):
                resets.append(tp)
        if resets:
            await self._reset_positions(resets)

    def _accept(self, tp: TopicPartition, assigned: _Assigned, part: FetchedPartition) -> bool:
        """Take a partition's answer in. False if its position must be reset."""
        if part.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return False
        if part.diverging is not None:
            # The log was cut behind an unclean election: read on from where it parts from what was read (KIP-320).
            self.seek(tp, min(assigned.fetch.offset, part.diverging[1]))
            return True
        if part.code is not ErrorCode.NONE:
            if part.code not in RETRIABLE:
                raise KafkaError(part.code, f"fetching {tp[0]}-{tp[1]}")
            if part.leader is None or not self._cluster.learn_leader(tp, part.leader):
                self._cluster.forget_leader(tp)
            return True
        assigned.high_watermark = part.high_watermark
        records, position = decode_fetched(tp, part, assigned.fetch, read_committed=self._read_committed)
        assigned.fetch = position
        assigned.read_to = position.offset
        assigned.buffered.extend(records)
        if records:
            self._announce()
        elif not assigned.buffered:
            assigned.position = position.offset
        return True

    async def _reset_positions(self, partitions: list[TopicPartition]) -> None:
        if self._reset == "none":
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"positions of {partitions} are outside the log")
        starts: dict[TopicPartition, Any] = dict(await self.offsets(partitions, at=self._reset))
        for tp in partitions:
            if tp in self._assigned:
                self._assigned[tp] = self._at(starts[tp], self._assigned[tp].generation + 1)
