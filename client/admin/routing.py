"""Whom to ask: any broker, one broker, each broker, the leaders of partitions, the coordinator of a group.

One deadline (`timeout_ms`) covers a call with all its retries; a single request gets a part of it, so that a broker
that hangs does not take all of it. Errors that pass (a leader that moved, a coordinator that still loads) are asked
again after a pause that doubles; all others are raised as `KafkaError`.
Source: coordinators-spec 12.1 and 12.2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Any, TypeVar

import trio

from kraft.client.cluster import RETRIABLE, RETRY_BACKOFF_MS, RETRY_BACKOFF_MS_MAX, Cluster, ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, TimedOut, VersionMismatch
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.topology import Broker
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

Asked = TypeVar("Asked")
Found = TypeVar("Found")

GROUP_KEY = 0
ATTEMPTS_MIN = 3
"""Requests that fit into a call's time though none of them is answered."""

CHANGE_SHARE = 0.9
"""How much of a call's time the controller may take for a change, so that it can still say that it was too little."""

COORDINATOR_MOVES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


def require_success(part: Any, subject: str) -> None:
    """KafkaError if this part of an answer carries an error; the text is the broker's own where there is one."""
    code = ErrorCode.of(int(part.error_code))
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{subject}: {getattr(part, 'error_message', None) or explain(code)}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, in order: most requests are grouped so."""
    grouped: dict[str, list[int]] = {}
    for topic, index in sorted(set(partitions)):
        grouped.setdefault(topic, []).append(index)
    return grouped


def explain(code: ErrorCode) -> str:
    """The name of an error in words."""
    return code.name.lower().replace("_", " ")


class Router:
    """Requests of an admin client, sent to where they belong."""

    def __init__(self, cluster: Cluster, *, timeout_ms: float) -> None:
        self.cluster = cluster
        self.timeout_ms = timeout_ms
        self.request_timeout_ms = int(timeout_ms / ATTEMPTS_MIN)
        self.change_timeout_ms = int(timeout_ms * CHANGE_SHARE)
        self._clock = cluster.seam.clock

    async def ask_any(self, key: ApiKey, /, **fields: Any) -> Any:
        """Ask one broker after another until one answers; brokers forward what belongs to the controller."""
        request = _build(key, fields)
        return await self._patiently(lambda ms: self.cluster.ask_any(key, request, timeout_ms=ms))

    async def refresh(self, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """Learn brokers and leaders anew; gives the error of each topic that had one."""
        wanted = list(topics)
        return await self._patiently(lambda ms: self.cluster.refresh(wanted, timeout_ms=ms))

    async def _patiently(self, ask: Callable[[int], Awaitable[Found]]) -> Found:
        """`ask(timeout in ms)` again when it was in vain: it then begins with another broker."""
        last: Exception | None = None
        for _ in range(ATTEMPTS_MIN):
            try:
                return await ask(self.request_timeout_ms)
            except ClusterUnreachable as problem:
                if problem.is_refused:
                    raise
                last = problem.last
        raise self.cluster.unreachable(self.timeout_ms, last)

    async def ask_controller(self, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any) -> Any:
        """The same, asked again as long as `error_of(answer)` says that there is no active controller."""
        request = _build(key, fields)

        async def ask() -> Any:
            return await self._patiently(lambda ms: self.cluster.ask_controller(key, request, timeout_ms=ms))

        return await self._of_controller(ask, error_of, key.name)

    async def change(self, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any) -> Any:
        """Have the active controller change something. It may take the whole of the call's time: what takes long is
        not asked for twice, for the second answer would be that it is done already."""
        request = _build(key, fields)
        return await self._of_controller(
            lambda: self.cluster.ask_controller(key, request, timeout_ms=self.timeout_ms), error_of, key.name
        )

    async def _of_controller(
        self, ask: Callable[[], Awaitable[Any]], error_of: Callable[[Any], Any], subject: str
    ) -> Any:
        async def attempt() -> Any:
            answer = await ask()
            require_passing(int(error_of(answer)), {ErrorCode.NOT_CONTROLLER})
            return answer

        return await self.retry(attempt, subject)

    async def is_broker(self, node_id: int) -> bool:
        """Whether metadata, asked for anew if need be, names this broker."""
        if node_id not in self.cluster.brokers:
            await self.refresh([])
        return node_id in self.cluster.brokers

    async def ask_once(self, node_id: int, key: ApiKey, /, **fields: Any) -> Any:
        """Ask one broker, once. KafkaError if it is not known; a failed connection is raised."""
        if not await self.is_broker(node_id):
            known = ", ".join(str(number) for number in sorted(self.cluster.brokers)) or "none"
            kind = self.cluster.node_kind
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{kind} {node_id} is not there, or not up (up: {known})")
        link = await self.cluster.link(node_id, "admin")
        return await link.request(key, _build(key, fields), timeout_ms=self.request_timeout_ms)

    async def ask_node(self, node_id: int, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any) -> Any:
        """Ask one broker, again if its connection ends, or if `error_of(answer)` says that it still loads."""

        async def attempt() -> Any:
            answer = await self.ask_once(node_id, key, **fields)
            require_passing(int(error_of(answer)), COORDINATOR_MOVES)
            return answer

        return await self.retry(attempt, f"{key.name} at {self.cluster.node_kind} {node_id}")

    async def ask_at(self, address: Address, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any) -> Any:
        """Ask who listens at an address that metadata does not tell of, as a controller; again as `ask_node` does."""

        async def attempt() -> Any:
            link = await self.cluster.links.get(address, "admin")
            answer = await link.request(key, _build(key, fields), timeout_ms=self.request_timeout_ms)
            require_passing(int(error_of(answer)), COORDINATOR_MOVES)
            return answer

        return await self.retry(attempt, f"{key.name} at {address}")

    async def ask_each(
        self, key: ApiKey, error_of: Callable[[Any], Any], nodes: Iterable[int] | None = None, /, **fields: Any
    ) -> dict[int, Any]:
        """Ask these brokers (None: all) at once; gives each one's answer. One that does not answer is a failure,
        unless all are asked and the cluster gives it up meanwhile."""
        await self.refresh([])
        answers: dict[int, Any] = {}
        failures: list[Exception] = []

        async def ask(node_id: int) -> None:
            try:
                answers[node_id] = await self.ask_node(node_id, key, error_of, **fields)
            except (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError) as failure:
                if nodes is not None or node_id in self.cluster.brokers:
                    failures.append(failure)

        async with trio.open_nursery() as nursery:
            for node_id in sorted(self.cluster.brokers if nodes is None else set(nodes)):
                nursery.start_soon(ask, node_id)
        if failures:
            raise failures[0]
        return dict(sorted(answers.items()))

    async def ask_leaders(
        self,
        wanted: Mapping[TopicPartition, Asked],
        ask: Callable[[int, Mapping[TopicPartition, Asked]], Awaitable[Mapping[TopicPartition, tuple[int, Found]]]],
    ) -> dict[TopicPartition, Found]:
        """Ask the leader of each partition. `ask(leader, its partitions)` gives (error, value) of each; what failed in
        passing is asked again of the leader that then is."""
        found: dict[TopicPartition, Found] = {}
        topics = sorted({topic for topic, _ in wanted})

        async def attempt() -> dict[TopicPartition, Found]:
            refused = await self.refresh(topics)
            for topic, code in refused.items():
                raise KafkaError(code, f"topic {topic}: {explain(code)}")
            missing = {tp: value for tp, value in wanted.items() if tp not in found}
            problem: Passing | None = None
            for node_id, share in self._by_leader(missing).items():
                for tp, (number, value) in (await ask(node_id, share)).items():
                    if number == ErrorCode.NONE:
                        found[tp] = value
                    else:
                        kind = classify(number, RETRIABLE, f"{tp[0]}-{tp[1]}")
                        if isinstance(kind, KafkaError):
                            raise kind
                        problem = kind
            if problem is not None:
                raise problem
            return found

        return await self.retry(attempt, "the leaders' answers") if wanted else {}

    def _by_leader(self, wanted: Mapping[TopicPartition, Asked]) -> dict[int, dict[TopicPartition, Asked]]:
        shares: dict[int, dict[TopicPartition, Asked]] = {}
        for tp, value in wanted.items():
            shares.setdefault(self.leader_of(tp), {})[tp] = value
        return shares

    def leader_of(self, tp: TopicPartition) -> int:
        """Who leads a partition, as `refresh` has told it. KafkaError if there is no such partition, Passing if
        nobody does."""
        topic = self.cluster.topic(tp[0])
        if topic is None or tp[1] not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp[0]}-{tp[1]}")
        leader = self.cluster.leader(tp)
        if leader is None:
            raise Passing(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp[0]}-{tp[1]} has no leader now"))
        return leader.node_id

    async def coordinator(self, group_id: str) -> int:
        """The broker that coordinates a group. For use within `retry`: it raises Passing while there is none."""
        answer = await self.ask_any(ApiKey.FIND_COORDINATOR, key_type=GROUP_KEY, coordinator_keys=(group_id,))
        found = answer.coordinators[0]
        if found.error_code != ErrorCode.NONE:
            subject = f"the coordinator of group {group_id}"
            raise classify(int(found.error_code), COORDINATOR_MOVES, subject, found.error_message)
        node_id = int(found.node_id)
        self.cluster.brokers.setdefault(node_id, Broker(node_id, Address(found.host, int(found.port))))
        return node_id

    async def ask_coordinator(
        self, group_id: str, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any
    ) -> tuple[int, Any]:
        """Ask the coordinator of a group: (its node id, the answer). `error_of(answer)` is the error that decides
        whether to ask again; one that does not pass is left to the caller."""

        async def attempt() -> tuple[int, Any]:
            node_id = await self.coordinator(group_id)
            answer = await self.ask_once(node_id, key, **fields)
            require_passing(int(error_of(answer)), COORDINATOR_MOVES)
            return node_id, answer

        return await self.retry(attempt, f"{key.name} of group {group_id}")

    async def retry(self, attempt: Callable[[], Awaitable[Found]], subject: str) -> Found:
        """Try until it neither fails in passing nor loses its connection. The last failure when the time is over."""
        deadline_ms = self._clock.monotonic_ms() + self.timeout_ms
        backoff_ms: float = RETRY_BACKOFF_MS
        while True:
            problem: Exception
            try:
                return await attempt()
            except Passing as passing:
                problem = passing.error
            except CONNECTION_FAILURES as failure:
                problem = failure
                await self.refresh([])
            if self._clock.monotonic_ms() + backoff_ms > deadline_ms:
                if isinstance(problem, KafkaError):
                    raise problem
                raise TimedOut(f"{subject}: no answer within {self.timeout_ms:g} ms (last: {problem})") from problem
            await self._clock.sleep_ms(backoff_ms)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)


class Passing(Exception):
    """A refusal that may pass; `error` is what to raise when the time is over."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error


def require_passing(code: int, passing: Container[int]) -> None:
    """Passing if the error is one of these; any other is the caller's business."""
    if code in passing:
        raise Passing(KafkaError(ErrorCode.of(code), explain(ErrorCode.of(code))))


def classify(code: int, passing: Container[int], subject: str, message: str | None = None) -> Passing | KafkaError:
    """The error as what to raise for it: Passing if it is one of these, else KafkaError."""
    error = KafkaError(ErrorCode.of(code), f"{subject}: {message or explain(ErrorCode.of(code))}")
    return Passing(error) if code in passing else error


def _build(key: ApiKey, fields: Mapping[str, Any]) -> Any:
    return messages.build(messages.request_class(key), **fields)
