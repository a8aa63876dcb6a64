"""Two clients (the registrars) that change the same few topics and committed offsets at the same time, so that the
answers can be checked for linearizability.

They create topics, delete them, add partitions, and validate such requests. They also commit and fetch offsets of
groups without members. Their histories must be linearizable (R20, G3b).

Each request is sent at most once, and recorded from its call to its return;
kraft.sim.check.histories.metadata_histories explains the records. At the end, when the cluster is healthy, all values
are read once more, so that the loss of the last change is noticed. The plan changes names regularly, because only a
short history can be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from uuid import UUID

from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC
from kraft.broker.shard.placement import partition_of
from kraft.client.cluster import Cluster, ClusterUnreachable, parse_bootstrap
from kraft.client.connections import CONNECTION_FAILURES
from kraft.seam import Address
from kraft.sim.check.histories.linearizability import Call, parted
from kraft.sim.check.histories.metadata_histories import HistoryChecks, OffsetHistory, TopicHistory, calls_of_request
from kraft.sim.check.histories.metadata_models import (
    ControllerAnswer,
    Create,
    Delete,
    Grow,
    ReadRegister,
    WriteRegister,
)
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.chronicle import Chronicle
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import (
    COMMIT,
    CREATE,
    CREATE_PARTITIONS,
    DELETE,
    DELETE_BY_ID,
    FETCH,
    OFFSET_VERBS,
    PARTITIONS,
    REGISTRARS,
    TOPIC,
    VALIDATE_CREATE,
    VALIDATE_PARTITIONS,
    PlannedOperation,
)
from kraft.sim.workload.group_work import commit_outcome
from kraft.sim.workload.single_requests import NoClearAnswer, NotSent, ask_any_once, ask_once
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

REQUEST_TIMEOUT_MS = 5_000
REPLICATION_FACTOR = 3
PARTITIONS_MAX = 3
"""Maximum number of partitions of a topic."""
TELLING = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_PARTITIONS,
    }
)
"""Errors that reveal the state of a topic."""
REFUSED = frozenset({ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.REASSIGNMENT_IN_PROGRESS})
"""Errors that prove that nothing was changed, and reveal nothing of the state."""

OffsetKey = tuple[str, TopicPartition]
"""Identity of a committed offset: a group, and a partition for which it commits."""
Leadership = tuple[int, int] | None
"""(epoch, node) of the node that by committed metadata answers for a topic name or a committed offset: the active
controller or the coordinator."""


@dataclass(slots=True, kw_only=True)
class Note:
    """Record of one request. If `returned_ns` is None, the outcome is unknown. Otherwise `answer` is the answer, None
    if there was none. `leadership` is the active controller or coordinator, if it did not change from the call to the
    return; otherwise None."""

    client: str
    key: Any
    asked: Any
    called_ns: int
    leadership: Leadership
    number: int = 0
    """Number that the client gave to a forwarded request."""
    returned_ns: int | None = None
    answer: Any = None


class _Operation(AbstractContextManager["_Operation"]):
    """Context that records an operation in the chronicle of the run. The operation lasts as long as the block. With an
    answer, the block sets `outcome`, and `is_good` (None: unknown). An exception for an unclear answer ends the block
    and is not raised further."""

    def __init__(self, chronicle: Chronicle, client: str, text: str) -> None:
        self.outcome = "unknown"
        self.is_good: bool | None = None
        self._chronicle = chronicle
        self._told = chronicle.begin_operation(client, text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_unclear = isinstance(error, NoClearAnswer)
        if isinstance(error, NotSent):
            self.outcome, self.is_good = "no node could be reached", False
        if error is None or is_unclear:
            self._chronicle.end_operation(self._told, self.outcome, self.is_good)
        return is_unclear


class Registrars:
    """The clients of the plan that compete for the same topics and committed offsets, and the answers that they got."""

    def __init__(self, cluster: SimCluster, work: Mapping[str, Iterable[PlannedOperation]]) -> None:
        self.checks = HistoryChecks()
        self.cluster = cluster
        self.topic_notes: list[Note] = []
        self.offset_notes: list[Note] = []
        self.last_offset = 0
        self.ids: dict[str, UUID] = {}
        """Topic name → newest id that its creator received."""
        self.clients = [Registrar(self, name, work[name]) for name in REGISTRARS if name in work]

    async def read_all(self) -> None:
        """Read all topics and committed offsets that the clients of this class have ever used."""
        if not self.clients:
            return
        reader = self.clients[0]
        for topic in dict.fromkeys(note.key for note in self.topic_notes):
            for partitions in range(2, 1 + PARTITIONS_MAX):
                await reader.use_topic(topic, Grow(partitions, validate_only=True))
        for key in dict.fromkeys(note.key for note in self.offset_notes):
            await reader.use_offset(key, ReadRegister(), is_stable=True)

    def judge(self) -> None:
        """Check each complete history for linearizability."""
        now_ms = self.cluster.world.now_ns // 1_000_000
        topic_calls = ((note.key, call) for note in self.topic_notes for call in self._calls_of(note))
        for topic, calls in parted(topic_calls).items():
            self.checks.observe(TopicHistory(topic, calls), now_ms)
        offset_calls = ((note.key, call) for note in self.offset_notes for call in _calls_of_offset(note))
        for (group, partition), calls in parted(offset_calls).items():
            self.checks.observe(OffsetHistory(group, partition, calls), now_ms)

    def _calls_of(self, note: Note) -> Iterable[Call]:
        handlers = self.cluster.watch.forwarded.get((note.client, _timeout_ms(note.number)), ())
        steady_leader = None if note.leadership is None else note.leadership[1]
        return calls_of_request(
            note.client, note.called_ns, note.returned_ns, note.asked, note.answer, handlers, steady_leader
        )


def _calls_of_offset(note: Note) -> Iterable[Call]:
    """Return the calls about one offset. A commit was sent once. A read counts only if the same coordinator was active
    from its call to its return."""
    is_reading = isinstance(note.asked, ReadRegister)
    if note.returned_ns is None:
        if not is_reading:
            yield Call(note.client, note.called_ns, None, note.asked)
    elif note.answer is not None and (note.leadership is not None or not is_reading):
        yield Call(note.client, note.called_ns, note.returned_ns, note.asked, note.answer)


def _timeout_ms(number: int) -> int:
    """Return a unique timeout for each request of a client, by which controllers' observers recognise it."""
    return REQUEST_TIMEOUT_MS + number


class Registrar:
    """One client that changes topics and committed offsets; it has one request open at a time."""

    def __init__(self, work: Registrars, name: str, operations: Iterable[PlannedOperation]) -> None:
        self.name = name
        self._work = work
        self._operations = operations
        self._cluster = work.cluster
        self._world = work.cluster.world
        self._client = Cluster(
            parse_bootstrap(work.cluster.shape.bootstrap_servers), self._world.node(name), client_id=name
        )
        self._coordinators: dict[str, tuple[int, Address]] = {}
        self._requests = 0

    async def run(self) -> None:
        """Carry out the operations in order, one at a time."""
        start_ns = self._world.now_ns
        for operation in self._operations:
            await self._world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
            await self._carry_out(operation)

    async def _carry_out(self, operation: PlannedOperation) -> None:
        if operation.verb in OFFSET_VERBS:
            group, index = divmod(operation.target, PARTITIONS)
            asked = WriteRegister(self._next_offset()) if operation.verb == COMMIT else ReadRegister()
            await self.use_offset((f"ledger-{group}", (TOPIC, index)), asked, is_stable=bool(operation.amount % 2))
        else:
            topic = f"register-{operation.target}"
            await self.use_topic(topic, self._request_of(operation, topic))

    def _next_offset(self) -> int:
        """Return an offset that was not committed before."""
        self._work.last_offset += 1
        return self._work.last_offset

    def _request_of(self, operation: PlannedOperation, topic: str) -> Create | Delete | Grow:
        few = 1 + operation.amount % (PARTITIONS_MAX - 1)
        more = 1 + few
        requests: dict[str, Create | Delete | Grow] = {
            CREATE: Create(few),
            VALIDATE_CREATE: Create(few, validate_only=True),
            DELETE: Delete(),
            DELETE_BY_ID: Delete(self._work.ids.get(topic)),
            CREATE_PARTITIONS: Grow(more),
            VALIDATE_PARTITIONS: Grow(more, validate_only=True),
        }
        return requests[operation.verb]

    def _operation(self, text: str) -> _Operation:
        return _Operation(self._cluster.watch.chronicle, self.name, text)

    # topics

    async def use_topic(self, topic: str, asked: Create | Delete | Grow) -> None:
        """Send one request about a topic, and record its outcome."""
        self._requests += 1
        note = Note(
            client=self.name,
            key=topic,
            asked=asked,
            called_ns=self._world.now_ns,
            leadership=self._cluster.watch.newest_leadership,
            number=self._requests,
        )
        self._work.topic_notes.append(note)
        with self._operation(f"{asked} of {topic}") as operation:
            answer = await self._ask_controller(topic, asked, _timeout_ms(note.number))
            operation.outcome = answer.code.name
            if answer.code in TELLING or answer.code in REFUSED:
                operation.is_good = answer.code is ErrorCode.NONE
                note.answer = answer if answer.code in TELLING else None
        note.returned_ns = None if operation.is_good is None else self._world.now_ns
        if note.leadership != self._cluster.watch.newest_leadership:
            note.leadership = None

    async def _ask_controller(self, topic: str, asked: Create | Delete | Grow, timeout_ms: int) -> ControllerAnswer:
        """Send a request to the controller through any broker."""
        timeout = messages.duration(timeout_ms)
        if isinstance(asked, Delete):
            row: dict[str, Any] = {"name": None if asked.topic_id else topic, "topic_id": asked.topic_id}
            deleted = await self._ask(ApiKey.DELETE_TOPICS, topics=(row,), timeout=timeout)
            return ControllerAnswer(ErrorCode(int(deleted.responses[0].error_code)), deleted.responses[0].topic_id)
        if isinstance(asked, Grow):
            row = {"name": topic, "count": asked.partitions, "assignments": None}
            fields = {"topics": (row,), "timeout": timeout, "validate_only": asked.validate_only}
            grown = await self._ask(ApiKey.CREATE_PARTITIONS, **fields)
            return ControllerAnswer(ErrorCode(int(grown.results[0].error_code)))
        factor = min(REPLICATION_FACTOR, self._cluster.shape.brokers)
        row = {"name": topic, "num_partitions": asked.partitions, "replication_factor": factor}
        fields = {"topics": (row,), "timeout": timeout, "validate_only": asked.validate_only}
        created = (await self._ask(ApiKey.CREATE_TOPICS, **fields)).topics[0]
        code = ErrorCode(int(created.error_code))
        if code is ErrorCode.NONE and not asked.validate_only:
            self._work.ids[topic] = created.topic_id
        return ControllerAnswer(code, created.topic_id)

    async def _ask(self, key: ApiKey, **fields: Any) -> Any:
        return await ask_any_once(self._client, key, timeout_ms=REQUEST_TIMEOUT_MS, **fields)

    # offsets

    async def use_offset(self, key: OffsetKey, asked: WriteRegister | ReadRegister, *, is_stable: bool) -> None:
        """Send one commit or read of an offset, and record its outcome. `is_stable`: the read waits for
        pending writes."""
        verb = f"{COMMIT} {asked.value}" if isinstance(asked, WriteRegister) else FETCH
        note: Note | None = None
        with self._operation(f"{verb} of {key[0]}, {key[1][0]}-{key[1][1]}") as operation:
            node, address = await self._find_coordinator(key[0])
            leadership = self._leadership_of(key[0])
            steady_leader = leadership if leadership is not None and leadership[1] == node else None
            note = Note(client=self.name, key=key, asked=asked, called_ns=self._world.now_ns, leadership=steady_leader)
            self._work.offset_notes.append(note)
            code, note.answer = await self._ask_coordinator(address, key, asked, is_stable)
            operation.outcome, operation.is_good = code.name, commit_outcome(code)
        if not operation.is_good:
            self._coordinators.pop(key[0], None)
        if note is None:
            return  # the coordinator is unknown
        note.returned_ns = None if operation.is_good is None else self._world.now_ns
        if note.leadership != self._leadership_of(key[0]):
            note.leadership = None

    def _leadership_of(self, group: str) -> Leadership:
        """Return (leader epoch, leader) of the partition that stores this group."""
        topic = self._cluster.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        state = topic.partition(partition_of(group, topic.partition_count))
        return state.leader_epoch, state.leader

    async def _find_coordinator(self, group: str) -> tuple[int, Address]:
        """Return the coordinator that was found last; if there is none, find it. Raises NotSent if no broker
        answers."""
        if group not in self._coordinators:
            request = messages.build(
                messages.request_class(ApiKey.FIND_COORDINATOR), key_type=0, coordinator_keys=(group,)
            )
            try:
                answer = await self._client.ask_any(ApiKey.FIND_COORDINATOR, request, timeout_ms=REQUEST_TIMEOUT_MS)
            except ClusterUnreachable as problem:
                raise NotSent from problem
            (found,) = answer.coordinators
            if found.error_code != ErrorCode.NONE:
                raise NotSent
            self._coordinators[group] = int(found.node_id), Address(found.host, found.port)
        return self._coordinators[group]

    async def _ask_coordinator(
        self, address: Address, key: OffsetKey, asked: WriteRegister | ReadRegister, is_stable: bool
    ) -> tuple[ErrorCode, Any]:
        """Send a request to the coordinator. Return the error, and the response if there is no error."""
        try:
            link = await self._client.links.get(address, "offsets", timeout_ms=REQUEST_TIMEOUT_MS)
        except CONNECTION_FAILURES as failure:
            raise NotSent from failure
        group, (topic, index) = key
        if isinstance(asked, WriteRegister):
            row: dict[str, Any] = {"partition_index": index, "committed_offset": asked.value}
            fields: dict[str, Any] = {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "topics": ({"name": topic, "partitions": ({**row, "committed_leader_epoch": -1},)},),
            }
            reply = await ask_once(link, ApiKey.OFFSET_COMMIT, timeout_ms=REQUEST_TIMEOUT_MS, **fields)
            code = ErrorCode(int(reply.topics[0].partitions[0].error_code))
            return code, True if code is ErrorCode.NONE else None
        topics = ({"name": topic, "partition_indexes": (index,)},)
        wanted = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
        fields = {"groups": (wanted,), "require_stable": is_stable}
        reply = await ask_once(link, ApiKey.OFFSET_FETCH, timeout_ms=REQUEST_TIMEOUT_MS, **fields)
        (found,) = reply.groups
        if found.error_code != ErrorCode.NONE:
            return ErrorCode(int(found.error_code)), None
        told = found.topics[0].partitions[0]
        code = ErrorCode(int(told.error_code))
        return code, told.committed_offset if code is ErrorCode.NONE else None
