"""Questions to the leaders of partitions, where no partition stands in the way of another.

`Router.ask_leaders` gives all answers or an error. Here each partition has an outcome of its own: what its leader said,
or the error for which it cannot be had.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

import trio

from kraft.client.admin.routing import Passing, Router, classify, explain
from kraft.client.cluster import RETRIABLE, ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode

Asked = TypeVar("Asked")
Found = TypeVar("Found")


class EachLeader(Generic[Asked, Found]):
    """One call: what is wanted of each partition, and what became of it so far. `ask(leader, its partitions)` gives
    (error, value) of each."""

    def __init__(
        self,
        router: Router,
        wanted: Mapping[TopicPartition, Asked],
        ask: Callable[[int, Mapping[TopicPartition, Asked]], Awaitable[Mapping[TopicPartition, tuple[int, Found]]]],
    ) -> None:
        self._router = router
        self._wanted = wanted
        self._ask = ask
        self._outcomes: dict[TopicPartition, Found | KafkaError] = {}
        self._passing: dict[TopicPartition, KafkaError] = {}
        """What last kept a partition from being asked or answering, and may not the next time; an outcome overrules
        it."""
        self._faults: list[ValueError] = []
        """What the caller is to be told, and not of one partition."""

    async def outcomes(self) -> dict[TopicPartition, Found | KafkaError]:
        """Ask until each partition has an outcome or the time is over. The first time all leaders are waited for: that
        may take a request's time more. ClusterUnreachable where no broker answers; ValueError for what no request can
        hold."""
        self._deadline = trio.current_time() + self._router.timeout_ms / 1000
        try:
            await self._router.retry(self._attempt, "the leaders' answers")
        except (KafkaError, ClusterUnreachable):
            if not self._passing:
                raise
            # The time is over, or nobody answers any more; what kept each partition is known.
        return {**self._passing, **self._outcomes}

    async def _attempt(self) -> None:
        with trio.move_on_at(self._deadline if self._passing else float("inf")):
            shares = await self._by_leader({tp: one for tp, one in self._wanted.items() if tp not in self._outcomes})
            async with trio.open_nursery() as nursery:
                for node_id, share in shares.items():
                    nursery.start_soon(self._ask_share, node_id, share)
        if self._faults:
            raise self._faults[0]
        missing = [tp for tp in self._wanted if tp not in self._outcomes]
        if missing:
            raise Passing(self._passing[missing[0]])

    async def _by_leader(self, missing: Mapping[TopicPartition, Asked]) -> dict[int, dict[TopicPartition, Asked]]:
        refused = await self._router.refresh(sorted({topic for topic, _ in missing})) if missing else {}
        shares: dict[int, dict[TopicPartition, Asked]] = {}
        for tp, value in missing.items():
            try:
                if tp[0] in refused:
                    raise KafkaError(refused[tp[0]], f"topic {tp[0]}: {explain(refused[tp[0]])}")
                shares.setdefault(self._router.leader_of(tp), {})[tp] = value
            except Passing as problem:
                self._passing[tp] = problem.error
            except KafkaError as problem:
                self._outcomes[tp] = problem
        return shares

    async def _ask_share(self, node_id: int, share: Mapping[TopicPartition, Asked]) -> None:
        """Ask one leader: then each of its partitions has an outcome, or something that keeps it."""
        time_ms = self._router.request_timeout_ms
        leader = f"its leader, broker {node_id},"
        try:
            with trio.fail_after(time_ms / 1000):
                answers = await self._ask(node_id, share)
        except (*CONNECTION_FAILURES, ClusterUnreachable, KafkaError, trio.TooSlowError) as failure:
            why = f"{leader} does not answer ({str(failure) or f'within {time_ms} ms'})"
            self._passing |= _each(share, ErrorCode.NETWORK_EXCEPTION, why)
        except VersionMismatch as mismatch:
            self._outcomes |= _each(share, ErrorCode.UNSUPPORTED_VERSION, f"{leader} cannot do this ({mismatch})")
        except WireError as damage:
            why = f"{leader} gives an answer that cannot be read ({damage})"
            self._outcomes |= _each(share, ErrorCode.UNKNOWN_SERVER_ERROR, why)
        except ValueError as fault:
            self._faults.append(fault)
        else:
            untold = _each(share.keys() - answers.keys(), ErrorCode.UNKNOWN_SERVER_ERROR, f"{leader} leaves it out")
            self._passing |= untold
            for tp in share.keys() & answers.keys():
                self._take(tp, *answers[tp])

    def _take(self, tp: TopicPartition, number: int, value: Found) -> None:
        problem = None if number == ErrorCode.NONE else classify(number, RETRIABLE, f"{tp[0]}-{tp[1]}")
        if isinstance(problem, Passing):
            self._passing[tp] = problem.error
        else:
            self._outcomes[tp] = value if problem is None else problem


def _each(partitions: Iterable[TopicPartition], code: ErrorCode, why: str) -> dict[TopicPartition, KafkaError]:
    return {(topic, index): KafkaError(code, f"{topic}-{index}: {why}") for topic, index in partitions}
