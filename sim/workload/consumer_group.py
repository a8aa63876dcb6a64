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

from kraft.client.core.assignors import ASSIGNORS
from kraft.sim.check.group_members import FinalEndSeen, ProcessedRecords, member_checks
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
from kraft.sim.workload.group_member import WAYS, MemberApplication, MemberPlan

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
BUSY_MS = MAX_POLL_INTERVAL_MS + 2_000
END_MS_MAX = 10_000
REST_MS_MAX = 60_000
"""Maximum time in ms from the end of all writes until the group has processed all records. It covers the sessions of
dead members, a rebalance or two, and the backlog."""
STRATEGIES = tuple(ASSIGNORS)


def choices_of(amount: int) -> tuple[str, str]:
    """Return how a member commits, and its assignor, which the amount of its start operation encodes."""
    return WAYS[amount % len(WAYS)], STRATEGIES[amount // len(WAYS) % len(STRATEGIES)]


def plan_of(amount: int) -> MemberPlan:
    """Return how the member works that is started with this amount."""
    way, strategy = choices_of(amount)
    return MemberPlan(way, (TOPIC,), {**SETTINGS, "partition_assignment_strategy": strategy}, BUSY_MS)


class ConsumerGroup:
    """All members that a plan starts, and the records that their applications processed."""

    def __init__(self, cluster: SimCluster, partitions: list[TopicPartition]) -> None:
        self.cluster = cluster
        self.partitions = partitions
        self.dealings = ProcessedRecords()
        self.checks = member_checks(self.dealings, SESSION_TIMEOUT_MS)
        self._members: dict[int, MemberApplication] = {}
        self._nursery: trio.Nursery | None = None
        self._last_amount = 0
        self._killed_ms = 0

    def tell(self, observation: Any) -> None:
        self.checks.observe(observation, self.cluster.watch.now_ms)
        self.cluster.watch.tell(observation)

    @property
    def processed(self) -> int:
        """Number of processed records."""
        return sum(self.dealings.ends.values())

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Carry out the operations of a plan, then keep running until cancelled."""
        world, start_ns = self.cluster.world, self.cluster.world.now_ns
        watch = self.cluster.watch
        topics = lambda: self.cluster.image.topics  # noqa: E731
        observer = GroupObserver(CONSUMERS, self.tell, lambda: watch.now_ms, self._leadership_of, topics)
        watch.group_observers.append(observer)
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
        self._members[number] = member = MemberApplication(self.cluster, self.tell, CONSUMERS[number], plan_of(amount))
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
