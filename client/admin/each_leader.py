"""Questions to the leaders of partitions, where no partition stands in the way of another.

`Router.ask_leaders` gives all answers or an error. Here each partition has an outcome of its own: what its leader said,
or the error for which it cannot be had.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from kraft.client.admin.routing import Passing, Router, explain, passing_or_raise
from kraft.client.cluster import RETRIABLE
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError, TopicPartition
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
        """What kept a partition from being asked or answering this time, and may not the next time."""

    async def outcomes(self) -> dict[TopicPartition, Found | KafkaError]:
        """Ask until each partition has an outcome or the time is over. ClusterUnreachable where no broker answers."""
        try:
            await self._router.retry(self._attempt, "the leaders' answers")
        except KafkaError:
            if not self._passing:
                raise
            # The time is over, and the error is one of these.
        return {**self._outcomes, **self._passing}

    async def _attempt(self) -> None:
        missing = {tp: value for tp, value in self._wanted.items() if tp not in self._outcomes}
        self._passing.clear()
        for node_id, share in (await self._by_leader(missing)).items():
            await self._ask_share(node_id, share)
        if self._passing:
            raise Passing(next(iter(self._passing.values())))

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
        try:
            answers = await self._ask(node_id, share)
        except (*CONNECTION_FAILURES, KafkaError) as failure:
            for topic, index in share:
                text = f"{topic}-{index}: its leader, broker {node_id}, does not answer ({failure})"
                self._passing[(topic, index)] = KafkaError(ErrorCode.NETWORK_EXCEPTION, text)
            return
        for tp, (number, value) in answers.items():
            if number == ErrorCode.NONE:
                self._outcomes[tp] = value
                continue
            try:
                self._passing[tp] = passing_or_raise(number, RETRIABLE, f"{tp[0]}-{tp[1]}").error
            except KafkaError as problem:
                self._outcomes[tp] = problem
