"""A client's metadata (brokers, topics, leaders and their epochs) and its requests to any broker.

Invariant: while the topic id of a partition stays the same, the leader epoch stored for it never decreases. A response
with an older epoch is ignored (C3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import trio

from kraft.client.connections import CONNECTION_FAILURES, Link, Links, TimedOut, VersionMismatch
from kraft.client.core.configs import parse_bootstrap as parse_bootstrap
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.retriable import RETRIABLE as RETRIABLE
from kraft.client.core.topology import BrokerEndpoint, LeaderAndEpoch
from kraft.seam import Address, DialFailed, DialOutcome, Seam, WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

REQUEST_TIMEOUT_MS = 30_000
METADATA_TIMEOUT_MS = 2_000
RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 1_000


class ClusterUnreachable(Exception):
    """No broker responded within the time allowed. The text names the addresses that were tried. `last` is the failure
    of the last attempt. `is_refused` is true if every address refused every connection."""

    last: Exception | None = None
    is_refused = False


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as in the last successful Metadata response."""

    name: str
    topic_id: UUID | None
    partitions: tuple[int, ...]
    is_internal: bool = False


class Cluster:
    """Connections and metadata of one client. It must be used in one trio run only.

    If every address refuses every connection for `refused_ms`, `ask_any` fails. If `refused_ms` is None, refused
    connections have no separate limit. `may_create_topics` decides whether brokers with automatic topic creation may
    create a requested topic that does not exist."""

    node_kind = "broker"
    """Kind of the nodes that respond, for error texts."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        seam: Seam,
        *,
        client_id: str,
        tls: object | None = None,
        refused_ms: float | None = None,
        may_create_topics: bool = True,
    ) -> None:
        self.seam = seam
        self.links = Links(seam, client_id=client_id, tls=tls)
        self.brokers: dict[int, BrokerEndpoint] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._bootstrap = list(bootstrap)
        self._refused_ms = refused_ms
        self._may_create_topics = may_create_topics
        self._topics: dict[str, TopicMetadata] = {}
        self._leaders: dict[TopicPartition, LeaderAndEpoch] = {}
        self._turn = seam.random.stream("bootstrap").below(len(self._bootstrap))

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic; None if the topic or its id is not known."""
        topic = self._topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_names(self) -> list[str]:
        """Return the names of all known topics, sorted, without Kafka's internal topics."""
        return sorted(name for name, topic in self._topics.items() if not topic.is_internal)

    def names_of(self, topic_ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return the names of those of these topics that are known, by topic id."""
        wanted = set(topic_ids)
        return {one.topic_id: name for name, one in self._topics.items() if one.topic_id in wanted}

    def leader(self, topic_partition: TopicPartition) -> LeaderAndEpoch | None:
        """Return the partition's leader; None if the leader or its address is not known."""
        leader = self._leaders.get(topic_partition)
        return leader if leader is not None and leader.node_id in self.brokers else None

    def forget_leader(self, topic_partition: TopicPartition) -> None:
        """Stop using this leader until metadata names a leader again. The leader epoch stays stored."""
        known = self._leaders.get(topic_partition)
        if known is not None:
            self._leaders[topic_partition] = LeaderAndEpoch(-1, known.epoch)

    def learn_leader(
        self, topic_partition: TopicPartition, leader: LeaderAndEpoch, broker: BrokerEndpoint | None = None
    ) -> bool:
        """Accept a leader from an error response (KIP-951) unless its epoch is older than the stored one. Return True
        if it was accepted and its address is known."""
        known = self._leaders.get(topic_partition)
        if known is not None and leader.epoch < known.epoch:
            return False
        if known is not None and leader.epoch == known.epoch and known.node_id == -1:
            return False
        if broker is not None:
            self.brokers[broker.node_id] = broker
        self._leaders[topic_partition] = leader
        return leader.node_id in self.brokers

    async def link(self, node_id: int, purpose: str, *, learned: Callable[[], None] = lambda: None) -> Link:
        """Return a live connection to a known broker. While that broker does not respond (because it is frozen, for
        example), refresh the metadata from time to time. After each refresh call `learned`, because another broker may
        be the leader by then."""
        address = self.brokers[node_id].address
        live = self.links.live(address, purpose)
        if live is not None:
            return live
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._refresh_now_and_then, learned)
            try:
                link = await self.links.get(address, purpose)
            # re-raised outside of the nursery, so that it is not wrapped in a group
            except (*CONNECTION_FAILURES, WireError, VersionMismatch) as problem:
                failure = problem
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return link

    async def _refresh_now_and_then(self, learned: Callable[[], None]) -> None:
        while True:
            await self.seam.clock.sleep_ms(METADATA_TIMEOUT_MS)
            try:
                await self.refresh(self.topic_names())
            except ClusterUnreachable:
                continue
            learned()

    def candidates(self) -> list[Address]:
        """Return the addresses to try for a request that any broker can answer: known brokers in rotation, then the
        bootstrap addresses."""
        known = [broker.address for _, broker in sorted(self.brokers.items())]
        every = [*known, *(address for address in self._bootstrap if address not in known)]
        self._turn += 1
        split = self._turn % len(every)
        return every[split:] + every[:split]

    async def ask_any(
        self,
        key: ApiKey,
        message: Any,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
        answer_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Any:
        """Send a request to one broker after another until one returns a response that parses. Each broker has
        `answer_ms` to respond. Raise ClusterUnreachable when the timeout is over."""
        backoff_ms: float = RETRY_BACKOFF_MS
        problem: Exception | None = None
        clock = self.seam.clock
        answered_ms = clock.monotonic_ms()
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                for address in self.candidates():
                    try:
                        link = await self.links.get(address, "metadata", timeout_ms=METADATA_TIMEOUT_MS)
                        return await link.request(key, message, timeout_ms=min(timeout_ms, answer_ms))
                    except (*CONNECTION_FAILURES, WireError) as failure:
                        problem = failure
                        if isinstance(failure, TimedOut):
                            self._close_silent(address)
                        if not (isinstance(failure, DialFailed) and failure.outcome is DialOutcome.REFUSED):
                            answered_ms = clock.monotonic_ms()
                if self._refused_ms is not None and clock.monotonic_ms() - answered_ms >= self._refused_ms:
                    unreachable_error = self.unreachable(self._refused_ms, problem)
                    unreachable_error.is_refused = True
                    raise unreachable_error
                await clock.sleep_ms(backoff_ms)
                if self.links.is_closed:
                    raise ClusterUnreachable("the client is closed")
                backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)
        raise self.unreachable(timeout_ms, problem)

    async def ask_controller(self, key: ApiKey, message: Any, *, timeout_ms: float) -> Any:
        """Send a request for the active controller. Any broker forwards it."""
        return await self.ask_any(key, message, timeout_ms=timeout_ms)

    def _close_silent(self, address: Address) -> None:
        """Close the connection on which a request timed out. The next request to this broker must dial, which fails
        sooner than another request on a silent connection."""
        link = self.links.live(address, "metadata")
        if link is not None:
            link.close()

    def unreachable(self, timeout_ms: float, last: Exception | None) -> ClusterUnreachable:
        """Return the error to raise when every attempt failed within this time."""
        tried = ", ".join(str(address) for address in self._bootstrap)
        why = "" if last is None else f"; last: {last}"
        problem = ClusterUnreachable(f"no {self.node_kind} answered within {timeout_ms:g} ms (bootstrap {tried}{why})")
        problem.last = last
        return problem

    async def refresh(
        self, topics: Iterable[str] | None, *, timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> dict[str, ErrorCode]:
        """Request metadata of these topics (None: of all topics) and store it. Return the errors of topics that had
        one."""
        request_class = messages.request_class(ApiKey.METADATA)
        wanted = None
        if topics is not None:
            wanted = tuple({"topic_id": None, "name": name} for name in sorted(set(topics)))
        request = messages.build(request_class, topics=wanted, allow_auto_topic_creation=self._may_create_topics)
        # A frozen or partitioned broker keeps its connections open. Any other broker can name the leaders too, so the
        # timeout is short.
        answer = await self.ask_any(ApiKey.METADATA, request, timeout_ms=timeout_ms, answer_ms=METADATA_TIMEOUT_MS)
        if topics is None:
            there = {str(topic.name) for topic in answer.topics}
            for name in [name for name in self._topics if name not in there]:
                self._forget_topic(name)
        return self._learn(answer)

    async def refresh_ids(self, topic_ids: Iterable[UUID], *, timeout_ms: float = REQUEST_TIMEOUT_MS) -> None:
        """Request metadata of the topics with these ids and store it. Ids that the broker does not know are ignored."""
        wanted = tuple({"topic_id": topic_id, "name": None} for topic_id in sorted(set(topic_ids)))
        request = messages.build(
            messages.request_class(ApiKey.METADATA), topics=wanted, allow_auto_topic_creation=False
        )
        self._learn(await self.ask_any(ApiKey.METADATA, request, timeout_ms=timeout_ms, answer_ms=METADATA_TIMEOUT_MS))

    def _learn(self, answer: Any) -> dict[str, ErrorCode]:
        self.cluster_id = answer.cluster_id
        self.controller_id = int(answer.controller_id)
        self.brokers = {
            int(b.node_id): BrokerEndpoint(int(b.node_id), Address(b.host, int(b.port)), b.rack) for b in answer.brokers
        }
        errors: dict[str, ErrorCode] = {}
        for topic in answer.topics:
            name = str(topic.name)
            code = ErrorCode.of(int(topic.error_code))
            if code is not ErrorCode.NONE:
                errors[name] = code
                continue
            known = self._topics.get(name)
            if known is not None and known.topic_id != topic.topic_id:
                self._forget_topic(name)
            indexes = tuple(sorted(int(p.partition_index) for p in topic.partitions))
            self._topics[name] = TopicMetadata(name, topic.topic_id, indexes, bool(topic.is_internal))
            for partition in topic.partitions:
                leader = LeaderAndEpoch(int(partition.leader_id), int(partition.leader_epoch))
                self._learn_from_metadata((name, int(partition.partition_index)), leader)
        return errors

    def _learn_from_metadata(self, topic_partition: TopicPartition, leader: LeaderAndEpoch) -> None:
        known = self._leaders.get(topic_partition)
        if known is None or leader.epoch >= known.epoch or leader.epoch < 0:
            self._leaders[topic_partition] = leader

    def _forget_topic(self, name: str) -> None:
        self._topics.pop(name, None)
        for topic_partition in [tp for tp in self._leaders if tp[0] == name]:
            del self._leaders[topic_partition]

    async def wait_topic(self, name: str, *, timeout_ms: float = REQUEST_TIMEOUT_MS) -> TopicMetadata:
        """Request the topic's metadata until the topic exists, and return it. When the time is over, raise KafkaError
        with the last error that a broker reported for the topic."""
        backoff_ms: float = RETRY_BACKOFF_MS
        deadline_ms = self.seam.clock.monotonic_ms() + timeout_ms
        code: ErrorCode | None = None
        while True:
            known = self._topics.get(name)
            if known is not None:
                return known
            left_ms = deadline_ms - self.seam.clock.monotonic_ms()
            try:
                code = (await self.refresh([name], timeout_ms=max(left_ms, 1))).get(name)
            except ClusterUnreachable:
                if code is None:
                    raise
                left_ms = 0  # brokers have responded, but not to the last request
            if code is None:
                continue
            if code not in RETRIABLE or left_ms <= 0:
                raise KafkaError(code, f"topic {name} is not available")
            await self.seam.clock.sleep_ms(backoff_ms)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)

    def close(self) -> None:
        self.links.close()
