"""Chronicle: the main events of a simulated run, in order.

It lists starts and roles of nodes, elections, ISR changes, truncations, snapshots, rebalances, faults with their time
windows, operations of clients, and findings of checks.

The chronicle reads the same observations as the checks. It draws no random numbers and takes no virtual time. The
coverage table and the report of what happened are made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kraft.image import MetadataImage
from kraft.sim.check.base import Finding
from kraft.sim.check.groups import AssignmentReceived
from kraft.sim.check.observations import (
    BrokerFenced,
    ImagePublished,
    LogCut,
    Observation,
    PartitionRecorded,
    RoleSeen,
    TopicDeleted,
    TopicPartition,
)
from kraft.sim.check.shadow import Shadows
from kraft.sim.cluster.fold import THE_FOLD

ELECTION, ISR_CHANGE, TRUNCATION, SNAPSHOT_INSTALL, REBALANCE, REASSIGNMENT = STATES = (
    "election",
    "ISR change",
    "truncation",
    "snapshot install",
    "rebalance",
    "reassignment",
)
"""Cluster states that a fault can coincide with: the columns of the coverage table."""

UP, DOWN, ROLE, REGISTRATION, FENCE, OPERATION = "up", "down", "role", "registration", "fence", "operation"
OFFSETS_TOPIC = "__consumer_offsets"
LEADER, FOLLOWER, LEADERLESS = "leader", "follower", "without a leader"


@dataclass(frozen=True, slots=True)
class ChronicleEvent:
    """One event of a run. `node` is 0 and `partition` None if the event belongs to none. `value` is what the report
    draws: a role and its epoch, or the leader, ISR and epoch of a partition."""

    at_ms: int
    kind: str
    text: str
    node: int = 0
    partition: TopicPartition | None = None
    value: tuple[object, ...] = ()


@dataclass(slots=True)
class ObservedFault:
    """A fault with its begin and end (None: still active). `is_met` is False if it affected no operation."""

    kind: str
    nodes: tuple[int, ...]
    text: str
    at_ms: int
    end_ms: int | None = None
    is_met: bool = True


@dataclass(slots=True)
class ObservedState:
    """Period in which one of STATES was active: from the loss of a leader to the next leader, from the begin of a
    reassignment to its end, or from the first member that joins to the next generation. The other states have no
    duration. `end_ms` None: still active. `nodes` take part in the state. For a partition these are its replicas and
    the active controller, for the quorum its voters, for a group its coordinator and the replicas of the coordinator's
    partition."""

    kind: str
    at_ms: int
    end_ms: int | None = None
    nodes: set[int] = field(default_factory=set)


@dataclass(slots=True)
class ClientOperation:
    """A client's operation. `outcome` is "" while it is open. `is_good` is None if the outcome is unknown."""

    client: str
    text: str
    at_ms: int
    end_ms: int | None = None
    outcome: str = ""
    is_good: bool | None = None


class Chronicle:
    """The main events of one run, in order; see the module."""

    def __init__(self, shadows: Shadows, now_ms: Callable[[], int]) -> None:
        self.events: list[ChronicleEvent] = []
        self.windows: list[ObservedFault] = []
        self.spans: list[ObservedState] = []
        self.operations: list[ClientOperation] = []
        self.findings: list[Finding] = []
        self.is_closed = False
        """Set when the run is stopped: nothing more is recorded."""
        self.began_ms = 0
        """Time when clients and faults started."""
        self._shadows = shadows
        self._now_ms = now_ms
        self._roles: dict[int, tuple[int, str, int]] = {}
        self._partitions: dict[TopicPartition, PartitionRecorded] = {}
        self._shrunk: dict[TopicPartition, None] = {}
        """Partitions whose ISR shrank and has not grown since; the latest one is last."""
        self._alive: dict[int, bool] = {}
        self._generation = -1
        self._voters: set[int] = set()
        """All nodes that have been voters so far."""
        self._down: set[int] = set()
        self._lasting: dict[tuple[str, TopicPartition | None], ObservedState] = {}
        """States that are active now, by kind and partition (None: the quorum, or the group)."""

    def note(
        self,
        kind: str,
        text: str,
        node: int = 0,
        partition: TopicPartition | None = None,
        value: tuple[object, ...] = (),
    ) -> None:
        if self.is_closed:
            return
        self.events.append(ChronicleEvent(self._now_ms(), kind, text, node, partition, value))

    @property
    def shrunk_leader(self) -> int | None:
        """Return the leader of the partition whose ISR shrank last and has not grown since. None if there is no such
        partition, or it has no leader."""
        last = next(reversed(self._shrunk), None)
        leader = -1 if last is None else self._partitions[last].leader
        return leader if leader >= 0 else None

    # states

    def _begin_state(self, kind: str, nodes: Iterable[int], partition: TopicPartition | None = None) -> None:
        """Start this state unless it is already active; these nodes take part."""
        if (kind, partition) not in self._lasting:
            self._lasting[kind, partition] = span = ObservedState(kind, self._now_ms())
            self.spans.append(span)
        self._lasting[kind, partition].nodes.update(nodes)

    def _end_state(self, kind: str, nodes: Iterable[int], partition: TopicPartition | None = None) -> None:
        """End this state. A state that was not active is recorded with a duration of zero."""
        self._begin_state(kind, nodes, partition)
        self._lasting.pop((kind, partition)).end_ms = self._now_ms()

    def _leaders(self) -> list[int]:
        """Return all nodes that consider themselves the active controller."""
        return [node for node, (_, role, _) in self._roles.items() if role == LEADER]

    def _taking_part(self, log: TopicPartition | None) -> Iterator[int]:
        """Return the nodes that take part in an event of a partition; partition None stands for the metadata log."""
        yield from self._leaders()
        if log is None:
            yield from self._voters
        elif log in self._partitions:
            yield from self._partitions[log].replicas

    def _of_coordinator(self, node: int | None) -> Iterator[int]:
        """Return the coordinator of the group and the replicas of the coordinator's partition."""
        if node is not None:
            yield node
            for (topic, _), state in self._partitions.items():
                if topic.startswith(OFFSETS_TOPIC) and state.leader == node:
                    yield from state.replicas

    # faults and clients

    def begin_fault(self, kind: str, nodes: tuple[int, ...], text: str) -> ObservedFault:
        window = ObservedFault(kind, nodes, text, self._now_ms())
        self.windows.append(window)
        return window

    def end_fault(self, window: ObservedFault) -> None:
        window.end_ms = self._now_ms()

    def begin_operation(self, client: str, text: str) -> ClientOperation:
        operation = ClientOperation(client, text, self._now_ms())
        self.operations.append(operation)
        return operation

    def end_operation(self, operation: ClientOperation, outcome: str, is_good: bool | None) -> None:
        """Record the end of an operation. During the teardown of a stopped run the operation stays open."""
        if self.is_closed:
            return
        operation.end_ms, operation.outcome, operation.is_good = self._now_ms(), outcome, is_good

    # starts and ends of nodes

    def incarnation_started(self, node: int, number: int) -> None:
        self._down.discard(node)
        self.note(UP, f"node {node} starts (life {number})", node)

    def incarnation_ended(self, node: int) -> None:
        """Record that an incarnation ended. Called before the disk is observed: bytes that the disk loses from now on
        are not truncated by the node."""
        self._down.add(node)
        _, role, _ = self._roles.pop(node, (0, "", 0))
        if role == LEADER:
            self._begin_state(ELECTION, {node, *self._voters})
        self.note(DOWN, f"node {node} is down", node)

    # observations

    def observe(self, seen: Observation, image: MetadataImage) -> None:
        """Record the events that an observation shows. Called before the checks read the observation, so the shadow
        logs still have their earlier state. `image` is the committed metadata."""
        if isinstance(seen, RoleSeen):
            self._role(seen)
        elif isinstance(seen, PartitionRecorded):
            self._partition(seen)
        elif isinstance(seen, LogCut):
            self._cut(seen)
        elif isinstance(seen, ImagePublished) and seen.node == THE_FOLD:
            self._registrations(image)
        elif isinstance(seen, TopicDeleted):
            for kind, partition in [key for key in self._lasting if key[1] is not None and key[1][0] == seen.topic]:
                self._end_state(kind, self._taking_part(partition), partition)
            for partition in [place for place in self._partitions if place[0] == seen.topic]:
                del self._partitions[partition]
                self._shrunk.pop(partition, None)
        elif isinstance(seen, BrokerFenced):
            cause = "its session timed out" if seen.decided_epoch is None else "it is taken for dead"
            self.note(FENCE, f"broker {seen.broker} is fenced: {cause}", seen.broker)

    def rejoins(self, coordinator: int | None) -> None:
        """Record that a member of the group rejoins; `coordinator` is the last one that it knew."""
        self._begin_state(REBALANCE, self._of_coordinator(coordinator))

    def assigned(self, told: AssignmentReceived, coordinator: int | None) -> None:
        """Record that a member received its assignment from this coordinator."""
        if told.generation > self._generation:
            self._generation = told.generation
            self._end_state(REBALANCE, self._of_coordinator(coordinator))
            self.note(REBALANCE, f"group {told.group} has generation {told.generation}")

    def _role(self, seen: RoleSeen) -> None:
        role = LEADER if seen.is_leader else FOLLOWER if seen.leader_id >= 0 else LEADERLESS
        now = (seen.epoch, role, seen.leader_id)
        if seen.is_voter:
            self._voters.add(seen.node)
        before = self._roles.get(seen.node)
        if now == before:
            return
        self._roles[seen.node] = now
        text = f"node {seen.node} is {role} in epoch {seen.epoch}"
        self.note(ROLE, text, seen.node, value=(role if seen.is_voter else "observer", seen.epoch))
        if before is not None and before[1] == LEADER and not seen.is_leader:
            self._begin_state(ELECTION, self._voters)
        if seen.is_leader and (before is None or before[:2] != now[:2]):
            self._end_state(ELECTION, self._voters)
            self.note(ELECTION, f"controller {seen.node} leads the quorum in epoch {seen.epoch}", seen.node)

    def _partition(self, seen: PartitionRecorded) -> None:
        place, before = seen.topic_partition, self._partitions.get(seen.topic_partition)
        self._partitions[place] = seen
        value = (seen.leader, seen.isr, seen.leader_epoch)
        name = f"{place[0]}-{place[1]}"
        if before is None:
            return self.note("partition", f"{name} is led by {seen.leader}", seen.leader, place, value)
        nodes = {*before.replicas, *self._taking_part(place)}
        if seen.leader < 0:
            self._begin_state(ELECTION, nodes, place)
        elif seen.leader_epoch != before.leader_epoch and seen.leader != before.leader:
            self._end_state(ELECTION, nodes, place)
        if seen.adding or seen.removing:
            self._begin_state(REASSIGNMENT, nodes, place)
        elif seen.replicas != before.replicas or before.adding or before.removing:
            self._end_state(REASSIGNMENT, nodes, place)
        if seen.leader_epoch != before.leader_epoch and seen.leader != before.leader:
            how = "an unclean election: " if seen.unclean else ""
            led = f"is led by {seen.leader}" if seen.leader >= 0 else "has no leader"
            self.note(ELECTION, f"{how}{name} {led} in epoch {seen.leader_epoch}", max(seen.leader, 0), place, value)
        if seen.replicas != before.replicas or seen.adding != before.adding:
            how = f", of which {_ids(seen.adding)} are new" if seen.adding else ""
            text = f"{name} is moved: replicas {_ids(seen.replicas)}{how}"
            self.note(REASSIGNMENT, text, max(seen.leader, 0), place, value)
        if set(seen.isr) < set(before.isr):
            self._shrunk.pop(place, None)
            self._shrunk[place] = None
        if len(seen.isr) >= len(seen.replicas):
            self._shrunk.pop(place, None)
        if set(seen.isr) != set(before.isr):
            self._end_state(ISR_CHANGE, nodes, place)
            text = f"{name} has ISR {_ids(seen.isr)}, before {_ids(before.isr)}"
            self.note(ISR_CHANGE, text, max(seen.leader, 0), place, value)
        return None

    def _cut(self, seen: LogCut) -> None:
        if seen.node in self._down:
            return
        shadow = self._shadows.log(seen.node, seen.log)
        name = "the metadata log" if seen.log is None else f"{seen.log[0]}-{seen.log[1]}"
        end = shadow.end_offset
        if seen.log is None and seen.start_offset > end:
            text = f"node {seen.node} takes over a snapshot of offset {seen.start_offset}, its log ended at {end}"
            self._end_state(SNAPSHOT_INSTALL, {seen.node, *self._leaders()})
            self.note(SNAPSHOT_INSTALL, text, seen.node)
        elif seen.start_offset <= seen.end_offset < end and seen.end_offset + seen.start_offset:
            text = f"node {seen.node} cuts {name} from {end} back to {seen.end_offset}"
            self._end_state(TRUNCATION, {seen.node, *self._taking_part(seen.log)})
            self.note(TRUNCATION, text, seen.node, seen.log)

    def _registrations(self, image: MetadataImage) -> None:
        for broker in image.broker_ids():
            is_alive = image.is_alive(broker)
            if is_alive != self._alive.get(broker, False):
                self._alive[broker] = is_alive
                text = f"broker {broker} is {'unfenced' if is_alive else 'fenced or gone'}"
                self.note(REGISTRATION, text, broker, value=(is_alive,))


def _ids(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "none"
