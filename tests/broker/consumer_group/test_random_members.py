"""Random members of one group over topics that change and a log that commits late, refuses, and moves.

Invariants after each step:
- no partition is held by two members, and no two clients that are members own one partition (G2);
- committed epochs of the group never go back;
- an answer without an error comes only after the commit of its records;
- the state in memory is the one that a replay of the log's bytes gives (checked by the bench).

When disturbances end, each partition of each subscribed topic belongs to exactly one member, and the client
of that member owns it.
"""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from kraft.broker.consumer_group.records import MemberState
from kraft.broker.consumer_group.requests import ConsumerHeartbeatReply
from kraft.broker.consumer_group.settings import ConsumerGroupSettings
from kraft.broker.consumer_group.state import EMPTY_GROUP, ConsumerGroup, ConsumerGroupState
from kraft.broker.consumer_group.subscriptions import subscribed_topics
from kraft.wire.error_codes import ErrorCode
from tests.broker.consumer_group.consumer_bench import ConsumerBench
from tests.stages.group_bench import GROUP, PendingRequest

TOPICS = ("a", "b", "ab")
SUBSCRIPTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("a",), ""),
    (("a", "b"), ""),
    (("b", "missing"), ""),
    ((), "a.*"),
    (("b",), "a|b"),
)
REVOCATION_MS = 20_000
INTERVALS_MS = (0, 3_000)
"""The assignment intervals; each trial has one."""
SESSION_MS = 45_000
ROUNDS_MAX = 30
CLIENTS_MAX = 5
STEPS = 150
LOST = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
)
"""Errors after which a client owns nothing and joins again."""
Place = tuple[UUID, int]


class Client:
    """A consumer: one request at a time, and it owns what the replies gave it until it revokes it."""

    def __init__(self, member_id: str, subscription: tuple[tuple[str, ...], str], instance_id: str | None) -> None:
        self.member_id = member_id
        self.subscription = subscription
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: set[Place] = set()
        self.assigned: set[Place] = set()
        self.asked: PendingRequest | None = None
        self.sends_all = True

    def fields(self) -> dict[str, Any]:
        """Return the fields of the next heartbeat: all of them after an error, else only what has changed."""
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if self.sends_all or not self.epoch:
            names, regex = self.subscription
            fields |= {"rebalance_timeout_ms": REVOCATION_MS, "subscribed_names": names, "subscribed_regex": regex}
            fields["owned"] = by_topic(self.owned)
        elif self.owned == self.assigned:
            fields["owned"] = by_topic(self.owned)
        return fields

    def take(self, reply: ConsumerHeartbeatReply) -> None:
        """Follow a reply: new partitions are owned at once, lost ones when `revoke` is called."""
        if reply.error in LOST:
            self.lose_all()
        elif reply.error is not ErrorCode.NONE:
            self.sends_all = True
        else:
            self.epoch = reply.epoch
            self.sends_all = False
            if reply.assignment is not None:
                self.assigned = places(reply.assignment)
                self.owned |= self.assigned

    def lose_all(self) -> None:
        self.epoch, self.sends_all = 0, True
        self.owned, self.assigned = set(), set()

    def revoke(self) -> None:
        self.owned &= self.assigned


def places(partitions: Any) -> set[Place]:
    return {(topic_id, partition) for topic_id, found in partitions.items() for partition in found}


def by_topic(owned: set[Place]) -> dict[UUID, frozenset[int]]:
    return {topic_id: frozenset(number for one, number in owned if one == topic_id) for topic_id, _ in sorted(owned)}


class Trial:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        topics = {name: self.random.randint(1, 5) for name in TOPICS if self.random.random() < 0.7}
        group_settings = ConsumerGroupSettings(
            session_timeout_ms=SESSION_MS, members_max=6, assignment_interval_ms=INTERVALS_MS[seed % len(INTERVALS_MS)]
        )
        self.bench = ConsumerBench(topics, commits_at_once=False, settings_of=lambda group: group_settings)
        self.bench.on_reply = self.check_reply
        self.is_delivering = False
        self.clients: list[Client] = []
        self.count = 0
        self.seen = EMPTY_GROUP

    # members

    def join(self) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self.count += 1
            instance_id = self.random.choice((None, None, "one", "two"))
            self.clients.append(Client(f"member-{self.count}", self.random.choice(SUBSCRIPTIONS), instance_id))
            self.send(self.clients[-1])

    def beat(self, client: Client) -> None:
        self.receive(client)
        if client.asked is None:
            self.send(client)

    def beat_and_lose_the_reply(self, client: Client) -> None:
        self.beat(client)
        client.asked, client.sends_all = None, True

    def revoke(self, client: Client) -> None:
        self.receive(client)
        client.revoke()

    def subscribe(self, client: Client) -> None:
        client.subscription, client.sends_all = self.random.choice(SUBSCRIPTIONS), True

    def leave(self, client: Client) -> None:
        self.clients.remove(client)
        epoch = -1 if client.instance_id is None else self.random.choice((-1, -2))
        self.bench.ask_heartbeat(client.member_id, epoch, instance_id=client.instance_id)

    def crash(self, client: Client) -> None:
        self.clients.remove(client)

    def send(self, client: Client) -> None:
        if not client.epoch:
            client.lose_all()
        client.asked = self.bench.ask_heartbeat(client.member_id, client.epoch, **client.fields())
        self.receive(client)

    def receive(self, client: Client) -> None:
        """Deliver the reply, if there is one."""
        if client.asked is not None and not client.asked.is_parked:
            reply, client.asked = client.asked.reply, None
            client.take(reply)

    # the world

    def commit(self) -> None:
        self.is_delivering = True
        self.bench.commit()
        self.is_delivering = False

    def sleep(self) -> None:
        self.bench.sleep(self.random.choice((100, 4_000, 11_000, REVOCATION_MS, SESSION_MS)))

    def refuse_appends(self) -> None:
        """Let the log refuse every second time."""
        is_refusing = self.bench.refuses_appends is not None
        self.bench.refuses_appends = None if is_refusing else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def move(self) -> None:
        """Move the coordinator to a broker that lacks some records, but no committed ones."""
        length = len(self.bench.log) - self.random.choice((0, 1, 2, 20))
        self.bench.move_after_loss(max(self.bench.committed_offset, length))

    def change_topic(self) -> None:
        name = self.random.choice(TOPICS)
        known = self.bench.rows.get(name)
        if known is not None and self.random.random() < 0.3:
            self.bench.delete_topic(name)
        else:
            self.bench.set_topic(name, self.random.randint(1, 2) + (0 if known is None else known.partition_count))

    def disturb(self) -> None:
        """Do one random thing."""
        actions = {
            self.join: 4,
            self.commit: 10,
            self.bench.lose: 1,
            self.sleep: 3,
            self.refuse_appends: 2,
            self.move: 1,
            self.change_topic: 1,
        }
        of_client = {
            self.beat: 20,
            self.beat_and_lose_the_reply: 4,
            self.revoke: 8,
            self.subscribe: 1,
            self.leave: 1,
            self.crash: 1,
        }
        if self.clients and self.random.random() < 0.65:
            client = self.random.choice(self.clients)
            self.random.choices(list(of_client), list(of_client.values()))[0](client)
        else:
            self.random.choices(list(actions), list(actions.values()))[0]()
        self.check()

    # what must hold

    def check_reply(self, reply: Any) -> None:
        is_success = isinstance(reply, ConsumerHeartbeatReply) and reply.error is ErrorCode.NONE
        assert not is_success or self.is_delivering, "answered before the commit"

    @property
    def group(self) -> ConsumerGroup:
        return self.bench.machine.newest.consumers.get(GROUP, EMPTY_GROUP)

    def check(self) -> None:
        self.bench.check_counts()
        self.one_holder_per_partition()
        self.clients_own_only_what_they_hold()
        self.committed_epochs_never_go_back()

    def one_holder_per_partition(self) -> None:
        holders: dict[Place, str] = {}
        for member_id, current in self.group.current.items():
            for place in [*places(current.assigned), *places(current.revoking)]:
                assert place not in holders, f"{place} is held by {holders[place]} and {member_id}"
                holders[place] = member_id
        assert dict(self.group.holders.items()) == holders

    def clients_own_only_what_they_hold(self) -> None:
        committed = self.bench.machine.committed.consumers.get(GROUP, EMPTY_GROUP)
        for client in self.clients:
            if client.epoch and client.member_id in committed.members and client.member_id in self.group.members:
                for place in client.owned:
                    assert self.group.holders.get(place) == client.member_id, f"{client.member_id} owns {place}"

    def committed_epochs_never_go_back(self) -> None:
        committed = self.bench.machine.committed.consumers.get(GROUP, EMPTY_GROUP)
        assert committed.epoch >= self.seen.epoch
        assert committed.assignment_epoch >= self.seen.assignment_epoch
        assert committed.assignment_epoch <= committed.epoch
        self.seen = committed

    def settle(self) -> None:
        """Stop all disturbances. The members must then come to rest."""
        self.bench.refuses_appends = None
        for duration_ms in (SESSION_MS, 1):
            self.round()
            self.bench.sleep(duration_ms)
        for _ in range(ROUNDS_MAX):
            self.bench.sleep(4_000)
            self.round()
        self.check()
        self.check_rest()

    def round(self) -> None:
        """Let each client revoke, send a heartbeat, and get the reply."""
        for client in self.clients:
            self.commit()
            self.receive(client)
            client.revoke()
            client.asked = None
            self.send(client)
            self.commit()
            self.receive(client)

    def check_rest(self) -> None:
        members = {client.member_id: client for client in self.clients if client.epoch}
        static = [client.instance_id for client in self.clients if client.instance_id is not None]
        if len(static) == len(set(static)):
            assert len(members) == len(self.clients)
        assert set(self.group.members) == set(members)
        if not members:
            return
        assert self.group.state is ConsumerGroupState.STABLE
        owned = [place for client in members.values() for place in client.owned]
        wanted = [
            (row.topic_id, partition)
            for row in self.bench.topics
            if row.name in subscribed_topics(self.group)
            for partition in range(row.partition_count)
        ]
        assert sorted(owned) == sorted(wanted)
        assert all(current.state is MemberState.STABLE for current in self.group.current.values())


@pytest.mark.parametrize("seed", [*range(25), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(25, 100))])
def test_members_keep_their_invariants_under_lost_replies_and_log_failures(seed: int) -> None:
    trial = Trial(seed)
    for _ in range(STEPS):
        trial.disturb()
    trial.settle()
