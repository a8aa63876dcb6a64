"""Requests to the leaders of partitions in which each partition has its own outcome.

`Router.ask_leaders` returns all results or raises an error. In contrast, `EachLeader` returns an outcome for each
partition: the result from its leader, or the error of that partition. A failed partition does not delay the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

import trio

from kraft.client.admin.routing import Router, TransientError, classify, explain
from kraft.client.cluster import RETRIABLE, ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode

Requested = TypeVar("Requested")
Found = TypeVar("Found")


class EachLeader(Generic[Requested, Found]):
    """One call: the value requested for each partition, and the outcomes so far. `ask(leader, its partitions)` returns
    (error, value) of each partition."""

    def __init__(
        self,
        router: Router,
        wanted: Mapping[TopicPartition, Requested],
        ask: Callable[[int, Mapping[TopicPartition, Requested]], Awaitable[Mapping[TopicPartition, tuple[int, Found]]]],
    ) -> None:
        self._router = router
        self._wanted = wanted
        self._ask = ask
        self._outcomes: dict[TopicPartition, Found | KafkaError] = {}
        self._transient: dict[TopicPartition, KafkaError] = {}
        """The last transient error of each partition without an outcome. An outcome replaces it."""
        self._faults: list[ValueError] = []
        """Errors of the call as a whole, not of one partition."""

    async def outcomes(self) -> dict[TopicPartition, Found | KafkaError]:
        """Send requests until each partition has an outcome or the time is over, and return the outcomes. The first
        round waits for all leaders, so the call may exceed the time by one request. Raise ClusterUnreachable if no
        broker responds. Raise ValueError for a value that does not fit into a request."""
        self._deadline = trio.current_time() + self._router.timeout_ms / 1000
        try:
            await self._router.retry(self._attempt, "the leaders' answers")
        except (KafkaError, ClusterUnreachable):
            if not self._transient:
                raise
            # The time is over or no broker responds any more. Partitions without an outcome get the error that was
            # recorded last.
        return {**self._transient, **self._outcomes}

    async def _attempt(self) -> None:
        with trio.move_on_at(self._deadline if self._transient else float("inf")):
            shares = await self._by_leader({tp: one for tp, one in self._wanted.items() if tp not in self._outcomes})
            async with trio.open_nursery() as nursery:
                for node_id, share in shares.items():
                    nursery.start_soon(self._ask_leader, node_id, share)
        if self._faults:
            raise self._faults[0]
        missing = [tp for tp in self._wanted if tp not in self._outcomes]
        if missing:
            raise TransientError(self._transient[missing[0]])

    async def _by_leader(
        self, missing: Mapping[TopicPartition, Requested]
    ) -> dict[int, dict[TopicPartition, Requested]]:
        refused = await self._router.refresh(sorted({topic for topic, _ in missing})) if missing else {}
        shares: dict[int, dict[TopicPartition, Requested]] = {}
        for tp, value in missing.items():
            try:
                if tp[0] in refused:
                    raise KafkaError(refused[tp[0]], f"topic {tp[0]}: {explain(refused[tp[0]])}")
                shares.setdefault(self._router.leader_of(tp), {})[tp] = value
            except TransientError as problem:
                self._transient[tp] = problem.error
            except KafkaError as problem:
                self._outcomes[tp] = problem
        return shares

    async def _ask_leader(self, node_id: int, share: Mapping[TopicPartition, Requested]) -> None:
        """Send the request to one leader. Afterwards each partition of this leader has an outcome or a transient
        error."""
        time_ms = self._router.request_timeout_ms
        leader = f"its leader, broker {node_id},"
        try:
            with trio.fail_after(time_ms / 1000):
                answers = await self._ask(node_id, share)
        except (*CONNECTION_FAILURES, ClusterUnreachable, KafkaError, trio.TooSlowError) as failure:
            why = f"{leader} does not answer ({str(failure) or f'within {time_ms} ms'})"
            self._transient |= _each(share, ErrorCode.NETWORK_EXCEPTION, why)
        except VersionMismatch as mismatch:
            self._outcomes |= _each(
                share, ErrorCode.UNSUPPORTED_VERSION, f"{leader} does not support the request ({mismatch})"
            )
        except WireError as damage:
            why = f"{leader} sent an answer that does not parse ({damage})"
            self._outcomes |= _each(share, ErrorCode.UNKNOWN_SERVER_ERROR, why)
        except ValueError as fault:
            self._faults.append(fault)
        else:
            untold = _each(
                share.keys() - answers.keys(), ErrorCode.UNKNOWN_SERVER_ERROR, f"{leader} left it out of its answer"
            )
            self._transient |= untold
            for tp in share.keys() & answers.keys():
                self._add_result(tp, *answers[tp])

    def _add_result(self, tp: TopicPartition, number: int, value: Found) -> None:
        problem = None if number == ErrorCode.NONE else classify(number, RETRIABLE, f"{tp[0]}-{tp[1]}")
        if isinstance(problem, TransientError):
            self._transient[tp] = problem.error
        else:
            self._outcomes[tp] = value if problem is None else problem


def _each(partitions: Iterable[TopicPartition], code: ErrorCode, why: str) -> dict[TopicPartition, KafkaError]:
    return {(topic, index): KafkaError(code, f"{topic}-{index}: {why}") for topic, index in partitions}
