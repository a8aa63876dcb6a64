"""Admin requests under faults: transient errors are retried, a hanging broker does not delay others, and permanent
errors are raised at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft.client import KafkaError
from kraft.client.admin import LATEST, Admin, NewTopic
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import TimedOut
from kraft.sim.cluster.shape import host_name
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import rule_from
from tests.stages.admin_client import Stage, play

Call = Callable[[Admin], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "Metadata": lambda admin: admin.topics.list(),
    "ListOffsets": lambda admin: admin.partitions.offsets({("t", 0): LATEST}),
    "DeleteRecords": lambda admin: admin.partitions.delete_records({("t", 0): 0}),
    "DescribeProducers": lambda admin: admin.partitions.producers([("t", 0)]),
    "FindCoordinator": lambda admin: admin.groups.offsets("g"),
    "OffsetFetch": lambda admin: admin.groups.offsets("g"),
    "OffsetCommit": lambda admin: admin.groups.alter_offsets("g", {("t", 0): 0}),
    "ListGroups": lambda admin: admin.groups.list(),
    "DescribeLogDirs": lambda admin: admin.nodes.log_dirs(),
    "DescribeQuorum": lambda admin: admin.nodes.quorum(),
}


def play_with_rules(call: Call, rules: list[dict[str, Any]], *, timeout_ms: float = 30_000) -> None:
    """Create a topic and a group, make all brokers apply the fault rules, and make the call."""

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await stage.admin.groups.alter_offsets("g", {("t", 0): 0})
        for node in (1, 2):
            for rule in rules:
                stage.cluster.replies[node].add(rule_from(rule))
        await call(stage.admin)
        for node in (1, 2):
            stage.cluster.replies[node].clear()

    play(work, timeout_ms=timeout_ms)


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("ListOffsets", ErrorCode.OFFSET_NOT_AVAILABLE),
        ("DeleteRecords", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("DescribeProducers", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("OffsetFetch", ErrorCode.NOT_COORDINATOR),
        ("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("ListGroups", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("DescribeQuorum", ErrorCode.NOT_CONTROLLER),
    ],
)
def test_admin_requests_retry_transient_errors(api: str, error: ErrorCode) -> None:
    play_with_rules(CALLS[api], [{"api": api, "action": "error", "error": error.name, "times": 2}])


@pytest.mark.parametrize("api", ["ListOffsets", "OffsetFetch", "OffsetCommit", "ListGroups"])
def test_a_permanent_error_of_an_admin_request_is_raised_without_a_retry(api: str) -> None:
    rules = [{"api": api, "action": "error", "error": "CLUSTER_AUTHORIZATION_FAILED", "times": 1}]
    with pytest.raises(KafkaError) as refused:
        play_with_rules(CALLS[api], rules)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("api", CALLS)
@pytest.mark.parametrize("after", [False, True])
def test_an_admin_request_is_retried_after_its_connection_was_closed(api: str, after: bool) -> None:
    play_with_rules(CALLS[api], [{"api": api, "action": "close", "times": 1, "after": after}])


def test_a_transient_error_is_raised_when_the_admin_timeout_is_over() -> None:
    rules = [{"api": "ListOffsets", "action": "error", "error": "NOT_LEADER_OR_FOLLOWER"}]
    with pytest.raises(KafkaError, match="t-0") as refused:
        play_with_rules(CALLS["ListOffsets"], rules, timeout_ms=3_000)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_admin_requests_succeed_at_another_broker_while_one_hangs() -> None:
    async def work(stage: Stage) -> None:
        stage.cluster.world.pause(host_name(1))
        for _ in range(4):
            assert await stage.admin.topics.list() == ()
        stage.cluster.world.resume(host_name(1))

    play(work, timeout_ms=6_000)


def test_an_admin_call_without_any_response_fails_at_its_timeout() -> None:
    async def work(stage: Stage) -> None:
        begin_ms = stage.cluster.world.now_ns // 1_000_000
        for node in (1, 2):
            stage.cluster.crash(node, lose_power=True, is_noticed=True)
        with pytest.raises((ClusterUnreachable, TimedOut)):
            await stage.admin.topics.list()
        assert stage.cluster.world.now_ns // 1_000_000 - begin_ms < 4_000

    play(work, timeout_ms=3_000)


@pytest.mark.parametrize(("silent", "least_ms", "most_ms"), [((), 2_000, 3_000), ((2,), 9_000, 11_000)])
def test_an_admin_call_fails_early_if_every_address_refuses_connections(
    silent: tuple[int, ...], least_ms: int, most_ms: int
) -> None:
    async def work(stage: Stage) -> None:
        world = stage.cluster.world
        for node in (1, 2):
            stage.cluster.crash(node, lose_power=node in silent, is_noticed=node not in silent)
        begin_ms = world.now_ns // 1_000_000
        servers, seam = stage.bootstrap_servers, world.node("new")
        async with Admin(bootstrap_servers=servers, seam=seam, timeout_ms=10_000, refused_ms=2_000) as admin:
            with pytest.raises(ClusterUnreachable) as failure:
                await admin.topics.list()
        assert failure.value.is_refused == (not silent)
        assert least_ms <= world.now_ns // 1_000_000 - begin_ms < most_ms

    play(work)
