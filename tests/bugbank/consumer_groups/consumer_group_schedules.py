"""Schedules for consumer groups of the next-generation protocol: the coordinator with its log in memory, and runs of
the simulator whose only clients are the members of such a group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraft.broker.consumer_group.settings import ConsumerGroupSettings
from kraft.broker.group.requests import CommitRequest, OffsetToCommit
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.drawn_mixed_group import MemberChoices, draw_coordinator_faults, draw_mixed_group
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    CUT_OFF_MEMBER,
    END_MEMBER,
    MIXED_GROUP,
    OVERRIDES,
    START_MEMBER,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.swarm import CONSUMER_GROUP_SETTINGS, draw_plan
from kraft.sim.run.run import run_plan
from kraft.sim.world.chance import NamedRandom
from kraft.wire.error_codes import ErrorCode
from tests.broker.consumer_group.consumer_bench import ConsumerBench
from tests.broker.consumer_group.test_random_members import STEPS, Trial
from tests.bugbank.campaign import slow
from tests.bugbank.mutation import Violation, require
from tests.stages.group_bench import GROUP

DURATION_MS = 12_000
LANE = 91
"""A lane that no drawn fault has."""
SESSION_MS = 45_000
REFRESH_MS = 11_000
"""More than the minimum time between two resolutions of an expression."""


class NamedTrial(Trial):
    """A trial of a coordinator of consumer groups in which each assertion has the name of the check that it stands
    for."""

    def check_reply(self, reply: Any) -> None:
        self._name("G6b", super().check_reply, reply)

    def one_holder_per_partition(self) -> None:
        self._name("G2b", super().one_holder_per_partition)

    def clients_own_only_what_they_hold(self) -> None:
        self._name("G2c", super().clients_own_only_what_they_hold)

    def committed_epochs_never_go_back(self) -> None:
        self._name("G1b", super().committed_epochs_never_go_back)

    def check_rest(self) -> None:
        self._name("G9b", super().check_rest)

    @staticmethod
    def _name(check: str, assertion: Any, *values: Any) -> None:
        try:
            assertion(*values)
        except Violation:
            raise
        except AssertionError as error:
            raise Violation(check, str(error)) from error


def members(seed: int) -> None:
    """Let members join, revoke, leave and die, while topics change and the log loses records and moves."""
    trial = NamedTrial(seed)
    try:
        for _ in range(STEPS):
            trial.disturb()
        trial.settle()
    except Violation:
        raise
    except AssertionError as error:
        raise Violation("G7b", f"the coordinator's memory is not what its log says: {error}") from error


@slow
def mixed_groups(seed: int) -> list[str]:
    """Run the drawn cluster and the drawn faults of a seed, with the members of the mixed group only."""
    plan = draw_plan(seed, FaultSettings(duration_ms=DURATION_MS))
    aimed = draw_coordinator_faults(NamedRandom(seed, "faults of group coordinators"), DURATION_MS, LANE)
    work = {MIXED_GROUP: draw_mixed_group(NamedRandom(seed, MIXED_GROUP), DURATION_MS)}
    overrides = {**plan.shape.overrides, **CONSUMER_GROUP_SETTINGS}
    shape = replace(plan.shape, overrides=overrides)
    return found_in(replace(plan, shape=shape, work=work, faults=(*plan.faults, *aimed)))


def found_in(plan: Plan) -> list[str]:
    findings = run_plan(plan).findings
    return [finding.check for finding in sorted(findings, key=lambda finding: finding.at_ms)]


# the coordinator


def _shared() -> ConsumerBench:
    """Return a coordinator with two members. The first one has not revoked yet what the second one shall get."""
    bench = ConsumerBench({"orders": 2})
    bench.enter("a", "orders")
    bench.enter("b", "orders")
    bench.beat("a", 1, owned=bench.partitions(orders={0, 1}))
    return bench


def _require_one_holder(bench: ConsumerBench) -> None:
    held = [
        (topic_id, index)
        for value in bench.consumers.current.values()
        for part in (value.assigned, value.revoking)
        for topic_id, indexes in part.items()
        for index in indexes
    ]
    require("G2b", len(held) == len(set(held)), f"a partition has two holders: {sorted(held)}")


def a_member_waits_for_a_revocation(seed: int) -> None:
    """Let a second member join, and send a heartbeat while the first one still owns everything."""
    bench = _shared()
    bench.beat("b", 2, owned={})
    _require_one_holder(bench)


def a_revocation_lasts_over_a_failover(seed: int) -> None:
    """Let another broker become the coordinator while a member still has to revoke a partition."""
    try:
        bench = _shared()
        (revoking,) = bench.consumers.current["a"].revoking.items()
        bench.move()
        reply = bench.beat("b", 2, owned={})
    except AssertionError as error:
        raise Violation("G7b", f"the coordinator's memory is not what its log says: {error}") from error
    given = (reply.assignment or {}).get(revoking[0], frozenset())
    require("G2b", not given & revoking[1].keys(), f"{given} of a member that has not confirmed its revocation")


def an_answer_before_its_commit(seed: int) -> None:
    """Let the log accept the records of a heartbeat, and lose them."""
    bench = ConsumerBench(commits_at_once=False)
    asked = bench.ask_heartbeat("a", 0, rebalance_timeout_ms=1, subscribed_names=("orders",), owned={})
    require("G6b", asked.is_parked, "the member has an epoch that is not committed")


def a_late_commit(seed: int) -> None:
    """Deliver a commit of a partition in an epoch in which its member did not have it."""
    bench = _shared()
    bench.beat("a", 1, owned=bench.partitions(orders={0}))
    bench.beat("b", 2, owned={})
    rows = (OffsetToCommit("orders", 1, 9, 3, "", None),)
    request = CommitRequest(
        group=GROUP, member_id="a", generation=1, instance_id=None, offsets=rows, knows_missing_groups=True
    )
    error = bench.ask(request).reply.rows[0].error
    require("G4b", error is not ErrorCode.NONE, "a member has committed a partition that it has lost")


def a_static_member_returns(seed: int) -> None:
    """Let a static member leave for a while, and return with another member id."""
    bench = ConsumerBench({"orders": 2})
    bench.enter("old", "orders", instance_id="one")
    bench.beat("old", -2, instance_id="one")
    bench.enter("new", "orders", instance_id="one")
    _require_one_holder(bench)
    require("G2b", set(bench.consumers.members) == {"new"}, f"members {sorted(bench.consumers.members)}")


def a_member_dies_with_its_coordinator(seed: int) -> None:
    """Let another broker become the coordinator, and a member be silent from then on."""
    bench = ConsumerBench({"orders": 2}, settings_of=lambda group: ConsumerGroupSettings(session_timeout_ms=SESSION_MS))
    bench.enter("a", "orders")
    bench.enter("b", "orders")
    bench.move()
    for _ in range(10):
        bench.sleep(SESSION_MS // 5)
        epoch = bench.consumers.current["b"].epoch
        bench.beat("b", epoch, owned={})
    require("L8", "a" not in bench.consumers.members, "a dead member keeps its partitions")


def a_topic_that_matches_is_added(seed: int) -> None:
    """Create a topic that a regular expression of a member matches."""
    bench = ConsumerBench({"orders": 1})
    bench.enter("a", subscribed_names=None, subscribed_regex="o.*")
    bench.set_topic("offers", 1)
    _require_all_assigned(bench)


def a_topic_grows(seed: int) -> None:
    """Add a partition to a subscribed topic."""
    bench = ConsumerBench({"orders": 1})
    bench.enter("a", "orders")
    bench.set_topic("orders", 2)
    _require_all_assigned(bench)


def _require_all_assigned(bench: ConsumerBench) -> None:
    for _ in range(3):
        bench.sleep(REFRESH_MS)
        bench.beat("a", bench.consumers.current["a"].epoch, owned={})
    wanted = {(row.topic_id, index) for row in bench.topics for index in range(row.partition_count)}
    missing = wanted - set(bench.consumers.holders.keys())
    require("L8", not missing, f"no member ever gets {sorted(missing)}")


# runs


def _run(seed: int, *work: PlannedOperation) -> list[str]:
    shape = ClusterShape(controllers=1, overrides={**OVERRIDES, **CONSUMER_GROUP_SETTINGS})
    return found_in(Plan(seed=seed, duration_ms=DURATION_MS, shape=shape, work={MIXED_GROUP: work}))


def start(at_ms: int, member: int, *, is_consumer_protocol: bool = True) -> PlannedOperation:
    """Return the operation that starts a member, which commits by itself and subscribes to everything."""
    choices = MemberChoices(is_consumer_protocol, way=0, subscription=0, assignor=0)
    return PlannedOperation(at_ms, START_MEMBER, member, choices.amount)


@slow
def a_member_is_cut_off(seed: int) -> list[str]:
    """Cut a member off for longer than its session, so that it is fenced."""
    cut = PlannedOperation(2_500, CUT_OFF_MEMBER, 0, 8_000)
    return _run(seed, start(0, 0), start(200, 1), cut)


@slow
def a_group_changes_its_protocol(seed: int) -> list[str]:
    """Let a group of the classic protocol get members of the new one, while its members own all partitions."""
    classic = [start(100 * member, member, is_consumer_protocol=False) for member in (0, 1)]
    return _run(seed, *classic, start(4_000, 2), PlannedOperation(6_000, END_MEMBER, 1), start(6_500, 1))
