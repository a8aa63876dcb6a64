"""Synchronous: the cluster as one reader or sink sees it, and requests to it: to any broker, to a given broker, to the
leaders of partitions, or to the coordinator of a group.

One timeout (`request_timeout_ms`) covers a call with all its retries. A transient failure (a moved leader, a dead
broker) is retried after a pause that doubles each time. Invariant: the known leader epoch of a partition never
decreases while its topic id stays the same. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from kraft.client.core.records import CommittedOffset, KafkaError, TopicPartition
from kraft.client.core.requests import list_offsets_request
from kraft.client.core.retriable import RETRIABLE
from kraft.client.core.topology import BrokerEndpoint, LeaderAndEpoch
from kraft.client.spark.blocking.answers import KnownTopic as KnownTopic
from kraft.client.spark.blocking.answers import OffsetAt as OffsetAt
from kraft.client.spark.blocking.answers import commit_request, take_offsets
from kraft.client.spark.blocking.link import LinkClosed, LinkFailed, LinkTimedOut, SyncLink, build_request
from kraft.client.spark.blocking.retries import (
    COORDINATOR_MOVES,
    MISSING,
    MISSING_TOPIC_MS,
    BrokerUnreachable,
    ClusterUnreachable,
    Pause,
    RetriableError,
    classify,
)
from kraft.client.spark.settings import ConnectionSettings
from kraft.seam import Address, WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

Found = TypeVar("Found")

METADATA_TIMEOUT_MS = 2_000
"""Milliseconds that one broker has to answer a request that every broker can answer."""
TRY_MS_MIN = 100
"""Minimum timeout of one attempt in ms, however little of the call's timeout remains."""
ATTEMPTS_MIN = 3
"""Minimum number of attempts that fit into a call's timeout. One attempt gets at most the timeout divided by this
number, so that a hung broker does not use all of the timeout."""
_NO_TOPIC = "it does not exist: create it, or correct the name that the options give"
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator: a consumer group and a transactional id."""
MAX_TIMESTAMP = -3
"""Special timestamp in ListOffsets that requests the record with the newest timestamp (KIP-734)."""


class SyncCluster:
    """Connections and metadata of one reader, sink or planner. A context manager that closes all sockets."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.brokers: dict[int, BrokerEndpoint] = {}
        self.topics: dict[str, KnownTopic] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.refreshed_at = float("-inf")
        """time.monotonic() at the last Metadata response."""
        self._links: dict[Address, SyncLink] = {}
        self._failed_at: dict[Address, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all sockets. Later requests connect again."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    # connections

    def link(self, node_id: int, *, timeout_ms: float | None = None) -> SyncLink:
        """Return an open connection to a known broker. Raises KafkaError if the broker is not in the metadata;
        LinkFailed if it cannot be reached."""
        broker = self.brokers.get(node_id)
        if broker is None:
            known = ", ".join(map(str, sorted(self.brokers))) or "none"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not there, or not up (up: {known})")
        return self._link(broker.address, timeout_ms)

    def _link(self, address: Address, timeout_ms: float | None) -> SyncLink:
        live = self._links.get(address)
        if live is None or live.is_closed:
            live = self._links[address] = SyncLink(address, self.settings, timeout_ms=timeout_ms)
        return live

    def request(self, node_id: int, key: ApiKey, message: Any, *, timeout_ms: float | None = None) -> Any:
        """Send a message of the newest class to one broker, without retries, and return its response. Raises KafkaError
        if the broker is not in the metadata, LinkFailed if it does not respond."""
        wait_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        return self.link(node_id, timeout_ms=wait_ms).request(key, message, timeout_ms=wait_ms)

    def request_any(self, key: ApiKey, message: Any, *, timeout_ms: float | None = None) -> Any:
        """Send a request to one broker after another until one responds. Raises ClusterUnreachable after the
        timeout."""
        pause = self._pause(timeout_ms)
        failures: dict[Address, Exception] = {}
        while True:
            for address in self._candidates():
                if failures and pause.left_ms <= 0:
                    break
                each_ms = max(TRY_MS_MIN, min(pause.left_ms, METADATA_TIMEOUT_MS))
                try:
                    link = self._link(address, each_ms)
                    return link.request(key, message, timeout_ms=each_ms)
                except (LinkFailed, WireError) as failure:
                    failures[address] = failure
                    self._failed_at[address] = time.monotonic()
            if not pause.once_more():
                raise self._unreachable(failures, pause.total_ms)

    def _candidates(self) -> list[Address]:
        """Return all addresses in the order to try them: those without a failure, with open connections first; then the
        failed ones, the oldest failure first."""
        known = [broker.address for _, broker in sorted(self.brokers.items())]
        every = [*known, *(address for address in self.settings.bootstrap if address not in known)]
        live = {address for address, link in self._links.items() if not link.is_closed}
        return sorted(every, key=lambda address: (self._failed_at.get(address, 0.0), address not in live))

    def _unreachable(self, failures: Mapping[Address, Exception], within_ms: float) -> ClusterUnreachable:
        advertised = {broker.address: broker.node_id for broker in self.brokers.values()}
        why = [
            f"broker {advertised[address]} at its advertised address: {failure}"
            if address in advertised
            else str(failure)
            for address, failure in failures.items()
        ]
        return ClusterUnreachable(self.settings.bootstrap_servers, "; ".join(why), within_ms)

    def broker_unreachable(self, failure: LinkFailed, within_ms: float) -> BrokerUnreachable:
        """Return the error to raise when the only broker that can answer did not respond within this time."""
        names = [f"broker {b.node_id}" for b in self.brokers.values() if b.address == failure.address]
        return BrokerUnreachable(self.settings.bootstrap_servers, names[0] if names else "a broker", failure, within_ms)

    # metadata

    def refresh(self, topics: Iterable[str] | None, *, timeout_ms: float | None = None) -> dict[str, ErrorCode]:
        """Request metadata of the brokers and these topics (None: all topics), and store it. Return the error of each
        topic that has one. A topic that does not exist according to the response is removed."""
        wanted = None
        if topics is not None:
            wanted = tuple({"topic_id": None, "name": name} for name in sorted(set(topics)))
        request = build_request(ApiKey.METADATA, topics=wanted, allow_auto_topic_creation=False)
        answer = self.request_any(ApiKey.METADATA, request, timeout_ms=timeout_ms)
        if topics is None:
            there = {str(topic.name) for topic in answer.topics}
            for name in self.topics.keys() - there:
                del self.topics[name]
        self.cluster_id = answer.cluster_id
        self.controller_id = int(answer.controller_id)
        self.brokers = {
            int(b.node_id): BrokerEndpoint(int(b.node_id), Address(b.host, int(b.port)), b.rack) for b in answer.brokers
        }
        self.refreshed_at = time.monotonic()
        return self._learn_topics(answer)

    def _learn_topics(self, answer: Any) -> dict[str, ErrorCode]:
        errors: dict[str, ErrorCode] = {}
        for topic in answer.topics:
            name = str(topic.name)
            code = ErrorCode.of(int(topic.error_code))
            if code is ErrorCode.NONE:
                self._learn_topic(name, topic)
                continue
            errors[name] = code
            if code in MISSING:
                self.topics.pop(name, None)
        return errors

    def _learn_topic(self, name: str, topic: Any) -> None:
        known = self.topics.get(name)
        before = known.leaders if known is not None and known.topic_id == topic.topic_id else {}
        leaders: dict[int, LeaderAndEpoch] = {}
        for partition in topic.partitions:
            index = int(partition.partition_index)
            reported = LeaderAndEpoch(int(partition.leader_id), int(partition.leader_epoch))
            older = before.get(index)
            leaders[index] = reported if older is None or reported.epoch < 0 or reported.epoch >= older.epoch else older
        self.topics[name] = KnownTopic(name, topic.topic_id, dict(sorted(leaders.items())), bool(topic.is_internal))

    def wait_topics(self, names: Iterable[str], *, timeout_ms: float | None = None) -> dict[str, KnownTopic]:
        """Request the metadata of these topics, and return it. Raises KafkaError for a topic that still does not exist
        after MISSING_TOPIC_MS, or that this client may not describe."""
        wanted = sorted(set(names))

        def attempt(wait_ms: float) -> dict[str, KnownTopic]:
            for name, code in self.refresh(wanted, timeout_ms=wait_ms).items():
                raise classify(code, RETRIABLE, f"topic {name}", _NO_TOPIC if code in MISSING else None)
            return {name: self.topics[name] for name in wanted}

        return self.retry(attempt, timeout_ms=timeout_ms) if wanted else {}

    def leader_of(self, topic_partition: TopicPartition) -> LeaderAndEpoch:
        """Return the partition's leader in the newest metadata. Raises RetriableError if the partition is not in the
        metadata, or has no leader."""
        name, index = topic_partition
        topic = self.topics.get(name)
        leader = None if topic is None else topic.leaders.get(index)
        if leader is None:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
            raise RetriableError(error)
        if leader.node_id not in self.brokers:
            text = f"{name}-{index} has no leader now: start a broker that holds it, or read other partitions only"
            raise RetriableError(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text))
        return leader

    def assume_leader(self, name: str, topic_id: UUID, partition: int, leader: BrokerEndpoint, epoch: int) -> None:
        """Store the leader that a planner found for a partition, so that a task's first request goes directly to that
        leader."""
        self.brokers.setdefault(leader.node_id, leader)
        self.topics.setdefault(name, KnownTopic(name, topic_id, {partition: LeaderAndEpoch(leader.node_id, epoch)}))

    def learn_leader(
        self, topic_partition: TopicPartition, leader: LeaderAndEpoch, broker: BrokerEndpoint | None = None
    ) -> bool:
        """Store the leader that an error response names (KIP-951), if its epoch is newer than the known one. Return
        True if the new leader's address is known."""
        topic = self.topics.get(topic_partition[0])
        known = None if topic is None else topic.leaders.get(topic_partition[1])
        if topic is None or known is None or leader.epoch <= known.epoch:
            return False
        if broker is not None:
            self.brokers[broker.node_id] = broker
        leaders = {**topic.leaders, topic_partition[1]: leader}
        self.topics[topic.name] = KnownTopic(topic.name, topic.topic_id, leaders, topic.is_internal)
        return leader.node_id in self.brokers

    # offsets

    def list_offsets(
        self, targets: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Request an offset of each partition from its leader: EARLIEST, LATEST, MAX_TIMESTAMP, or a time in ms. Each
        leader gets one request.

        For a time, the offset is that of the first record at or after it. With `read_committed`, LATEST is the last
        stable offset, otherwise the high watermark. Raises KafkaError if a partition does not exist; ClusterUnreachable
        if a leader cannot be reached."""
        found: dict[TopicPartition, OffsetAt] = {}
        topics = sorted({topic for topic, _ in targets})
        is_first = True

        def attempt(wait_ms: float) -> dict[TopicPartition, OffsetAt]:
            nonlocal is_first
            if not is_first or any(name not in self.topics for name in topics):
                for name, code in self.refresh(topics, timeout_ms=wait_ms).items():
                    raise classify(code, RETRIABLE, f"topic {name}")
            is_first = False
            missing = {tp: target for tp, target in targets.items() if tp not in found}
            problem = self._request_leaders(missing, read_committed, wait_ms, found)
            if problem is not None:
                raise problem
            return found

        return self.retry(attempt, timeout_ms=timeout_ms) if targets else {}

    def _request_leaders(
        self,
        targets: Mapping[TopicPartition, int],
        read_committed: bool,
        wait_ms: float,
        found: dict[TopicPartition, OffsetAt],
    ) -> RetriableError | LinkFailed | None:
        """Send the requests to all leaders at once, then receive the responses and add their offsets to `found`. Return
        a transient failure, if there was one."""
        shares: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        problem: RetriableError | LinkFailed | None = None
        for tp, target in targets.items():
            try:
                leader = self.leader_of(tp)
            except RetriableError as unknown:
                problem = unknown
            else:
                shares.setdefault(leader.node_id, {})[tp] = (target, leader.epoch)
        asked = []
        for node_id, share in shares.items():
            try:
                link = self.link(node_id, timeout_ms=wait_ms)
                request = list_offsets_request(share, read_committed=read_committed)
                asked.append((link, link.send_message(ApiKey.LIST_OFFSETS, request, timeout_ms=wait_ms)))
            except LinkFailed as failure:
                problem = failure
        for link, ticket in asked:
            try:
                answer = link.receive_message(ticket)
            except LinkFailed as failure:
                problem = failure
            else:
                problem = take_offsets(answer, found) or problem
        return problem

    # coordinators

    def find_coordinator(self, key: str, *, kind: int = GROUP, timeout_ms: float | None = None) -> int:
        """Return the coordinator of a group, or, with key type TRANSACTION, of a transactional id. Raises KafkaError if
        the broker denies the request."""

        def attempt(wait_ms: float) -> int:
            request = build_request(ApiKey.FIND_COORDINATOR, key_type=kind, coordinator_keys=(key,))
            found = self.request_any(ApiKey.FIND_COORDINATOR, request, timeout_ms=wait_ms).coordinators[0]
            code = ErrorCode.of(int(found.error_code))
            if code is not ErrorCode.NONE:
                raise classify(code, COORDINATOR_MOVES, f"the coordinator of {key}", found.error_message)
            node_id = int(found.node_id)
            self.brokers.setdefault(node_id, BrokerEndpoint(node_id, Address(found.host, int(found.port))))
            return node_id

        return self.retry(attempt, timeout_ms=timeout_ms)

    def offset_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit a group's offsets from outside of the group. Return the coordinator's error code of each partition
        (UNKNOWN_MEMBER_ID if the group has live members). Raises ClusterUnreachable if no coordinator responds."""

        def attempt(wait_ms: float) -> dict[TopicPartition, ErrorCode]:
            node_id = self.find_coordinator(group_id, timeout_ms=wait_ms)
            answer = self.request(node_id, ApiKey.OFFSET_COMMIT, commit_request(group_id, offsets), timeout_ms=wait_ms)
            codes = {
                (str(topic.name), int(part.partition_index)): ErrorCode.of(int(part.error_code))
                for topic in answer.topics
                for part in topic.partitions
            }
            for code in codes.values():
                if code in COORDINATOR_MOVES:
                    raise classify(code, COORDINATOR_MOVES, f"group {group_id}")
            return codes

        return self.retry(attempt, timeout_ms=timeout_ms)

    # retries

    def retry(self, attempt: Callable[[float], Found], *, timeout_ms: float | None = None) -> Found:
        """Call `attempt` until it succeeds, for `timeout_ms` (None: the request timeout). Its argument is the timeout
        of that one attempt in ms.

        An attempt is repeated when it raises RetriableError or loses its connection. After a lost connection the
        metadata is refreshed first. After the timeout the last failure is raised, as KafkaError or ClusterUnreachable.
        """
        pause = self._pause(timeout_ms)
        while True:
            problem: RetriableError | LinkFailed | ClusterUnreachable
            try:
                return attempt(max(TRY_MS_MIN, min(pause.left_ms, pause.total_ms / ATTEMPTS_MIN)))
            except (RetriableError, LinkClosed, LinkTimedOut, ClusterUnreachable) as failure:
                problem = failure
            is_over = isinstance(problem, RetriableError) and problem.missing and pause.passed_ms >= MISSING_TOPIC_MS
            if is_over or not pause.once_more():
                raise self.final(problem, pause.total_ms)
            if isinstance(problem, LinkFailed):
                with contextlib.suppress(ClusterUnreachable):
                    self.refresh([], timeout_ms=pause.left_ms)

    def final(self, problem: RetriableError | LinkFailed | ClusterUnreachable, total_ms: float) -> Exception:
        """Return the exception to raise for a failure that persisted until this timeout."""
        if isinstance(problem, RetriableError):
            return problem.error
        if isinstance(problem, LinkFailed):
            return self.broker_unreachable(problem, total_ms)
        return problem.within(total_ms)

    def _pause(self, timeout_ms: float | None) -> Pause:
        return Pause(self.settings.request_timeout_ms if timeout_ms is None else timeout_ms)
