"""Offsets by time: ListOffsets requests to the leader of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import trio

from kraft.client.cluster import RETRIABLE, Cluster
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.client.core.assigned import EARLIEST, LATEST
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.requests import list_offsets_request, read_list_offsets_response
from kraft.seam import WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

NAMED_TIMES = MappingProxyType({"earliest": EARLIEST, "latest": LATEST})


def timestamp_of(at: str | int) -> int:
    """Convert "earliest", "latest" or a time in ms to a timestamp of ListOffsets. Raise ValueError for other input."""
    if isinstance(at, int):
        if not 0 <= at < 1 << 63:
            raise ValueError(f"{at}: expected earliest, latest or a time in ms since 1970")
        return at
    if at not in NAMED_TIMES:
        raise ValueError(f"{at!r}: expected earliest, latest or a time in ms since 1970")
    return NAMED_TIMES[at]


def valid_offset(offset: int) -> int:
    """Return `offset` if a log can have it. Raise ValueError otherwise."""
    if not 0 <= offset < 1 << 63:
        raise ValueError(f"offset {offset}: expected 0 or more, in 63 bits; see seek_to for earliest and latest")
    return offset


class OffsetLookup:
    """Looks up offsets with the isolation level of its consumer."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = cluster.seam.clock

    async def find(
        self, wanted: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset at or after each partition's timestamp (-1 if there is none). Raise TimedOut on
        timeout, and KafkaError for an error that is not transient."""
        found: dict[TopicPartition, int] = {}
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        pause_ms = self._config.retry_backoff_ms
        await self.ensure_topics(wanted, timeout_ms=limit_ms)
        while True:
            missing = {tp: timestamp for tp, timestamp in wanted.items() if tp not in found}
            await self.ask(missing, found)
            missing = {tp: timestamp for tp, timestamp in missing.items() if tp not in found}
            if not missing:
                return found
            if self._clock.monotonic_ms() >= deadline_ms:
                names = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
                raise TimedOut(f"no offsets of {names} within {limit_ms:g} ms")
            left_ms = deadline_ms - self._clock.monotonic_ms()
            await self.refresh({topic for topic, _ in missing}, timeout_ms=max(left_ms, 1))
            await self._clock.sleep_ms(pause_ms)
            pause_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)

    async def ensure_topics(self, partitions: Iterable[TopicPartition], *, timeout_ms: float) -> None:
        """Request metadata of the topics in this list whose metadata is not known yet."""
        unknown = {topic for topic, _ in partitions if self._cluster.topic(topic) is None}
        if unknown:
            await self._cluster.refresh(unknown, timeout_ms=timeout_ms)

    async def refresh(self, topics: Iterable[str], *, timeout_ms: float) -> None:
        """Request metadata of these topics. Raise KafkaError for a topic with an error that is not transient."""
        errors = await self._cluster.refresh(topics, timeout_ms=timeout_ms)
        for topic, code in errors.items():
            if code not in RETRIABLE:
                raise KafkaError(code, f"topic {topic} is not available")

    async def ask(self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, int]) -> None:
        """Send one request to each known leader and add the returned offsets to `found`. Once all leaders have
        responded, raise KafkaError for an error that is not transient."""
        by_leader: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for tp, timestamp in wanted.items():
            leader = self._cluster.leader(tp)
            if leader is not None:
                by_leader.setdefault(leader.node_id, {})[tp] = (timestamp, -1)
        refused: list[KafkaError] = []
        async with trio.open_nursery() as nursery:
            for node_id, targets in sorted(by_leader.items()):
                nursery.start_soon(self._ask_leader, node_id, targets, found, refused)
        if refused:
            raise refused[0]

    async def _ask_leader(
        self,
        node_id: int,
        targets: Mapping[TopicPartition, tuple[int, int]],
        found: dict[TopicPartition, int],
        refused: list[KafkaError],
    ) -> None:
        request = list_offsets_request(targets, read_committed=self._config.read_committed)
        try:
            link = await self._cluster.link(node_id, "offsets")
            answer = await link.request(
                ApiKey.LIST_OFFSETS, request, timeout_ms=min(self._config.request_timeout_ms, 5_000)
            )
        except (*CONNECTION_FAILURES, WireError, KeyError):
            for tp in targets:
                self._cluster.forget_leader(tp)
            return
        for tp, (code, offset, _) in read_list_offsets_response(answer).items():
            if code is ErrorCode.NONE:
                found[tp] = offset
            elif code not in RETRIABLE:
                refused.append(KafkaError(code, f"offsets of {tp[0]}-{tp[1]}"))
