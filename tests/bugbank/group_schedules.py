"""Schedules for group coordinators and members. The tested coordinator has its log in memory."""

from __future__ import annotations

import random
from typing import Any

import trio

from kraft.broker.group.requests import CommitRequest, ExpireRequest, GroupHeartbeatRequest, OffsetToCommit
from kraft.client.cluster import Cluster
from kraft.client.core.assigned import Assignment
from kraft.client.core.assignors.base import SubscribedMember
from kraft.client.core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kraft.client.core.configs import ConsumerConfig, parse_bootstrap
from kraft.client.core.consumer_protocol import Subscription
from kraft.client.core.membership import MemberIdentity, Reaction
from kraft.client.core.records import TopicPartition
from kraft.client.group import GroupMembership
from kraft.client.rebalancing import RebalanceListener
from kraft.client.subscription import SubscribedTopics
from kraft.sim.world import World
from kraft.wire.error_codes import ErrorCode
from tests.broker.group.test_random_groups import Client, Trial
from tests.bugbank.mutation import Violation, require
from tests.stages.group_bench import GROUP, Bench

RETENTION_MS = 60_000


class NamedTrial(Trial):
    """A trial of a group coordinator in which each assertion has the name of the check that it stands for."""

    def assigned(self, client: Client, assignment: bytes) -> None:
        try:
            super().assigned(client, assignment)
        except (AssertionError, KeyError) as error:
            raise Violation("G5", f"{client.member_id} was given {assignment!r}") from error

    def check_generation(self, reply: object) -> None:
        try:
            super().check_generation(reply)
        except AssertionError as error:
            raise Violation("G1", f"a generation below {self.synced_generation} was synced") from error

    def check_offsets(self) -> None:
        try:
            super().check_offsets()
        except AssertionError as error:
            raise Violation("G3", f"{self.acknowledged} was acknowledged") from error


def groups(seed: int) -> None:
    """Let members join, leave, return and die, while the log loses records, rejects appends and moves to another
    broker."""
    trial = NamedTrial(seed)
    trial.clients = [Client(trial, None), Client(trial, "i1")]
    try:
        for _ in range(250):
            trial.disturb()
            trial.check_offsets()
            for client in list(trial.clients):
                if trial.random.random() < 0.6:
                    client.act()
        trial.settle()
    except Violation:
        raise
    except AssertionError as error:
        raise Violation("G7", f"the coordinator's memory is not what its log says: {error}") from error
    trial.check_offsets()
    require("L8", not [asked for asked in trial.asked if asked.is_parked], "a request was never answered")


# directed


def a_coordinator_dies(seed: int) -> None:
    """End the coordinator while one member is paused; the member commits when it resumes."""
    bench = Bench()
    first, second = bench.stable(None, None)
    generation = bench.group.generation
    bench.move()
    again = bench.rejoin(first)
    if again.is_parked:
        bench.rejoin(second)
    require("G1", bench.group.generation >= generation, f"generation {bench.group.generation} after {generation}")
    late = bench.commit_offset(7, second, generation)
    is_current = bench.group.generation == generation
    require("G4", is_current or late.reply.rows[0].error is not ErrorCode.NONE, "an old generation committed")


def the_partition_has_moved(seed: int) -> None:
    """Let another broker lead the offsets partition, while members still send requests to the former coordinator."""
    bench = Bench()
    (member,) = bench.stable(None)
    generation = bench.group.generation
    old = bench.machine
    bench.move()
    rows = (OffsetToCommit("orders", 0, 9, 3, "", None),)
    for request in (
        GroupHeartbeatRequest(GROUP, generation, member, None),
        CommitRequest(group=GROUP, member_id=member, generation=generation, instance_id=None, offsets=rows),
    ):
        told: list[Any] = []
        step = old.handle(request, told.append, bench.now)
        for ticket, reply in step.replies:
            ticket(reply)
        good = bool(step.entries) or ErrorCode.NONE in [_error(reply) for reply in told]
        require("G6", not good, f"who does not lead the partition any more said yes to {type(request).__name__}")


def _error(reply: Any) -> ErrorCode:
    error: ErrorCode = reply.rows[0].error if hasattr(reply, "rows") else reply.error
    return error


def a_rebalance_hangs(seed: int) -> None:
    """Let one member stay silent for its maximum time during a rebalance, while the clock jumps past the retention
    time."""
    bench = Bench(retention_ms=RETENTION_MS)
    first, _ = bench.stable(None, None)
    require("G3", bench.commit_offset(5, first, bench.group.generation).reply.rows[0].error is ErrorCode.NONE, "")
    bench.rejoin(first)
    require("L8", bench.state == "PreparingRebalance", bench.state)
    bench.now_ms += RETENTION_MS + 1
    bench.ask(ExpireRequest(GROUP))
    require("G3", bench.committed() == 5, f"the offset is gone in the middle of a rebalance: {bench.committed()}")


def a_static_member_is_replaced(seed: int) -> None:
    """Let a replacement join under the instance id of a static member; then deliver a commit of the replaced member."""
    bench = Bench()
    _, old = bench.stable("i1", "i2")
    generation = bench.group.generation
    bench.join(instance_id="i2")
    late = bench.commit_offset(1, old, generation, instance_id="i2")
    require("G4", late.reply.rows[0].error is not ErrorCode.NONE, "a replaced static member has committed")


def _claims(assignor: StickyAssignor | CooperativeStickyAssignor, *claims: tuple[str, int]) -> list[SubscribedMember]:
    """Return members that all claim partition 0, each with another generation."""
    found = []
    for name, generation in claims:
        owned: tuple[TopicPartition, ...] = (("orders", 0),)
        data = assignor.user_data(owned, generation)
        found.append(SubscribedMember(name, Subscription(("orders",), data, owned, generation)))
    return found


def a_stale_claim(seed: int) -> None:
    """Pause a member during a whole rebalance. It then claims partitions that other members own now."""
    for names in (("a", "b"), ("b", "a")):
        cooperative = CooperativeStickyAssignor()
        members = _claims(cooperative, (names[0], 5), (names[1], 3))
        assigned = cooperative.assign({"orders": 2}, members)
        wrong = ("orders", 0) in assigned[names[1]]
        require("G2", not wrong, f"{names[1]} keeps what {names[0]} owns since a later generation: {assigned}")


def claims(seed: int) -> None:
    """Draw claims and generations at random. No member may get a partition that another member certainly owns."""
    draw = random.Random(seed)
    cooperative = CooperativeStickyAssignor()
    names = [f"m{number}" for number in range(draw.randint(2, 5))]
    draw.shuffle(names)
    members, truth = [], dict[TopicPartition, tuple[int, str]]()
    every = [("orders", number) for number in range(6)]
    for generation, name in enumerate(names, start=1):
        owned = tuple(sorted(draw.sample(every, draw.randint(0, 4))))
        for partition in owned:
            truth[partition] = (generation, name)
        data = cooperative.user_data(owned, generation)
        members.append(SubscribedMember(name, Subscription(("orders",), data, owned, generation)))
    assigned = cooperative.assign({"orders": 6}, members)
    for name, partitions in assigned.items():
        for partition in partitions:
            owner = truth.get(partition, (0, name))[1]
            require("G2", owner == name, f"{partition} is {owner}'s and is given to {name} in the same rebalance")


def a_late_refusal(seed: int) -> None:
    """Reject a commit of the previous generation so late that the member has joined the next one."""

    async def main(world: World) -> None:
        seam = world.node("member")
        config = ConsumerConfig(bootstrap_servers="nobody:9092", group_id=GROUP)
        cluster = Cluster(parse_bootstrap("nobody:9092"), seam, client_id="member")
        failures: list[Exception] = []
        topics = SubscribedTopics(cluster, ("orders",), failures.append)
        group = GroupMembership(
            config, cluster, Assignment(), topics, RebalanceListener(), lambda: None, failures.append
        )
        group.member = MemberIdentity("m", 6, "range")
        group._on_refused(MemberIdentity("m", 5, "range"), Reaction.FORGET_GENERATION)
        require(
            "G8", group.member == MemberIdentity("m", 6, "range"), f"an answer to generation 5 made it {group.member}"
        )
        require("L12", not group._must_join.is_set(), "it joins again, and again")
        require("L12", not failures, f"the application is told of {failures}")
        await trio.lowlevel.checkpoint()
        cluster.close()

    World(seed).run(main)


def commits_that_are_lost(seed: int) -> None:
    """Let the log accept a commit and lose it. No client may have received a success for it."""
    bench = Bench()
    (member,) = bench.stable(None)
    asked = bench.commit_offset(5, member, bench.group.generation)
    is_told = not asked.is_parked and asked.reply.rows[0].error is ErrorCode.NONE
    bench.move()
    require("G3", not is_told or bench.committed() == 5, "an acknowledged commit is gone")
