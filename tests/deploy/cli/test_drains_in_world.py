"""Drains that are interrupted, or whose brokers die: what the drain reports, and how the next drain continues."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio

from kraft.client.admin import Admin, ConfigResource, NewTopic, Reassignment, ResourceType
from kraft.client.admin.reassign_throttle import FOLLOWER_RATE, LEADER_REPLICAS, set_throttle, throttled_topics
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.partitions.draining import DrainPlan, carry_out, find_drain_plan
from kraft.deploy.cli.partitions.reassign_progress import awaited_brokers
from tests.stages.admin_client import Stage, play

PART = ("t", 0)


async def replicas(admin: Admin) -> tuple[int, ...]:
    (topic,) = await admin.topics.describe(["t"])
    return topic.partitions[0].replicas


async def settings(admin: Admin, resource: ConfigResource) -> Mapping[str, str | None]:
    return {one.name: one.value for one in await admin.configs.describe(resource)}


async def started_drain(stage: Stage, replicas: list[int]) -> DrainPlan:
    """Start to drain broker 1. Its partition is to move to broker 3, which is down when the move begins."""
    await stage.admin.topics.create(NewTopic("t", assignment={0: replicas}))
    plan = await find_drain_plan(stage.admin, 1)
    assert plan.targets == {PART: tuple(3 if one == 1 else one for one in replicas)}
    await crash(stage, 3)
    await stage.admin.partitions.reassign(plan.targets)
    return plan


async def crash(stage: Stage, node: int) -> None:
    stage.cluster.crash(node, lose_power=False, is_noticed=True)
    while any(one.node_id == node and not one.is_fenced for one in (await stage.admin.nodes.cluster()).brokers):
        await stage.cluster.world.sleep_ms(50)


def test_a_drain_names_its_dead_target_broker_and_continues_when_that_broker_is_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        plan = await find_drain_plan(stage.admin, 1)
        await crash(stage, 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry_out, stage.admin, plan, None)
            said = ""
            while not said:
                await stage.cluster.world.sleep_ms(50)
                said += capsys.readouterr().err
            stage.cluster.start(3)
        assert "moves wait for brokers that are down: 3." in said
        assert await replicas(stage.admin) == (3, 2)
        assert capsys.readouterr().err == ""

    play(work, brokers=3)


def test_the_next_drain_chooses_another_broker_for_a_move_whose_target_is_down() -> None:
    async def work(stage: Stage) -> None:
        await started_drain(stage, [1, 2])
        plan = await find_drain_plan(stage.admin, 1)
        assert plan.targets == {PART: (4, 2)}
        assert not plan.running
        await carry_out(stage.admin, plan, None)
        assert await replicas(stage.admin) == (4, 2)
        assert await stage.admin.partitions.reassignments() == {}

    play(work, brokers=4)


def test_the_next_drain_reports_too_few_brokers_while_the_target_is_down() -> None:
    async def work(stage: Stage) -> None:
        await started_drain(stage, [1, 2])
        with pytest.raises(CommandFailed, match="start another broker first"):
            await find_drain_plan(stage.admin, 1)
        stage.cluster.start(3)
        assert await stage.cluster.wait_until(lambda: not stage.cluster.trouble(), 20_000)
        plan = await find_drain_plan(stage.admin, 1)
        await carry_out(stage.admin, plan, None)
        assert await replicas(stage.admin) == (3, 2)

    play(work, brokers=3)


def test_draining_a_broker_that_dies_finishes_if_another_replica_exists() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        plan = await find_drain_plan(stage.admin, 1)
        await crash(stage, 1)
        await carry_out(stage.admin, plan, None)
        assert await replicas(stage.admin) == (3, 2)

    play(work, brokers=3)


def test_the_next_drain_removes_the_throttle_left_by_an_interrupted_drain() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        plan = await find_drain_plan(stage.admin, 1)
        await set_throttle(stage.admin, plan.before, plan.targets, 1_000)
        await stage.admin.partitions.reassign(plan.targets)
        assert await throttled_topics(stage.admin, 1) == {"t"}
        while await stage.admin.partitions.reassignments():
            await stage.cluster.world.sleep_ms(50)
        plan = await find_drain_plan(stage.admin, 1)
        assert plan.targets == {}
        await carry_out(stage.admin, plan, None)
        topic = await settings(stage.admin, ConfigResource(ResourceType.TOPIC, "t"))
        assert not topic[LEADER_REPLICAS]
        for broker in ("1", "2", "3"):
            rates = await settings(stage.admin, ConfigResource(ResourceType.BROKER, broker))
            assert rates[FOLLOWER_RATE] != "1000", broker

    play(work, brokers=3)


def test_a_drain_keeps_the_throttle_of_another_move() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        await stage.admin.topics.create(NewTopic("other", assignment={0: [2]}))
        await set_throttle(stage.admin, {("other", 0): (2,)}, {("other", 0): (3,)}, 1_000)
        await carry_out(stage.admin, await find_drain_plan(stage.admin, 1), None)
        rates = await settings(stage.admin, ConfigResource(ResourceType.BROKER, "3"))
        assert rates[FOLLOWER_RATE] == "1000"

    play(work, brokers=3)


@pytest.mark.parametrize(
    ("move", "active", "expected"),
    [
        (Reassignment((1, 2, 3), (3,), (1,)), {1, 2, 3}, set()),
        (Reassignment((1, 2, 3), (3,), (1,)), {1, 2}, {3}),
        (Reassignment((1, 2, 3), (3,), (1,)), {2, 3}, set()),
        (Reassignment((1, 3), (3,), (1,)), {3}, {1}),
        (Reassignment((1, 2), (), (1,)), {2}, set()),
    ],
)
def test_a_replica_move_waits_for_its_target_brokers_and_for_its_last_source_broker(
    move: Reassignment, active: set[int], expected: set[int]
) -> None:
    assert awaited_brokers({PART: move}, active) == expected
