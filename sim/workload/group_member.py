"""One member of a consumer group whose members use pykraft's consumer, together with its application.

The application polls, processes the records, and commits in one of several ways. What it does is told to the checks of
`kraft.sim.check.group_members`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import trio

from kraft.client import Consumer, RebalanceListener
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.client.core.records import CommitFailed, KafkaError, RebalanceInProgress
from kraft.sim.check.consumer_groups.owners import PartitionsOwned
from kraft.sim.check.group_members import (
    MemberEnded,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordsGiven,
    RecordsProcessed,
)
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.cluster import SimCluster
from kraft.wire.error_codes import ErrorCode

POLL_MS_MAX = 2_000
RECORDS_MAX = 60
WORK_MS_MAX = 80
AGAIN_MS, RESTART_MS = 100, 500
TURNS_PER_COMMIT = 3
BY_ITSELF, WAITED_FOR, NOT_WAITED_FOR, WHEN_REVOKED = WAYS = (
    "commits by itself",
    "waits for its commits",
    "does not wait for its commits",
    "commits also what is revoked",
)


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """How a member works: how it commits, its topics (names, or an expression), its consumer's settings, and for how
    many ms it works when it exceeds the maximum poll interval."""

    way: str
    topics: Iterable[str] | str
    settings: Mapping[str, Any]
    busy_ms: int
    retried: frozenset[ErrorCode] = frozenset()
    """Errors after which another member is started in its place, as a supervisor would do."""


class MemberApplication(RebalanceListener):
    """One incarnation of a consumer, together with the application that polls it."""

    def __init__(self, cluster: SimCluster, tell: Callable[[Any], None], name: str, plan: MemberPlan) -> None:
        self.name = name
        self.is_ending = False
        self.is_busy = False
        self.is_over = False
        self.poll_scope = trio.CancelScope()
        self.plan = plan
        self._cluster = cluster
        self._world = cluster.world
        self._tell = tell
        self._random = self._world.random.stream(f"{name} {self._world.host(name).lives}")
        self._scope = trio.CancelScope()
        self._is_dead = False
        self._turns = 0
        self._new_topics: Iterable[str] | str | None = None
        self._consumer: Consumer | None = None

    def die(self) -> None:
        """End the member without notice, as when its process is killed."""
        self._is_dead = self.is_over = True
        self._tell(MemberEnded(self.name))
        self._world.kill(self.name)
        self._scope.cancel()

    async def live(self) -> None:
        """Run until the member is asked to end or is killed. Errors during the teardown of a killed member
        are ignored."""
        if self._is_dead:
            return
        with self._scope:
            try:
                while await self._live_once():
                    self._tell(MemberEnded(self.name))
            except Exception as problem:  # noqa: BLE001 - told to the report, unless it is that of a revoked host
                if not self._is_dead:
                    self._report_end(problem)
            except BaseExceptionGroup:
                if not self._is_dead:
                    raise
        if not self._is_dead:
            self._tell(MemberEnded(self.name))
        self.is_over = True

    def _report_end(self, problem: Exception) -> None:
        self._cluster.report.fail("L8", "a consumer of a group came to its end", member=self.name, why=repr(problem))

    async def _live_once(self) -> bool:
        """Run one consumer until its end. Return whether another one must take its place."""
        try:
            await self._live()
        except KafkaError as problem:
            if problem.code not in self.plan.retried:
                raise
            await self._world.sleep_ms(RESTART_MS)
            return not self.is_ending
        return False

    def change_topics(self, topics: Iterable[str] | str) -> None:
        """Let the application change its subscription before its next poll."""
        self._new_topics = topics

    async def _live(self) -> None:
        seam = self._world.node(self.name)
        async with Consumer(
            bootstrap_servers=self._cluster.shape.bootstrap_servers,
            client_id=self.name,
            enable_auto_commit=self.plan.way == BY_ITSELF,
            seam=seam,
            **self.plan.settings,
        ) as self._consumer:
            await self._consumer.subscribe(self.plan.topics, listener=self)
            while not self.is_ending:
                await self._turn(self._consumer)
            self._come_back()

    async def _turn(self, consumer: Consumer) -> None:
        """Poll once, process the records, and commit."""
        self._come_back()
        if self._new_topics is not None:
            self.plan, self._new_topics = replace(self.plan, topics=self._new_topics), None
            await consumer.subscribe(self.plan.topics, listener=self)
        records: list[Any] = []
        with trio.CancelScope() as self.poll_scope:
            try:
                records = await consumer.poll(records_max=1 + self._random.below(RECORDS_MAX), timeout_ms=POLL_MS_MAX)
            except KafkaError as problem:
                self._excuse(problem)
                await self._world.sleep_ms(AGAIN_MS)
            except (TimedOut, ClusterUnreachable, *CONNECTION_FAILURES):
                await self._world.sleep_ms(AGAIN_MS)
        offsets: dict[TopicPartition, list[int]] = {}
        for record in records:
            offsets.setdefault((record.topic, record.partition), []).append(record.offset)
        for partition, given in offsets.items():
            self._tell(RecordsGiven(self.name, partition, given))
        await self._world.sleep_ms(self.plan.busy_ms if self.is_busy else 1 + self._random.below(WORK_MS_MAX))
        self.is_busy = False
        self._turns += 1
        if records and not self._turns % TURNS_PER_COMMIT:
            await self._commit(consumer)

    def _excuse(self, problem: KafkaError) -> None:
        """Ignore an error that is not permanent: a failed automatic commit, or a corrupt batch."""
        if not isinstance(problem, (CommitFailed, RebalanceInProgress)) and problem.code != ErrorCode.CORRUPT_MESSAGE:
            raise problem

    def _come_back(self) -> None:
        self._tell(RecordsProcessed(self.name))

    async def _commit(self, consumer: Consumer) -> None:
        if self.plan.way == BY_ITSELF:
            return
        self._come_back()
        if self.plan.way == NOT_WAITED_FOR:
            consumer.commit_nowait()
            return
        try:
            await consumer.commit()
        except (CommitFailed, RebalanceInProgress, TimedOut, ClusterUnreachable, *CONNECTION_FAILURES):
            """It may come with the next one, or is not needed any more."""

    # rebalance callbacks of the application

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._tell(PartitionsAssigned(self.name, partitions))
        if self._consumer is not None:
            group = str(self.plan.settings["group_id"])
            self._tell(PartitionsOwned(group, self.name, self._consumer.member_id, partitions))

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        if self.plan.way == WHEN_REVOKED and self._consumer is not None:
            await self._commit(self._consumer)
        self._let_go(partitions)

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._let_go(partitions)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        if not self._is_dead:
            self._tell(PartitionsRevoked(self.name, partitions))
