"""Members of a consumer group against a model coordinator that follows the rules of KIP-848, over a network that loses
requests and responses.

The model has one group and assigns anew, without stickiness, whenever a member joins, leaves or changes its
subscription. A member may be expired at any time, may stop to poll, and may learn the names of topics late.

In every run, no partition is read by two members that the coordinator has. Once the network is healed, every subscribed
partition is read by exactly one member, and the coordinator and the members agree on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraft.client.core.consumer_member import ConsumerMember, Reconciliation, Release
from kraft.client.core.heartbeats import (
    ConsumerHeartbeat,
    HeartbeatAnswer,
    MemberSettings,
    TopicIdPartition,
    TopicSubscription,
)
from kraft.client.core.member_state import MemberState
from kraft.wire.error_codes import ErrorCode

TOPICS = {"orders": UUID(int=1), "payments": UUID(int=2)}
NAMES = {topic_id: name for name, topic_id in TOPICS.items()}
PARTITIONS = 3
INTERVAL_MS = 5_000
MEMBERS = 3
HEALED_ROUNDS = 30
SELECTIONS = [("orders",), ("payments",), ("orders", "payments")]
STEPS = [
    *["beat"] * 8,
    *["begin reconciliation"] * 4,
    *["end reconciliation"] * 4,
    *["release"] * 2,
    *["learn"] * 2,
    "lose request",
    "lose response",
    "refuse: COORDINATOR_LOAD_IN_PROGRESS",
    "refuse: NOT_COORDINATOR",
    "expire session",
    "expire poll",
    "leave and start anew",
    *[f"subscribe: {number}" for number in range(len(SELECTIONS))],
]


@dataclass
class ModelMember:
    epoch: int = 0
    previous_epoch: int = 0
    names: tuple[str, ...] = ()
    assigned: frozenset[TopicIdPartition] = frozenset()
    revoking: frozenset[TopicIdPartition] = frozenset()

    @property
    def held(self) -> frozenset[TopicIdPartition]:
        return self.assigned | self.revoking


@dataclass
class ModelCoordinator:
    epoch: int = 0
    members: dict[str, ModelMember] = field(default_factory=dict)
    target: dict[str, frozenset[TopicIdPartition]] = field(default_factory=dict)

    def heartbeat(self, heartbeat: ConsumerHeartbeat) -> HeartbeatAnswer:
        member = self.members.get(heartbeat.member_id)
        if heartbeat.is_leave:
            self.remove(heartbeat.member_id)
            return self._answer(ErrorCode.NONE if member else ErrorCode.UNKNOWN_MEMBER_ID)
        if heartbeat.is_join:
            assert heartbeat.is_full
            assert heartbeat.owned == frozenset()
            member = self.members.setdefault(heartbeat.member_id, ModelMember())
        elif member is None:
            return self._answer(ErrorCode.UNKNOWN_MEMBER_ID)
        elif heartbeat.epoch != member.epoch:
            is_retry = heartbeat.epoch == member.previous_epoch and heartbeat.owned is not None
            if not is_retry or not heartbeat.owned <= member.assigned:  # type: ignore[operator]
                return self._answer(ErrorCode.FENCED_MEMBER_EPOCH)
        if heartbeat.names is not None and heartbeat.names != member.names:
            member.names = heartbeat.names
            self._assign()
        before = member.assigned
        self._reconcile(heartbeat.member_id, member, heartbeat.owned)
        is_told = heartbeat.is_full or member.assigned != before
        return HeartbeatAnswer(
            ErrorCode.NONE, "", heartbeat.member_id, member.epoch, INTERVAL_MS, member.assigned if is_told else None
        )

    def _answer(self, code: ErrorCode) -> HeartbeatAnswer:
        return HeartbeatAnswer(code, "", "", 0, 0, None)

    def remove(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self._assign()

    def _assign(self) -> None:
        """Deal all partitions of each topic over its subscribers, beginning with another one in each epoch."""
        self.epoch += 1
        shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in self.members}
        for name, topic_id in TOPICS.items():
            subscribers = sorted(one for one, member in self.members.items() if name in member.names)
            for partition in range(PARTITIONS if subscribers else 0):
                owner = subscribers[(partition + self.epoch) % len(subscribers)]
                shares[owner].add((topic_id, partition))
        self.target = {member_id: frozenset(share) for member_id, share in shares.items()}

    def _reconcile(self, member_id: str, member: ModelMember, owned: frozenset[TopicIdPartition] | None) -> None:
        wanted = self.target[member_id]
        if member.revoking and (owned is None or owned & member.revoking):
            return
        member.revoking = frozenset()
        if member.assigned - wanted:
            member.revoking, member.assigned = member.assigned - wanted, member.assigned & wanted
            if owned is None or owned & member.revoking:
                return
            member.revoking = frozenset()
        others = [other.held for one, other in self.members.items() if one != member_id]
        member.assigned |= wanted - frozenset().union(*others)
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch


class Client:
    """One consumer, which reads the partitions in `reads`."""

    def __init__(self, name: str, coordinator: ModelCoordinator) -> None:
        self.name = name
        self.coordinator = coordinator
        self.generation = 0
        self.now_ms = 0
        self.start()

    def start(self) -> None:
        self.generation += 1
        self.member_id = f"{self.name}{self.generation}"
        member_settings = MemberSettings("billing")
        selection = TopicSubscription(SELECTIONS[2])
        self.member = ConsumerMember(member_settings, self.member_id, selection, backoff_ms=20, backoff_ms_max=1_000)
        self.reads: frozenset[TopicIdPartition] = frozenset()
        self.begun: Reconciliation | None = None

    def step(self, step: str) -> None:
        kind, _, detail = step.partition(": ")
        if kind in ("beat", "refuse", "lose request", "lose response"):
            self.beat(kind, detail)
        elif kind == "begin reconciliation":
            self.begin()
        elif kind == "end reconciliation":
            self.end()
        elif kind == "release":
            self.release()
        elif kind == "learn":
            self.member.learn_topics({one: NAMES[one] for one in self.member.unknown_topics})
        elif kind == "expire session":
            self.coordinator.remove(self.member_id)
        elif kind == "expire poll":
            self.member.expire_poll()
        elif kind == "subscribe":
            self.member.subscribe(TopicSubscription(SELECTIONS[int(detail)]))
        else:
            self.leave()

    def beat(self, kind: str = "beat", detail: str = "") -> None:
        due_ms = self.member.due_ms()
        if due_ms == float("inf"):
            return
        self.now_ms = max(self.now_ms, int(due_ms))
        heartbeat = self.member.next_heartbeat(self.now_ms)
        assert heartbeat is not None
        assert not heartbeat.is_join or not self.reads
        answer = None
        if kind in ("beat", "lose response"):
            answer = self.coordinator.heartbeat(heartbeat)
        if heartbeat.is_leave:
            return
        if kind.startswith("lose"):
            self.member.lose(heartbeat, self.now_ms)
        elif answer is None:
            refusal = HeartbeatAnswer(ErrorCode[detail], "", "", 0, 0, None)
            self.member.refuse(heartbeat, refusal, self.now_ms)
        elif answer.code is ErrorCode.NONE:
            self.member.accept(heartbeat, answer)
        else:
            self.member.refuse(heartbeat, answer, self.now_ms)

    def begin(self) -> None:
        """Revoke: the first half of a reconciliation."""
        step = self.member.next_step()
        if isinstance(step, Reconciliation) and self.begun is None:
            self.begun = step
            self.member.begin(step)
            assert {NAMES[one[0]] for one in self.reads - step.owned} == {name for name, _ in step.revoked}
            self.reads &= step.owned

    def end(self) -> None:
        """Assign: the second half."""
        step, self.begun = self.begun, None
        if step is not None and self.member.is_current(step):
            self.reads = step.owned
            self.member.reconciled(step)

    def release(self) -> None:
        step = self.member.next_step()
        if isinstance(step, Release) and self.begun is None:
            self.reads = frozenset()
            self.member.released(step)

    def leave(self) -> None:
        self.member.prepare_leaving()
        self.reads = frozenset()
        self.member.leave()
        self.beat()
        self.start()

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has this member, and the member does not know otherwise."""
        return self.member_id in self.coordinator.members and not self.member.is_lost


def check_single_owners(clients: list[Client]) -> None:
    owners: dict[TopicIdPartition, str] = {}
    for client in clients:
        for partition in client.reads if client.is_member else ():
            assert partition not in owners, f"{partition} is read by {owners[partition]} and {client.member_id}"
            owners[partition] = client.member_id


def heal(clients: list[Client], coordinator: ModelCoordinator) -> None:
    """Deliver every heartbeat from now on. The sessions of members whose last heartbeat was lost expire."""
    for gone in coordinator.members.keys() - {client.member_id for client in clients}:
        coordinator.remove(gone)
    for _ in range(HEALED_ROUNDS):
        for client in clients:
            for step in ("beat", "learn", "begin reconciliation", "end reconciliation", "release"):
                before = client.reads
                client.step(step)
                if client.reads != before:
                    check_single_owners(clients)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, MEMBERS - 1), st.sampled_from(STEPS)), min_size=30, max_size=80))
@example([(0, "beat"), (0, "learn"), (0, "begin reconciliation"), (1, "beat"), (0, "lose response")])
def test_members_agree_with_the_coordinator_and_no_partition_has_two_readers(steps: list[tuple[int, str]]) -> None:
    coordinator = ModelCoordinator()
    clients = [Client(name, coordinator) for name in "abc"]
    for number, step in steps:
        clients[number].step(step)
        check_single_owners(clients)
    heal(clients, coordinator)
    assert [client.member.state for client in clients] == [MemberState.STABLE] * MEMBERS
    assert {client.member_id: client.reads for client in clients} == coordinator.target
    assert {client.member.epoch for client in clients} == {coordinator.epoch}
