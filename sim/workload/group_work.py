"""The consumer group of a run: members that join, assign, commit and read while nodes crash.

By its plan, a member sometimes misbehaves: it leaves, stalls, or rejoins without its member id.

Members speak the protocol themselves, one request at a time, so that their responses are known exactly. All responses
are passed to the checks of `kraft.sim.check.groups`. Offsets rise with each commit of a partition, by any member. At
the end all members stay, and the group must settle. It has one generation and one owner for each partition, and the
coordinator has confirmed this to all members. Then all members leave, so that after the quiescent checks no session
expires and nothing is written.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import trio

from kraft.broker.coordinator.group_coordinators import GroupShard
from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.group.durable import EMPTY_STATE, DurableState
from kraft.broker.group.records import decode_entry
from kraft.broker.shard.transactional import StagedEntry, TransactionEnd
from kraft.client.cluster import Cluster, ClusterUnreachable, parse_bootstrap
from kraft.client.connections import CONNECTION_FAILURES, Link
from kraft.seam import Address
from kraft.sim.check.groups import (
    AssignmentReceived,
    CommitEnded,
    CommitStarted,
    CoordinatorSeen,
    GroupSettled,
    OffsetRead,
    group_checks,
)
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.drawing import draw_group_work
from kraft.sim.nemesis.plan import BE_SILENT, FORGET, LEAVE, MEMBERS, PlannedOperation
from kraft.storage.handles import ColdRead
from kraft.storage.markers import read_marker
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import decode_batch, iter_headers

GROUP = "readers"
INSTANCES: Mapping[str, str] = MappingProxyType({MEMBERS[-1]: "static"})
"""Instance ids of the static members; the others are dynamic."""
REQUEST_TIMEOUT_MS = 15_000
SESSION_TIMEOUT_MS = 6_000
REBALANCE_TIMEOUT_MS = 8_000
PAUSE_MS_MAX = 1_500
BACKOFF_MS = 100
LEAVE_ATTEMPTS = 20
REST_MS_MAX = 40_000
PRANKS_MS = 60_000
"""Time in ms for which members misbehave if the plan does not say when."""
TURNS_PER_LATE_COMMIT = 4
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders\0\0\0\0"
OPEN_OUTCOMES = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors with which a commit may have been written nevertheless."""
ID_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


Work = Mapping[str, Iterable[PlannedOperation]]


def commit_outcome(error: ErrorCode) -> bool | None:
    """Return the outcome of a commit that got this error: True it is written, False it never will be, None unknown."""
    if error is ErrorCode.NONE:
        return True
    return None if error in OPEN_OUTCOMES else False


class CoordinatorError(Exception):
    """Raised with the error that the coordinator answered."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class GroupWork:
    """All members of the run's group, and what they observed."""

    def __init__(self, cluster: SimCluster, partitions: list[TopicPartition], work: Work | None = None) -> None:
        """Create the group. `work` gives the members and their misbehaviour; by default all members exist, with random
        misbehaviour."""
        self.cluster = cluster
        self.world = cluster.world
        self.partitions = partitions
        self.checks = group_checks()
        self.newest_synced = -1
        self.acknowledged: dict[TopicPartition, int] = {}
        self.next_offset = 0
        self.plans = 0
        self.is_quiet = False
        """Whether members have stopped misbehaving."""
        work = draw_group_work(cluster.world.seed, PRANKS_MS) if work is None else work
        self._members = [ProtocolMember(self, name, work[name]) for name in MEMBERS if name in work]

    def tell(self, observation: Any) -> None:
        self.checks.observe(observation, self.world.now_ns // 1_000_000)

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            for member in self._members:
                nursery.start_soon(member.run)

    @property
    def has_settled(self) -> bool:
        """Return whether every member was notified of the same generation, and all partitions have an owner."""
        generations = {member.confirmed_in for member in self._members}
        owned = [partition for member in self._members for partition in member.owned]
        return len(generations) == 1 and None not in generations and sorted(owned) == sorted(self.partitions)

    async def wait_until_settled(self) -> None:
        """Stop the misbehaviour after all faults, and wait until the group has settled."""
        self.is_quiet = True
        if not self._members:
            return
        await self.cluster.wait_until(lambda: self.has_settled, REST_MS_MAX)
        owners = {
            partition: tuple(member.name for member in self._members if partition in member.owned)
            for partition in self.partitions
        }
        self.tell(GroupSettled(GROUP, owners, frozenset(member.confirmed_in for member in self._members)))

    async def leave(self) -> None:
        """Let all members leave, after `run` has ended."""
        for member in self._members:
            await member.leave()

    def compare_coordinators(self) -> None:
        """Compare each coordinator's memory with its log, after all writes have ended."""
        for node_id in self.cluster.shape.broker_ids:
            observer = self.cluster.watch.nodes.get(node_id)
            node = None if observer is None else observer.node.broker
            for shard in () if node is None else node.broker.groups.shards.values():
                if shard.state is ShardState.ACTIVE and shard.machine is not None:
                    self._look_at(node_id, shard)

    def _look_at(self, node_id: int, shard: GroupShard) -> None:
        partition = shard.partition
        assert shard.machine is not None
        if partition.log is not None:
            replayed = _replay(partition.log)
            leads = partition.leader is not None and partition.leader.leader_epoch == shard.leader_epoch
            self.tell(CoordinatorSeen(node_id, partition.index, shard.machine.newest, replayed, leads))


class ProtocolMember:
    """One member of the group. `owned`: partitions that it believes it owns. `confirmed_in`: the generation in which
    the coordinator has answered it since misbehaviour ended."""

    def __init__(self, work: GroupWork, name: str, pranks: Iterable[PlannedOperation]) -> None:
        self.name = name
        self.owned: list[TopicPartition] = []
        self.confirmed_in: int | None = None
        self._work = work
        self._world = work.world
        self._random = work.world.random.stream(self.name)
        self._pranks = deque(pranks)
        self._start_ms = 0
        self._instance_id = INSTANCES.get(name)
        self._member_id = ""
        self._generation = -1
        self._cluster = Cluster(
            parse_bootstrap(work.cluster.shape.bootstrap_servers), self._world.node(self.name), client_id=self.name
        )
        self._coordinator: Address | None = None
        self._coordinator_id: int | None = None
        """Id of the last coordinator that the member has found."""

    async def run(self) -> None:
        self._start_ms = self._now_ms
        while True:
            try:
                await self._live()
            except (*CONNECTION_FAILURES, ClusterUnreachable):
                self._coordinator = None
                await self._world.sleep_ms(BACKOFF_MS)
            except CoordinatorError as refused:
                self._take_error(refused.error)
                await self._world.sleep_ms(1 + self._random.below(BACKOFF_MS))

    def _take_error(self, error: ErrorCode) -> None:
        self._let_go()
        if error in ID_LOST:
            self._member_id = ""
        elif error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None

    def _let_go(self) -> None:
        self.owned, self.confirmed_in = [], None

    async def _live(self) -> None:
        """Join, receive an assignment, and work with it until something happens."""
        self._let_go()
        await self._join()
        for partition in self.owned:
            await self._read(partition)
        while True:
            await self._world.sleep_ms(1 + self._random.below(PAUSE_MS_MAX))
            if self._pranks and not self._work.is_quiet and self._now_ms >= self._start_ms + self._pranks[0].at_ms:
                await self._prank(self._pranks.popleft().verb)
                return
            await self._ask(
                ApiKey.HEARTBEAT,
                group_id=GROUP,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
            )
            if self._work.is_quiet:
                self.confirmed_in = self._generation
            if self.owned:
                partition = self.owned[self._random.below(len(self.owned))]
                if self._random.below(TURNS_PER_LATE_COMMIT) == 0:
                    await self._commit(partition, self._generation - 1)
                _check(await self._commit(partition, self._generation))

    @property
    def _now_ms(self) -> int:
        return self._world.now_ns // 1_000_000

    async def _prank(self, verb: str) -> None:
        """Misbehave: leave, pause for longer than a session, discard the member id, or just rejoin."""
        chronicle = self._work.cluster.watch.chronicle
        chronicle.end_operation(chronicle.begin_operation(self.name, verb), "", None)
        if verb == LEAVE:
            await self._leave()
        elif verb == BE_SILENT:
            await self._world.sleep_ms(SESSION_TIMEOUT_MS + 1_000)
            if self.owned:
                _check(await self._commit(self.owned[0], self._generation))
        elif verb == FORGET:
            self._member_id = ""

    async def _leave(self) -> None:
        self._let_go()
        member = {"member_id": self._member_id, "group_instance_id": self._instance_id}
        await self._ask(ApiKey.LEAVE_GROUP, group_id=GROUP, members=(member,))
        self._member_id = ""

    async def leave(self) -> None:
        """Leave after all work has ended; a failed request is retried a few times."""
        for _ in range(LEAVE_ATTEMPTS):
            try:
                await self._leave()
            except (*CONNECTION_FAILURES, ClusterUnreachable, CoordinatorError):
                self._coordinator = None
                await self._world.sleep_ms(BACKOFF_MS)
            else:
                return

    # requests

    async def _join(self) -> None:
        self._work.cluster.watch.chronicle.rejoins(self._coordinator_id)
        reply = await self._request_join()
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
            reply = await self._request_join()
        _check(reply.error_code)
        self._member_id, self._generation = reply.member_id, reply.generation_id
        assignments = () if reply.skip_assignment else self._assign(reply)
        reply = await self._ask(
            ApiKey.SYNC_GROUP,
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol_name,
            assignments=assignments,
        )
        self._take(reply.assignment)

    async def _request_join(self) -> Any:
        return await self._request(
            ApiKey.JOIN_GROUP,
            group_id=GROUP,
            session_timeout=messages.duration(SESSION_TIMEOUT_MS),
            rebalance_timeout=messages.duration(REBALANCE_TIMEOUT_MS),
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=({"name": "range", "metadata": SUBSCRIPTION},),
        )

    def _assign(self, reply: Any) -> tuple[dict[str, Any], ...]:
        """Make the group leader's plan: distribute the partitions over the members."""
        work = self._work
        work.plans += 1
        plan = f"{self._member_id}/{self._generation}/{work.plans}"
        members = [(member.member_id, member.group_instance_id) for member in reply.members]
        return tuple(
            {
                "member_id": member_id,
                "assignment": json.dumps(
                    {
                        "plan": plan,
                        "for": instance_id or member_id,
                        "partitions": work.partitions[number :: len(members)],
                    }
                ).encode(),
            }
            for number, (member_id, instance_id) in enumerate(members)
        )

    def _take(self, assignment: bytes) -> None:
        told = json.loads(assignment) if assignment else {"plan": None, "for": None, "partitions": []}
        made_for = self._instance_id or self._member_id if told["plan"] is not None else None
        work = self._work
        work.newest_synced = max(work.newest_synced, self._generation)
        assigned = AssignmentReceived(GROUP, made_for or "", self._generation, told["plan"], told["for"])
        work.tell(assigned)
        work.cluster.watch.chronicle.assigned(assigned, self._coordinator_id)
        self.owned = [(topic, index) for topic, index in told["partitions"]]

    async def _commit(self, partition: TopicPartition, generation: int) -> ErrorCode:
        """Commit an offset, sometimes with an old generation, as a delayed request would have."""
        work = self._work
        work.next_offset += 1
        offset, newest = work.next_offset, work.newest_synced
        work.tell(CommitStarted(GROUP, partition, generation, offset))
        row = {"partition_index": partition[1], "committed_offset": offset, "committed_leader_epoch": -1}
        reply = await self._request(
            ApiKey.OFFSET_COMMIT,
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=({"name": partition[0], "partitions": (row,)},),
        )
        error = ErrorCode(int(reply.topics[0].partitions[0].error_code))
        outcome = commit_outcome(error)
        work.tell(CommitEnded(GROUP, partition, generation, offset, outcome, newest))
        if outcome:
            work.acknowledged[partition] = max(offset, work.acknowledged.get(partition, -1))
        return error

    async def _read(self, partition: TopicPartition) -> None:
        floor = self._work.acknowledged.get(partition, -1)
        reply = await self._request(
            ApiKey.OFFSET_FETCH,
            groups=(
                {
                    "group_id": GROUP,
                    "member_id": None,
                    "member_epoch": -1,
                    "topics": ({"name": partition[0], "partition_indexes": (partition[1],)},),
                },
            ),
            require_stable=bool(self._random.below(2)),
        )
        (group,) = reply.groups
        _check(group.error_code)
        row = group.topics[0].partitions[0]
        _check(row.error_code)
        self._work.tell(OffsetRead(GROUP, partition, row.committed_offset, floor))

    async def _ask(self, key: ApiKey, **fields: Any) -> Any:
        reply = await self._request(key, **fields)
        _check(reply.error_code)
        return reply

    async def _request(self, key: ApiKey, **fields: Any) -> Any:
        link = await self._link()
        request = messages.build(messages.request_class(key), **fields)
        return await link.request(key, request, timeout_ms=REQUEST_TIMEOUT_MS)

    async def _link(self) -> Link:
        """Return the link to the coordinator."""
        if self._coordinator is None:
            request = messages.build(
                messages.request_class(ApiKey.FIND_COORDINATOR), key_type=0, coordinator_keys=(GROUP,)
            )
            answer = await self._cluster.ask_any(ApiKey.FIND_COORDINATOR, request, timeout_ms=REQUEST_TIMEOUT_MS)
            (found,) = answer.coordinators
            _check(found.error_code)
            self._coordinator = Address(found.host, found.port)
            self._coordinator_id = int(found.node_id)
        return await self._cluster.links.get(self._coordinator, "group", timeout_ms=REQUEST_TIMEOUT_MS)


def _check(error: Any) -> None:
    code = ErrorCode(int(error))
    if code is not ErrorCode.NONE:
        raise CoordinatorError(code)


def _replay(log: Any) -> DurableState:
    """Return the groups that a replay of the coordinator's log yields; the replay is independent of production's
    code."""
    state = EMPTY_STATE
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = log.read(offset, 1 << 20, log.log_end_offset).read()
        except ColdRead as cold:
            cold.warm()
            cold.adopt()
            continue
        for position, header in iter_headers(data):
            offset = header.next_offset
            marker = read_marker(data, position, header)
            if marker is not None:
                state = state.with_entry(TransactionEnd(header.producer_id, not marker.aborted))
            elif not header.is_control:
                for record in decode_batch(data, position):
                    entry = decode_entry(record.key, record.value)
                    if entry is not None and header.is_transactional:
                        state = state.with_entry(StagedEntry(header.producer_id, record.offset, entry))
                    elif entry is not None:
                        state = state.with_entry(entry)
    return state
