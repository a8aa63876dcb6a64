"""The group MIXED_GROUP of a run, whose members use pykraft's consumer with the consumer protocol (KIP-848), the
classic protocol, or both at the same time.
Two members are static. The members subscribe to names or to a regular expression, and change their subscription while
they run. They are killed, cut off from all nodes, and sometimes exceed the maximum poll interval. Meanwhile topics are
added and grow, settings of the group change, and the coordinator moves.

The checks of `kraft.sim.check.group_members` observe what the applications process, and those of
`kraft.sim.check.consumer_groups` what the coordinators write and answer. At the end, when all writes have ended, the
group must have processed all records, and each partition must have one owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import trio

from kraft.client import KafkaError, Producer
from kraft.client.admin import (
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ElectionType,
    NewTopic,
    ResourceType,
)
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.sim.check.consumer_groups.states import MixedGroupSettled, why_unstable
from kraft.sim.check.group_members import FinalEndSeen, ProcessedRecords, member_checks
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.group_observer import GroupObserver
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis.drawn_mixed_group import MemberChoices
from kraft.sim.nemesis.plan import (
    ADD_TOPIC,
    BE_BUSY,
    CANCEL_POLL,
    CHANGE_SUBSCRIPTION,
    CUT_OFF_MEMBER,
    END_MEMBER,
    GROW_TOPIC,
    KILL_MEMBER,
    MIXED_ADMIN,
    MIXED_ADMIN_VERBS,
    MIXED_GROUP,
    MIXED_MEMBERS,
    MIXED_PRODUCER,
    MOVE_COORDINATOR,
    SET_GROUP_CONFIG,
    START_MEMBER,
    STATIC_MEMBERS,
    PlannedOperation,
)
from kraft.sim.workload.coordinator_states import CoordinatorStates
from kraft.sim.workload.group_member import WAYS, MemberApplication, MemberPlan
from kraft.sim.workload.planned_requests import make_requests
from kraft.wire.error_codes import ErrorCode

TOPICS: Mapping[str, int] = MappingProxyType({"mixed-a": 2, "mixed-b": 1})
"""Topic that exists from the start → its number of partitions."""
NAMES = (*TOPICS, "mixed-c", "mixed-d")
"""Names of all topics of the group; the last ones are added later, or never."""
PARTITIONS_MAX = 5
EVERYTHING = "^mixed-[a-d]"
SUBSCRIPTIONS: tuple[tuple[str, ...] | str, ...] = (EVERYTHING, NAMES, NAMES[:2], NAMES[1:])
ASSIGNORS = (None, "uniform", "range")
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
OFFSETS_TOPIC = "__consumer_offsets"
SESSION_TIMEOUT_MS = 6_000
"""Minimum session timeout: that of classic members, and the smallest value of the group's setting."""
CONFIGS = (
    ("consumer.session.timeout.ms", "6000"),
    ("consumer.session.timeout.ms", "9000"),
    ("consumer.heartbeat.interval.ms", "500"),
    ("consumer.heartbeat.interval.ms", "2500"),
)
MAX_POLL_INTERVAL_MS = 8_000
BUSY_MS = MAX_POLL_INTERVAL_MS + 2_000
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "group_id": MIXED_GROUP,
        "auto_offset_reset": "earliest",
        "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
        "auto_commit_interval_ms": 700,
        "request_timeout_ms": 3_000,
        "default_api_timeout_ms": 6_000,
        "metadata_max_age_ms": 8_000,
    }
)
CLASSIC: Mapping[str, Any] = MappingProxyType(
    {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": 1_500}
)
RETRIED = frozenset({ErrorCode.UNRELEASED_INSTANCE_ID})
"""The member before this one, which has the same instance id, was killed, and its session has not expired yet."""
RETRIED_BY_CLASSIC = RETRIED | {ErrorCode.FENCED_INSTANCE_ID}
"""A static member is also rejected if it has replaced another one during a rebalance, and the coordinator fails before
the new generation is stored: the next coordinator knows only the member that was replaced. It is the same in Kafka."""
WRITING: Mapping[str, Any] = MappingProxyType(
    {"request_timeout_ms": 3_000, "delivery_timeout_ms": 20_000, "max_block_ms": 1_000, "metadata_max_age_ms": 5_000}
)
WRITE_PAUSE_MS, BURST_MAX = 250, 5
FAILURES = (KafkaError, TimedOut, ClusterUnreachable, *CONNECTION_FAILURES)
WRITTEN_MS_MAX, END_MS_MAX = 40_000, 10_000
REST_MS_MAX = 90_000
"""Maximum time in ms from the end of all writes until the group has processed all records. It covers the sessions of
dead members, the discovery of new partitions, some rebalances, and the backlog."""


def plan_of(choices: MemberChoices, host: str) -> MemberPlan:
    """Return how the member works that is started on this host with these choices."""
    settings = dict(SETTINGS)
    retried = RETRIED if choices.is_consumer_protocol else RETRIED_BY_CLASSIC
    if choices.is_consumer_protocol:
        settings |= {"group_protocol": "consumer", "group_remote_assignor": ASSIGNORS[choices.assignor]}
    else:
        settings |= {**CLASSIC, "partition_assignment_strategy": STRATEGIES[choices.assignor]}
    if host in STATIC_MEMBERS:
        settings["group_instance_id"] = f"static-{host}"
    return MemberPlan(WAYS[choices.way], SUBSCRIPTIONS[choices.subscription], settings, BUSY_MS, retried)


class MixedGroup:
    """All members that a plan starts, what is written for them, and the records that their applications processed."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.dealings = ProcessedRecords()
        self.checks = member_checks(self.dealings, SESSION_TIMEOUT_MS)
        self._members: dict[int, MemberApplication] = {}
        self._nursery: trio.Nursery | None = None
        self._killed_ms = 0
        self._last_choices = MemberChoices(is_consumer_protocol=True, way=0, subscription=0, assignor=0)
        self._writes_ended = trio.Event()
        self._is_stopped = False
        self._states = CoordinatorStates(cluster, MIXED_GROUP)

    def tell(self, observation: Any) -> None:
        self.checks.observe(observation, self.cluster.watch.now_ms)
        self.cluster.watch.tell(observation)

    @property
    def processed(self) -> int:
        """Number of processed records."""
        return sum(self.dealings.ends.values())

    # work

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Carry out the operations of a plan, then keep running until cancelled."""
        world, start_ns = self.cluster.world, self.cluster.world.now_ns
        watch = self.cluster.watch
        topics = lambda: self.cluster.image.topics  # noqa: E731
        observer = GroupObserver(MIXED_MEMBERS, self.tell, lambda: watch.now_ms, self._leadership_of, topics)
        watch.group_observers.append(observer)
        every = tuple(work)
        requests = [operation for operation in every if operation.verb in MIXED_ADMIN_VERBS]
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._write)
            self._nursery.start_soon(self._states.watch)
            self._nursery.start_soon(make_requests, self.cluster, MIXED_ADMIN, requests, self._request)
            for operation in every:
                await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
                if operation.verb not in MIXED_ADMIN_VERBS:
                    self._carry_out(operation)
            await trio.sleep_forever()

    def _leadership_of(self, node: str) -> object:
        topic = self.cluster.image.topics.get(OFFSETS_TOPIC)
        epochs = () if topic is None else tuple(state.leader_epoch for _, state in topic.partitions())
        return node, self.cluster.world.host(node).lives, epochs

    def _carry_out(self, operation: PlannedOperation) -> None:
        assert self._nursery is not None
        chronicle = self.cluster.watch.chronicle
        number = operation.target % len(MIXED_MEMBERS)
        chronicle.end_operation(chronicle.begin_operation(MIXED_MEMBERS[number], operation.verb), "", None)
        member = self._members.get(number)
        if operation.verb == START_MEMBER:
            self._start(number, MemberChoices.of(operation.amount))
        elif operation.verb == CUT_OFF_MEMBER:
            self._nursery.start_soon(self._cut_off, MIXED_MEMBERS[number], operation.amount)
        elif member is None:
            return
        elif operation.verb == END_MEMBER:
            member.is_ending = True
        elif operation.verb == KILL_MEMBER:
            self._kill(number)
        elif operation.verb == CANCEL_POLL:
            member.poll_scope.cancel()
        elif operation.verb == BE_BUSY:
            member.is_busy = True
        elif operation.verb == CHANGE_SUBSCRIPTION:
            member.change_topics(SUBSCRIPTIONS[operation.amount % len(SUBSCRIPTIONS)])

    def _start(self, number: int, choices: MemberChoices) -> None:
        """Start a member. A member that already runs on that host is killed first."""
        assert self._nursery is not None
        if number in self._members:
            self._kill(number)
        self._last_choices = choices
        host = MIXED_MEMBERS[number]
        self._members[number] = member = MemberApplication(self.cluster, self.tell, host, plan_of(choices, host))
        self._nursery.start_soon(member.live)

    def _kill(self, number: int) -> None:
        self._killed_ms = self.cluster.watch.now_ms
        self._members.pop(number).die()

    async def _cut_off(self, host: str, duration_ms: int) -> None:
        """Let nothing pass between this host and the nodes."""
        world, nodes = self.cluster.world, [host_name(node) for node in self.cluster.shape.broker_ids]
        for node in nodes:
            world.partition(host, node)
        with trio.move_on_after(duration_ms / 1000):
            await self._writes_ended.wait()
        for node in nodes:
            world.heal(host, node)

    # what is written, and requests of the administrator

    async def _write(self) -> None:
        """Write records to random partitions until `finish`, then wait until all deliveries have ended."""
        world = self.cluster.world
        random = world.random.stream(MIXED_PRODUCER)
        async with Producer(
            bootstrap_servers=self.cluster.shape.bootstrap_servers,
            client_id=MIXED_PRODUCER,
            seam=world.node(MIXED_PRODUCER),
            **WRITING,
        ) as producer:
            while not self._is_stopped:
                places = self._partitions()
                topic, partition = places[random.below(len(places))]
                with suppress(*FAILURES):
                    for _ in range(1 + random.below(BURST_MAX)):
                        await producer.enqueue(topic, b"", partition=partition)
                await world.sleep_ms(1 + random.below(WRITE_PAUSE_MS))
        self._writes_ended.set()

    def _partitions(self) -> list[TopicPartition]:
        """Return the partitions of the group's topics that exist."""
        found = (self.cluster.image.topics.get(name) for name in NAMES)
        return [(topic.name, index) for topic in found if topic is not None for index, _ in topic.partitions()]

    async def _request(self, cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
        """Send one request. It may fail."""
        chronicle = cluster.watch.chronicle
        told = chronicle.begin_operation(MIXED_GROUP, operation.verb)
        with suppress(*FAILURES):
            await self._REQUESTS[operation.verb](self, admin, operation)
        chronicle.end_operation(told, "asked", None)

    async def _grow_topic(self, admin: Admin, operation: PlannedOperation) -> None:
        topic = self.cluster.image.topics.get(NAMES[operation.target % len(NAMES)])
        if topic is not None and topic.partition_count < PARTITIONS_MAX and not self._is_stopped:
            await admin.topics.add_partitions(topic.name, topic.partition_count + 1)

    async def _add_topic(self, admin: Admin, operation: PlannedOperation) -> None:
        missing = [name for name in NAMES if name not in self.cluster.image.topics.names]
        if missing and not self._is_stopped:
            replicas = min(3, self.cluster.shape.brokers)
            await admin.topics.create(NewTopic(missing[0], 1 + operation.amount % 2, replicas))

    async def _set_group_config(self, admin: Admin, operation: PlannedOperation) -> None:
        change = ConfigChange(ConfigOperation.SET, *CONFIGS[operation.amount % len(CONFIGS)])
        await admin.configs.alter(ConfigResource(ResourceType.GROUP, MIXED_GROUP), [change])

    async def _move_coordinator(self, admin: Admin, operation: PlannedOperation) -> None:
        """Make another replica the leader of a partition of the offsets topic."""
        topic = self.cluster.image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            place = (OFFSETS_TOPIC, operation.amount % topic.partition_count)
            replicas = tuple(topic.partition(place[1]).replicas)
            await admin.partitions.reassign({place: (*replicas[1:], replicas[0])})
            await admin.partitions.elect_leaders(ElectionType.PREFERRED, [place])

    _REQUESTS: Mapping[str, Any] = MappingProxyType(
        {
            GROW_TOPIC: _grow_topic,
            ADD_TOPIC: _add_topic,
            SET_GROUP_CONFIG: _set_group_config,
            MOVE_COORDINATOR: _move_coordinator,
        }
    )

    # the end

    async def finish(self) -> None:
        """End all writes, and wait until all records are processed or a time limit is reached. Report the end offsets
        to the checks, then let all members leave."""
        if self._nursery is None:
            return
        self._is_stopped = True
        if not await self.cluster.wait_until(self._writes_ended.is_set, WRITTEN_MS_MAX):
            self.cluster.report.fail("L7", "the producer of the mixed group's records did not end")
        if not any(self._reads_everything(member) for member in self._members.values()):
            self._start(0, self._choices_of_last())
        await self.cluster.wait_until(self._is_done, REST_MS_MAX)
        for partition in self._partitions():
            self.tell(FinalEndSeen(partition, self._end_of(partition)))
        self.cluster.watch.tell(MixedGroupSettled(MIXED_GROUP, self._owners()))
        members = list(self._members.values())
        for member in members:
            member.is_ending = True
        await self.cluster.wait_until(lambda: all(member.is_over for member in members), END_MS_MAX)

    @staticmethod
    def _reads_everything(member: MemberApplication) -> bool:
        return member.plan.topics in SUBSCRIPTIONS[:2] and not (member.is_ending or member.is_over)

    def _choices_of_last(self) -> MemberChoices:
        """Return the choices of the last member, which subscribes to everything."""
        last = self._last_choices
        return MemberChoices(last.is_consumer_protocol, last.way, 0, last.assignor)

    def _is_done(self) -> bool:
        """Return whether the sessions of all dead members have expired, the group is stable, and all records are
        processed."""
        is_forgotten = self.cluster.watch.now_ms > self._killed_ms + 2 * SESSION_TIMEOUT_MS
        if not is_forgotten or why_unstable(self.cluster.watch.suite.groups.ledger, MIXED_GROUP):
            return False
        is_owned = all(len(owners) == 1 for owners in self._owners().values())
        return is_owned and all(self.dealings.end(each) >= self._end_of(each) for each in self._partitions())

    def _owners(self) -> dict[TopicPartition, tuple[str, ...]]:
        held = self.dealings.holdings
        return {
            partition: tuple(host for host in MIXED_MEMBERS if (host, partition) in held)
            for partition in self._partitions()
        }

    def _end_of(self, partition: TopicPartition) -> int:
        """Return the end offset up to which a consumer can read: the leader's high watermark."""
        topic = self.cluster.image.topics.get(partition[0])
        assert topic is not None
        marks = self.cluster.marks(topic.partition(partition[1]).leader, *partition)
        return 0 if marks is None else marks[0]
