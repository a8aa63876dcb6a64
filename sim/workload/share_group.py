"""The share groups of a run (KIP-932): two groups that read one topic, with more members than partitions.

The members use pykraft's share consumer. They accept, release and reject records, renew locks, and hold records for
longer than their lock. They start, leave, are killed and are cut off from all nodes. Meanwhile partitions of the topic
and of the share coordinators get other leaders. Now and then all members of a group leave, or are cut off, and an
administrator sets or deletes its offsets, or deletes the group. One producer writes plain records, and another one
transactions, some of which it aborts. One of the groups reads only committed records.

The checks of `kraft.sim.check.share_groups` observe the leaders of the share partitions, what the share coordinators
commit, and what clients confirm. At the end, when all writes have ended, the members accept whatever they get. Then
each record must be complete in both groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import trio

from kraft.broker.share_coordinator.records import ShareKey
from kraft.client import Producer
from kraft.client.admin import (
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ElectionType,
    ResourceType,
)
from kraft.client.core.transaction_state import ProducerTransactionState
from kraft.image.partitions import TopicImage
from kraft.sim.check.share_groups.steps import ShareGroupDrained
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis.plan import (
    CUT_OFF_MEMBER,
    END_MEMBER,
    GROW_TOPIC,
    HOLD_RECORDS,
    KILL_MEMBER,
    MOVE_COORDINATOR,
    MOVE_LEADER,
    SET_GROUP_CONFIG,
    SHARE_ADMIN,
    SHARE_ADMIN_VERBS,
    SHARE_GROUP,
    SHARE_GROUP_COMMITTED,
    SHARE_GROUP_OF,
    SHARE_MEMBERS,
    SHARE_OFFSET_VERBS,
    SHARE_PRODUCER,
    START_MEMBER,
    PlannedOperation,
)
from kraft.sim.workload.planned_requests import make_requests
from kraft.sim.workload.share_member import ACCEPTS, FAILURES, LOCK_MS, WAYS, ShareMemberApplication
from kraft.sim.workload.share_offsets import ShareOffsetsWork

TOPIC = "shared"
TOPICS: Mapping[str, int] = MappingProxyType({TOPIC: 2})
"""Topic of the share groups → its number of partitions at the start."""
PARTITIONS_MAX = 4
STATE_TOPIC = "__share_group_state"
GROUPS = (SHARE_GROUP, SHARE_GROUP_COMMITTED)
CONFIGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        SHARE_GROUP: {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)},
        SHARE_GROUP_COMMITTED: {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(LOCK_MS),
            "share.isolation.level": "read_committed",
            "share.delivery.count.limit": "2",
        },
    }
)
"""Group → its settings from the start on."""
LIMITS = ("2", "3", "5", "10")
"""Values of share.delivery.count.limit that the administrator sets."""
WRITING: Mapping[str, Any] = MappingProxyType(
    {"request_timeout_ms": 3_000, "delivery_timeout_ms": 12_000, "max_block_ms": 3_000, "metadata_max_age_ms": 5_000}
)
TRANSACTION_TIMEOUT_MS = 6_000
WRITE_PAUSE_MS, BURST_MAX = 1_600, 12
TRANSACTION_PAUSE_MS, ABORT_ONE_IN = 3_000, 2
AGAIN_MS = 300
AT_ONCE, WHEN_LEFT, WHEN_CUT_OFF = "at once", "when all members have left", "when one member is cut off"
MOMENTS = (AT_ONCE, WHEN_LEFT, WHEN_LEFT, WHEN_CUT_OFF)
"""When the offsets of a group are changed. The amount of the operation selects one."""
LEFT_MS_MAX, CHANGED_MS_MAX, CUT_OFF_MS = 3_000, 10_000, 8_000
"""Maximum time in ms for members to leave and for a change of offsets, and the time for which a member is cut off. The
change waits for the sessions of members that were killed or cut off."""
WRITTEN_MS_MAX, END_MS_MAX = 40_000, 10_000
REST_MS_MAX = 90_000
"""Maximum time in ms from the end of all writes until both groups have processed all records. It covers the sessions of
dead members, the retry of an initialization that failed, and the backlog."""


class ShareGroupWork:
    """All members that a plan starts, and what is written for them."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self._members: dict[int, ShareMemberApplication] = {}
        self._ended: list[ShareMemberApplication] = []
        self._nursery: trio.Nursery | None = None
        self._is_configured = trio.Event()
        self._writers = 2
        self._absent: dict[str, set[int]] = {}
        """Group whose offsets are being changed → numbers of the members that start when that is over."""
        self._is_stopped = False
        self.offsets = ShareOffsetsWork(cluster)

    @property
    def accepted(self) -> int:
        """Number of records whose acceptance was confirmed to a member."""
        return sum(member.accepted for member in (*self._members.values(), *self._ended))

    # work

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Carry out the operations of a plan, then keep running until cancelled."""
        world, start_ns = self.cluster.world, self.cluster.world.now_ns
        self._writing_seam = world.node(SHARE_PRODUCER)
        every = tuple(work)
        requests = [PlannedOperation(0, SET_GROUP_CONFIG, target, -1) for target in range(len(GROUPS))] + [
            operation for operation in every if operation.verb in SHARE_ADMIN_VERBS
        ]
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(make_requests, self.cluster, SHARE_ADMIN, requests, self._request)
            self._nursery.start_soon(self._write)
            self._nursery.start_soon(self._write_transactions)
            for operation in every:
                await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
                if operation.verb not in SHARE_ADMIN_VERBS:
                    self._carry_out(operation)
            await trio.sleep_forever()

    def _carry_out(self, operation: PlannedOperation) -> None:
        assert self._nursery is not None
        chronicle = self.cluster.watch.chronicle
        number = operation.target % len(SHARE_MEMBERS)
        chronicle.end_operation(chronicle.begin_operation(SHARE_MEMBERS[number], operation.verb), "", None)
        member = self._members.get(number)
        absent = self._absent.get(SHARE_GROUP_OF[SHARE_MEMBERS[number]])
        if operation.verb == START_MEMBER and absent is not None:
            absent.add(number)
        elif operation.verb == START_MEMBER:
            self._start(number, WAYS[operation.amount % len(WAYS)])
        elif operation.verb == CUT_OFF_MEMBER:
            self._nursery.start_soon(self._cut_off, SHARE_MEMBERS[number], operation.amount)
        elif member is None:
            return
        elif operation.verb == END_MEMBER:
            member.is_ending = True
        elif operation.verb == KILL_MEMBER:
            self._kill(number)
        elif operation.verb == HOLD_RECORDS:
            member.holds = True

    def _start(self, number: int, way: str) -> None:
        """Start a member. A member that already runs on that host is killed first."""
        assert self._nursery is not None
        if number in self._members:
            self._kill(number)
        member = ShareMemberApplication(self.cluster, (TOPIC,), SHARE_MEMBERS[number], way)
        self._members[number] = member
        self._nursery.start_soon(self._live, member)

    async def _live(self, member: ShareMemberApplication) -> None:
        """Run a member once the groups have their settings."""
        await self._is_configured.wait()
        await member.live()

    def _kill(self, number: int) -> None:
        member = self._members.pop(number)
        self._ended.append(member)
        member.die()

    async def _cut_off(self, host: str, duration_ms: int) -> None:
        """Let nothing pass between this host and the nodes."""
        world, nodes = self.cluster.world, [host_name(node) for node in self.cluster.shape.broker_ids]
        for node in nodes:
            world.partition(host, node)
        await self.cluster.wait_until(lambda: self._is_stopped, duration_ms)
        for node in nodes:
            world.heal(host, node)

    # what is written

    async def _write(self) -> None:
        """Write plain records to random partitions until `finish`."""
        world = self.cluster.world
        random = world.random.stream(SHARE_PRODUCER)
        async with self._producer() as producer:
            while not self._is_stopped:
                with suppress(*FAILURES):
                    await self._write_some(producer, random)
                await world.sleep_ms(1 + random.below(WRITE_PAUSE_MS))
        self._writers -= 1

    async def _write_transactions(self) -> None:
        """Commit and abort transactions until `finish`. A producer with an error is replaced by another one."""
        world = self.cluster.world
        random = world.random.stream(f"{SHARE_PRODUCER} transactions")
        while not self._is_stopped:
            with suppress(*FAILURES):
                await self._transact(random)
            await world.sleep_ms(AGAIN_MS)
        self._writers -= 1

    async def _transact(self, random: Any) -> None:
        """Write transactions until `finish`. Below transaction.version 2 the producer gets its next epoch after each of
        them, because the checks know a transaction by its producer's epoch."""
        world = self.cluster.world
        settings = {"transactional_id": SHARE_PRODUCER, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        async with self._producer(**settings) as producer:
            assert producer._transactions is not None
            machine = producer._transactions.machine
            await producer.init_transactions()
            while not self._is_stopped:
                await producer.begin_transaction()
                machine.require_bump()
                await self._write_some(producer, random)
                if random.one_in(ABORT_ONE_IN):
                    await producer.flush()  # otherwise records that were not sent yet would be dropped
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                if machine.state is ProducerTransactionState.INITIALIZING:
                    await producer.init_transactions()
                await world.sleep_ms(1 + random.below(TRANSACTION_PAUSE_MS))

    def _producer(self, **settings: Any) -> Producer:
        return Producer(
            bootstrap_servers=self.cluster.shape.bootstrap_servers,
            client_id=SHARE_PRODUCER,
            seam=self._writing_seam,
            **{**WRITING, **settings},
        )

    async def _write_some(self, producer: Producer, random: Any) -> None:
        for _ in range(1 + random.below(BURST_MAX)):
            await producer.enqueue(TOPIC, b"", partition=random.below(self._topic.partition_count))

    @property
    def _topic(self) -> TopicImage:
        topic = self.cluster.image.topics.get(TOPIC)
        assert topic is not None
        return topic

    # requests of the administrator

    async def _request(self, cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
        """Send one request. It may fail; only the first settings are repeated until they are set."""
        chronicle = cluster.watch.chronicle
        told = chronicle.begin_operation(SHARE_GROUP, operation.verb)
        if operation.amount < 0:
            await self._configure(admin, GROUPS[operation.target])
        else:
            with suppress(*FAILURES):
                await self._REQUESTS[operation.verb](self, admin, operation)
        chronicle.end_operation(told, "asked", None)

    async def _configure(self, admin: Admin, group: str) -> None:
        """Set the first settings of a group. The members start when both groups have theirs."""
        changes = [ConfigChange(ConfigOperation.SET, key, value) for key, value in CONFIGS[group].items()]
        while True:
            with suppress(*FAILURES):
                await admin.configs.alter(ConfigResource(ResourceType.GROUP, group), changes)
                break
            await self.cluster.world.sleep_ms(AGAIN_MS)
        if group == GROUPS[-1]:
            self._is_configured.set()

    async def _set_group_config(self, admin: Admin, operation: PlannedOperation) -> None:
        value = LIMITS[operation.amount % len(LIMITS)]
        change = ConfigChange(ConfigOperation.SET, "share.delivery.count.limit", value)
        await admin.configs.alter(ConfigResource(ResourceType.GROUP, SHARE_GROUP), [change])

    async def _grow_topic(self, admin: Admin, operation: PlannedOperation) -> None:
        if self._topic.partition_count < PARTITIONS_MAX and not self._is_stopped:
            await admin.topics.add_partitions(TOPIC, self._topic.partition_count + 1)

    async def _move_coordinator(self, admin: Admin, operation: PlannedOperation) -> None:
        await self._move(admin, STATE_TOPIC, operation.amount)

    async def _move_leader(self, admin: Admin, operation: PlannedOperation) -> None:
        await self._move(admin, TOPIC, operation.amount)

    async def _move(self, admin: Admin, name: str, amount: int) -> None:
        """Make another replica the leader of a partition of this topic."""
        topic = self.cluster.image.topics.get(name)
        if topic is not None:
            place = (name, amount % topic.partition_count)
            replicas = tuple(topic.partition(place[1]).replicas)
            await admin.partitions.reassign({place: (*replicas[1:], replicas[0])})
            await admin.partitions.elect_leaders(ElectionType.PREFERRED, [place])

    async def _change_offsets(self, admin: Admin, operation: PlannedOperation) -> None:
        """Change the offsets of a group, or delete the group. Its members start again when that is done."""
        group, when = GROUPS[operation.target % len(GROUPS)], MOMENTS[operation.amount % len(MOMENTS)]
        if when != AT_ONCE:
            self._absent[group] = set()
            self._absent[group].update(await self._let_leave(group, is_one_cut_off=when == WHEN_CUT_OFF))
        until_ns = self.cluster.world.now_ns + CHANGED_MS_MAX * 1_000_000
        position = operation.amount // len(MOMENTS)
        while not self._is_stopped:
            is_over = await self.offsets.change(admin, operation.verb, group, self._topic, position)
            if is_over or when == AT_ONCE or self.cluster.world.now_ns >= until_ns:
                break
            await self.cluster.world.sleep_ms(AGAIN_MS)
        for number in sorted(self._absent.pop(group, ())):
            self._start(number, WAYS[(operation.amount + number) % len(WAYS)])

    async def _let_leave(self, group: str, *, is_one_cut_off: bool) -> list[int]:
        """Let all members of a group leave, except one that is cut off. Return the numbers of those that leave."""
        assert self._nursery is not None
        numbers = [number for number, member in sorted(self._members.items()) if self._works(member, group)]
        if is_one_cut_off and numbers:
            self._nursery.start_soon(self._cut_off, SHARE_MEMBERS[numbers.pop(0)], CUT_OFF_MS)
        leaving = [self._members[number] for number in numbers]
        for member in leaving:
            member.is_ending = True
        await self.cluster.wait_until(lambda: all(member.is_over for member in leaving), LEFT_MS_MAX)
        return numbers

    _REQUESTS: Mapping[str, Any] = MappingProxyType(
        {
            SET_GROUP_CONFIG: _set_group_config,
            GROW_TOPIC: _grow_topic,
            MOVE_COORDINATOR: _move_coordinator,
            MOVE_LEADER: _move_leader,
            **dict.fromkeys(SHARE_OFFSET_VERBS, _change_offsets),
        }
    )

    # the end

    async def finish(self) -> None:
        """End all writes, and let the members accept all records, for a limited time. Report the end offsets to the
        checks, then let all members leave."""
        if self._nursery is None:
            return
        self._is_stopped = True
        if not await self.cluster.wait_until(lambda: not (self._writers or self._absent), WRITTEN_MS_MAX):
            self.cluster.report.fail("L7", "producers or offset changes of the share groups did not end")
        for member in self._members.values():
            member.way, member.holds = ACCEPTS, False
        for group in GROUPS:
            if not any(self._works(member, group) for member in self._members.values()):
                self._start(next(n for n, host in enumerate(SHARE_MEMBERS) if SHARE_GROUP_OF[host] == group), ACCEPTS)
        await self.cluster.wait_until(self._is_done, REST_MS_MAX)
        for drained in self._drained():
            self.cluster.watch.tell(drained)
        members = list(self._members.values())
        for member in members:
            member.is_ending = True
        await self.cluster.wait_until(lambda: all(member.is_over for member in members), END_MS_MAX)

    @staticmethod
    def _works(member: ShareMemberApplication, group: str) -> bool:
        return member.group == group and not (member.is_ending or member.is_over)

    def _is_done(self) -> bool:
        """Return whether each record is complete in both groups."""
        feed = self.cluster.watch.suite.shares
        return not any(next(feed.left_of(drained), None) is not None for drained in self._drained())

    def _drained(self) -> Iterator[ShareGroupDrained]:
        """Yield each partition for each group, with its present leader and end."""
        topic = self._topic
        for index, state in topic.partitions():
            marks = self.cluster.marks(state.leader, TOPIC, index)
            end = 0 if marks is None else marks[0]
            for group in GROUPS:
                key, is_committed = ShareKey(group, topic.topic_id, index), group == SHARE_GROUP_COMMITTED
                yield ShareGroupDrained(key, (TOPIC, index), state.leader, end, is_committed)
