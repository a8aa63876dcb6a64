"""The consumer group of a run whose members use pykraft's consumer, with automatic or explicit commits.

The members subscribe, start, end, die, are cancelled while they poll, and sometimes exceed the maximum poll interval.

The checks of `kraft.sim.check.group_members` observe which records the applications receive and process. They also read
from the network what members send. At the end, when all writes have ended, the group must have processed all records.
Then all members leave, so that nothing is written after the quiescent checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import trio

from kraft.client import Consumer, RebalanceListener
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.client.core.assignors import ASSIGNORS
from kraft.client.core.records import CommitFailed, KafkaError, RebalanceInProgress
from kraft.sim.check.group_members import (
    FinalEndSeen,
    MemberEnded,
    PartitionsAssigned,
    PartitionsRevoked,
    ProcessedRecords,
    RecordsGiven,
    RecordsProcessed,
    member_checks,
)
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.group_observer import GroupObserver
from kraft.sim.nemesis.plan import (
    BE_BUSY,
    CANCEL_POLL,
    CONSUMERS,
    END_MEMBER,
    KILL_MEMBER,
    START_MEMBER,
    TOPIC,
    PlannedOperation,
)
from kraft.wire.error_codes import ErrorCode

GROUP = "consumers"
SESSION_TIMEOUT_MS = 6_000
MAX_POLL_INTERVAL_MS = 8_000
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": 1_500,
        "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
        "auto_commit_interval_ms": 700,
        "request_timeout_ms": 3_000,
        "default_api_timeout_ms": 6_000,
        "metadata_max_age_ms": 20_000,
    }
)
POLL_MS_MAX = 2_000
RECORDS_MAX = 60
WORK_MS_MAX = 80
BUSY_MS = MAX_POLL_INTERVAL_MS + 2_000
AGAIN_MS = 100
END_MS_MAX = 10_000
REST_MS_MAX = 60_000
"""Maximum time in ms from the end of all writes until the group has processed all records. It covers the sessions of
dead members, a rebalance or two, and the backlog."""
TURNS_PER_COMMIT = 3
BY_ITSELF, WAITED_FOR, NOT_WAITED_FOR, WHEN_REVOKED = WAYS = (
    "commits by itself",
    "waits for its commits",
    "does not wait for its commits",
    "commits also what is revoked",
)
STRATEGIES = tuple(ASSIGNORS)


def choices_of(amount: int) -> tuple[str, str]:
    """Return how a member commits, and its assignor, which the amount of its start operation encodes."""
    return WAYS[amount % len(WAYS)], STRATEGIES[amount // len(WAYS) % len(STRATEGIES)]


class ConsumerGroup:
    """All members that a plan starts, and the records that their applications processed."""

    def __init__(self, cluster: SimCluster, partitions: list[TopicPartition]) -> None:
        self.cluster = cluster
        self.partitions = partitions
        self.dealings = ProcessedRecords()
        self.checks = member_checks(self.dealings, SESSION_TIMEOUT_MS)
        self._members: dict[int, _Member] = {}
        self._nursery: trio.Nursery | None = None
        self._last_amount = 0
        self._killed_ms = 0

    def tell(self, observation: Any) -> None:
        self.checks.observe(observation, self.cluster.watch.now_ms)

    @property
    def processed(self) -> int:
        """Number of processed records."""
        return sum(self.dealings.ends.values())

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Carry out the operations of a plan, then keep running until cancelled."""
        world, start_ns = self.cluster.world, self.cluster.world.now_ns
        observer = GroupObserver(CONSUMERS, self.tell, lambda: self.cluster.watch.now_ms, self._leadership_of)
        self.cluster.watch.group_observers.append(observer)
        async with trio.open_nursery() as self._nursery:
            for operation in work:
                await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
                self._carry_out(operation)
            await trio.sleep_forever()

    def _leadership_of(self, node: str) -> object:
        topic = self.cluster.image.topics.get("__consumer_offsets")
        epochs = () if topic is None else tuple(state.leader_epoch for _, state in topic.partitions())
        return node, self.cluster.world.host(node).lives, epochs

    def _carry_out(self, operation: PlannedOperation) -> None:
        chronicle = self.cluster.watch.chronicle
        number = operation.target % len(CONSUMERS)
        chronicle.end_operation(chronicle.begin_operation(CONSUMERS[number], operation.verb), "", None)
        member = self._members.get(number)
        if operation.verb == START_MEMBER:
            self._start(number, operation.amount)
        elif member is None:
            return
        elif operation.verb == END_MEMBER:
            member.is_ending = True
        elif operation.verb == KILL_MEMBER:
            self._killed_ms = self.cluster.watch.now_ms
            member.die()
            del self._members[number]
        elif operation.verb == CANCEL_POLL:
            member.poll_scope.cancel()
        elif operation.verb == BE_BUSY:
            member.is_busy = True

    def _start(self, number: int, amount: int) -> None:
        """Start a member. A member that already runs on that host is killed first."""
        assert self._nursery is not None
        if number in self._members:
            self._killed_ms = self.cluster.watch.now_ms
            self._members[number].die()
        self._last_amount = amount
        self._members[number] = member = _Member(self, CONSUMERS[number], *choices_of(amount))
        self._nursery.start_soon(member.live)

    async def finish(self) -> None:
        """Wait, after all writes have ended, until all records are processed or a time limit is reached. Report the end
        offsets to the checks, then let all members leave."""
        if self._nursery is None or not self._members:
            return
        alive = [member for member in self._members.values() if not (member.is_ending or member.is_over)]
        if not alive:
            self._start(0, self._last_amount)
        await self.cluster.wait_until(self._is_done, REST_MS_MAX)
        for partition in self.partitions:
            self.tell(FinalEndSeen(partition, self._end_of(partition)))
        for member in self._members.values():
            member.is_ending = True
        members = list(self._members.values())
        await self.cluster.wait_until(lambda: all(member.is_over for member in members), END_MS_MAX)

    def _is_done(self) -> bool:
        """Return whether all records are processed and the sessions of all dead members have expired."""
        is_forgotten = self.cluster.watch.now_ms > self._killed_ms + 2 * SESSION_TIMEOUT_MS
        return is_forgotten and all(self.dealings.end(each) >= self._end_of(each) for each in self.partitions)

    def _end_of(self, partition: TopicPartition) -> int:
        """Return the end offset up to which a consumer can read: the leader's high watermark."""
        topic = self.cluster.image.topics.get(partition[0])
        assert topic is not None
        marks = self.cluster.marks(topic.partition(partition[1]).leader, *partition)
        return 0 if marks is None else marks[0]


class _Member(RebalanceListener):
    """One incarnation of a consumer, together with its application."""

    def __init__(self, group: ConsumerGroup, name: str, way: str, strategy: str) -> None:
        self.name = name
        self.is_ending = False
        self.is_busy = False
        self.is_over = False
        self.poll_scope = trio.CancelScope()
        self._group = group
        self._world = group.cluster.world
        self._way = way
        self._strategy = strategy
        self._random = self._world.random.stream(f"{name} {self._world.host(name).lives}")
        self._scope = trio.CancelScope()
        self._is_dead = False
        self._turns = 0
        self._consumer: Consumer | None = None

    def die(self) -> None:
        """End the member without notice, as when its process is killed."""
        self._is_dead = self.is_over = True
        self._group.tell(MemberEnded(self.name))
        self._world.kill(self.name)
        self._scope.cancel()

    async def live(self) -> None:
        """Run until the member is asked to end or is killed. Errors during the teardown of a killed member
        are ignored."""
        if self._is_dead:
            return
        with self._scope:
            try:
                await self._live()
            except Exception as problem:  # noqa: BLE001 - told to the report, unless it is that of a revoked host
                if not self._is_dead:
                    self._report_end(problem)
            except BaseExceptionGroup:
                if not self._is_dead:
                    raise
        if not self._is_dead:
            self._group.tell(MemberEnded(self.name))
        self.is_over = True

    def _report_end(self, problem: Exception) -> None:
        self._group.cluster.report.fail(
            "L8", "a consumer of a group came to its end", member=self.name, why=repr(problem)
        )

    async def _live(self) -> None:
        cluster = self._group.cluster
        seam = self._world.node(self.name)
        async with Consumer(
            bootstrap_servers=cluster.shape.bootstrap_servers,
            client_id=self.name,
            partition_assignment_strategy=self._strategy,
            enable_auto_commit=self._way == BY_ITSELF,
            seam=seam,
            **SETTINGS,
        ) as self._consumer:
            await self._consumer.subscribe([TOPIC], listener=self)
            while not self.is_ending:
                await self._turn(self._consumer)
            self._come_back()

    async def _turn(self, consumer: Consumer) -> None:
        """Poll once, process the records, and commit."""
        self._come_back()
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
            self._group.tell(RecordsGiven(self.name, partition, given))
        await self._world.sleep_ms(BUSY_MS if self.is_busy else 1 + self._random.below(WORK_MS_MAX))
        self.is_busy = False
        self._turns += 1
        if records and not self._turns % TURNS_PER_COMMIT:
            await self._commit(consumer)

    def _excuse(self, problem: KafkaError) -> None:
        """Ignore an error that is not permanent: a failed automatic commit, or a corrupt batch."""
        if not isinstance(problem, (CommitFailed, RebalanceInProgress)) and problem.code != ErrorCode.CORRUPT_MESSAGE:
            raise problem

    def _come_back(self) -> None:
        self._group.tell(RecordsProcessed(self.name))

    async def _commit(self, consumer: Consumer) -> None:
        if self._way == BY_ITSELF:
            return
        self._come_back()
        if self._way == NOT_WAITED_FOR:
            consumer.commit_nowait()
            return
        try:
            await consumer.commit()
        except (CommitFailed, RebalanceInProgress, TimedOut, ClusterUnreachable, *CONNECTION_FAILURES):
            """It may come with the next one, or is not needed any more."""

    # rebalance callbacks of the application

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._group.tell(PartitionsAssigned(self.name, partitions))

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        if self._way == WHEN_REVOKED and self._consumer is not None:
            await self._commit(self._consumer)
        self._let_go(partitions)

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._let_go(partitions)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        if not self._is_dead:
            self._group.tell(PartitionsRevoked(self.name, partitions))
