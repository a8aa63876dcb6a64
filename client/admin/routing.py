"""Choose the broker for an admin request: any broker, a given one, all brokers, a partition's leader, or the
coordinator of a group or transactional id.

One deadline (`timeout_ms`) covers a call with all its retries. A single request gets only a part of this time, so that
a hanging broker does not use it up. Transient errors (a leader that moved, a coordinator that is still loading) are
retried with a doubling backoff. All other errors are raised as `KafkaError`.
Source: Kafka's KafkaAdminClient, AdminApiDriver.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import trio

from kraft.client.cluster import RETRIABLE, RETRY_BACKOFF_MS, RETRY_BACKOFF_MS_MAX, Cluster, ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, TimedOut, VersionMismatch
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.topology import BrokerEndpoint
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

Requested = TypeVar("Requested")
Found = TypeVar("Found")

GROUP_KEY, TRANSACTION_KEY = 0, 1
"""The two kinds of names that FindCoordinator takes."""
ATTEMPTS_MIN = 3
"""Minimum number of requests that fit into the time of one call if no broker responds."""

CHANGE_SHARE = 0.9
"""Fraction of a call's time that the controller may use for a change. The rest is for its timeout error to arrive in
time."""

_KINDS = MappingProxyType({GROUP_KEY: "group", TRANSACTION_KEY: "transactional id"})

COORDINATOR_MOVES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


def require_success(part: Any, subject: str) -> None:
    """Raise KafkaError if this part of a response has an error code. The error's text is the broker's message, if there
    is one."""
    code = ErrorCode.of(int(part.error_code))
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{subject}: {getattr(part, 'error_message', None) or explain(code)}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions grouped by topic, in order, as most requests need them."""
    grouped: dict[str, list[int]] = {}
    for topic, index in sorted(set(partitions)):
        grouped.setdefault(topic, []).append(index)
    return grouped


def explain(code: ErrorCode) -> str:
    """Return the name of an error in lower-case words."""
    return code.name.lower().replace("_", " ")


class Router:
    """Sends the requests of an admin client to the right broker."""

    def __init__(self, cluster: Cluster, *, timeout_ms: float) -> None:
        self.cluster = cluster
        self.timeout_ms = timeout_ms
        self.request_timeout_ms = int(timeout_ms / ATTEMPTS_MIN)
        self.change_timeout_ms = int(timeout_ms * CHANGE_SHARE)
        self._clock = cluster.seam.clock

    async def ask_any(self, key: ApiKey, /, **fields: Any) -> Any:
        """Send a request to one broker after another until one responds. Brokers forward requests that are for the
        controller."""
        request = _build(key, fields)
        return await self._with_attempts(lambda ms: self.cluster.ask_any(key, request, timeout_ms=ms))

    async def refresh(self, topics: Iterable[str]) -> dict[str, ErrorCode]:
        """Refresh the metadata of the brokers and of these topics. Return the errors of topics that had one."""
        wanted = list(topics)
        return await self._with_attempts(lambda ms: self.cluster.refresh(wanted, timeout_ms=ms))

    async def _with_attempts(self, ask: Callable[[int], Awaitable[Found]]) -> Found:
        """Call `ask(timeout in ms)` until it succeeds. Each attempt starts with another broker."""
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
        """Send a request for the active controller. Retry while `error_of(answer)` is NOT_CONTROLLER."""
        request = _build(key, fields)

        async def ask() -> Any:
            return await self._with_attempts(lambda ms: self.cluster.ask_controller(key, request, timeout_ms=ms))

        return await self._of_controller(ask, error_of, key.name)

    async def change(self, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any) -> Any:
        """Send a change to the active controller. One request may use the whole time of the call. If a slow change were
        sent a second time, the second response would be an error although the change was made."""
        request = _build(key, fields)
        return await self._of_controller(
            lambda: self.cluster.ask_controller(key, request, timeout_ms=self.timeout_ms), error_of, key.name
        )

    async def _of_controller(
        self, ask: Callable[[], Awaitable[Any]], error_of: Callable[[Any], Any], subject: str
    ) -> Any:
        async def attempt() -> Any:
            answer = await ask()
            raise_if_transient(int(error_of(answer)), {ErrorCode.NOT_CONTROLLER})
            return answer

        return await self.retry(attempt, subject)

    async def is_broker(self, node_id: int) -> bool:
        """Whether this is the id of a broker. The metadata is refreshed if it does not contain the id."""
        if node_id not in self.cluster.brokers:
            await self.refresh([])
        return node_id in self.cluster.brokers

    async def ask_once(self, node_id: int, key: ApiKey, /, *, version_min: int = 0, **fields: Any) -> Any:
        """Send one request to this broker. Raise KafkaError if the metadata does not contain the broker. A connection
        failure is raised, not retried. `version_min` is the first version of the request that has all these fields."""
        if not await self.is_broker(node_id):
            known = ", ".join(str(number) for number in sorted(self.cluster.brokers)) or "none"
            kind = self.cluster.node_kind
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{kind} {node_id} is not there, or not up (up: {known})")
        link = await self.cluster.link(node_id, "admin")
        request = _build(key, fields)
        return await link.request(key, request, timeout_ms=self.request_timeout_ms, version_min=version_min)

    async def ask_node(self, node_id: int, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any) -> Any:
        """Send a request to this broker. Retry if the connection fails, or if `error_of(answer)` says that a
        coordinator is still loading."""

        async def attempt() -> Any:
            answer = await self.ask_once(node_id, key, **fields)
            raise_if_transient(int(error_of(answer)), COORDINATOR_MOVES)
            return answer

        return await self.retry(attempt, f"{key.name} at {self.cluster.node_kind} {node_id}")

    async def ask_at(self, address: Address, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any) -> Any:
        """Send a request to the node at this address. The node, such as a controller, need not be in the metadata.
        Retry as in `ask_node`."""

        async def attempt() -> Any:
            link = await self.cluster.links.get(address, "admin")
            answer = await link.request(key, _build(key, fields), timeout_ms=self.request_timeout_ms)
            raise_if_transient(int(error_of(answer)), COORDINATOR_MOVES)
            return answer

        return await self.retry(attempt, f"{key.name} at {address}")

    async def ask_each(
        self, key: ApiKey, error_of: Callable[[Any], Any], nodes: Iterable[int] | None = None, /, **fields: Any
    ) -> dict[int, Any]:
        """Send a request to each of these brokers (None: to all brokers) at once, and return their responses. A broker
        that does not respond makes the call fail, unless `nodes` is None and the cluster has removed that broker in the
        meantime."""
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
        wanted: Mapping[TopicPartition, Requested],
        ask: Callable[[int, Mapping[TopicPartition, Requested]], Awaitable[Mapping[TopicPartition, tuple[int, Found]]]],
    ) -> dict[TopicPartition, Found]:
        """Send a request to the leader of each partition. `ask(leader, its partitions)` returns (error, value) of each
        partition. Partitions with a transient error are requested again, from the leader that they have then."""
        found: dict[TopicPartition, Found] = {}
        topics = sorted({topic for topic, _ in wanted})

        async def attempt() -> dict[TopicPartition, Found]:
            refused = await self.refresh(topics)
            for topic, code in refused.items():
                raise KafkaError(code, f"topic {topic}: {explain(code)}")
            missing = {tp: value for tp, value in wanted.items() if tp not in found}
            problem: TransientError | None = None
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

    def _by_leader(self, wanted: Mapping[TopicPartition, Requested]) -> dict[int, dict[TopicPartition, Requested]]:
        shares: dict[int, dict[TopicPartition, Requested]] = {}
        for tp, value in wanted.items():
            shares.setdefault(self.leader_of(tp), {})[tp] = value
        return shares

    def leader_of(self, tp: TopicPartition) -> int:
        """Return the leader of a partition, from the last `refresh`. Raise KafkaError if there is no such partition,
        TransientError if it has no leader."""
        topic = self.cluster.topic(tp[0])
        if topic is None or tp[1] not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp[0]}-{tp[1]}")
        leader = self.cluster.leader(tp)
        if leader is None:
            raise TransientError(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp[0]}-{tp[1]} has no leader now"))
        return leader.node_id

    async def coordinator(self, name: str, key_type: int = GROUP_KEY) -> int:
        """Return the broker that coordinates a group or a transactional id. Raise TransientError while there is none,
        so use it within `retry`."""
        answer = await self.ask_any(ApiKey.FIND_COORDINATOR, key_type=key_type, coordinator_keys=(name,))
        found = answer.coordinators[0]
        if found.error_code != ErrorCode.NONE:
            subject = f"the coordinator of {_KINDS[key_type]} {name}"
            raise classify(int(found.error_code), COORDINATOR_MOVES, subject, found.error_message)
        node_id = int(found.node_id)
        self.cluster.brokers.setdefault(node_id, BrokerEndpoint(node_id, Address(found.host, int(found.port))))
        return node_id

    async def ask_coordinator(
        self, group_id: str, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any
    ) -> tuple[int, Any]:
        """Send a request to a group's coordinator and return (its node id, the response). Retry if `error_of(answer)`
        is transient; any other error is left to the caller."""
        return await self._ask_coordinator(group_id, GROUP_KEY, key, error_of, fields)

    async def ask_transaction_coordinator(
        self, transactional_id: str, key: ApiKey, error_of: Callable[[Any], Any], /, **fields: Any
    ) -> tuple[int, Any]:
        """Send a request to the coordinator of a transactional id, as `ask_coordinator` does for a group."""
        return await self._ask_coordinator(transactional_id, TRANSACTION_KEY, key, error_of, fields)

    async def _ask_coordinator(
        self, name: str, key_type: int, key: ApiKey, error_of: Callable[[Any], Any], fields: Mapping[str, Any]
    ) -> tuple[int, Any]:
        async def attempt() -> tuple[int, Any]:
            node_id = await self.coordinator(name, key_type)
            answer = await self.ask_once(node_id, key, **fields)
            raise_if_transient(int(error_of(answer)), COORDINATOR_MOVES)
            return node_id, answer

        return await self.retry(attempt, f"{key.name} of {_KINDS[key_type]} {name}")

    async def retry(self, attempt: Callable[[], Awaitable[Found]], subject: str) -> Found:
        """Call `attempt` until it raises neither a transient error nor a connection failure. Raise the last failure
        when the time is over."""
        deadline_ms = self._clock.monotonic_ms() + self.timeout_ms
        backoff_ms: float = RETRY_BACKOFF_MS
        while True:
            problem: Exception
            try:
                return await attempt()
            except TransientError as transient:
                problem = transient.error
            except CONNECTION_FAILURES as failure:
                problem = failure
                await self.refresh([])
            if self._clock.monotonic_ms() + backoff_ms > deadline_ms:
                if isinstance(problem, KafkaError):
                    raise problem
                raise TimedOut(f"{subject}: no answer within {self.timeout_ms:g} ms (last: {problem})") from problem
            await self._clock.sleep_ms(backoff_ms)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)


class TransientError(Exception):
    """A transient error of a broker. When the time for retries is over, `error` is raised instead."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error


def raise_if_transient(code: int, transient: Container[int]) -> None:
    """Raise TransientError if the error is one of `transient`. Any other error is left to the caller."""
    if code in transient:
        raise TransientError(KafkaError(ErrorCode.of(code), explain(ErrorCode.of(code))))


def classify(
    code: int, transient: Container[int], subject: str, message: str | None = None
) -> TransientError | KafkaError:
    """Return an error as an exception: a TransientError if the error is one of `transient`, else a KafkaError."""
    error = KafkaError(ErrorCode.of(code), f"{subject}: {message or explain(ErrorCode.of(code))}")
    return TransientError(error) if code in transient else error


def _build(key: ApiKey, fields: Mapping[str, Any]) -> Any:
    return messages.build(messages.request_class(key), **fields)
