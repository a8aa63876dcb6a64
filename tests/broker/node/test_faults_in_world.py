"""Fault rules in whole simulated nodes: the effect of a reply policy on the clients of a broker and of a controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft.sim.world import World
from kraft.wire.reply_policy import ReplyPolicy, rule_from
from tests.stages.plane import Plane, batch, error
from tests.stages.world_cluster import WorldCluster

Test = Callable[[Plane, ReplyPolicy], Awaitable[None]]


def run(test: Test, *, faulty: int = 1, **layout: Any) -> None:
    """Start a cluster in which node `faulty` has a reply policy, and run `test` against the cluster."""

    async def main(world: World) -> None:
        cluster = WorldCluster(world, **(layout or {"combined": 1}))
        policy = cluster.replies[faulty] = ReplyPolicy()
        cluster.start()
        await cluster.wait_ready()
        await test(Plane(world, cluster), policy)
        assert not cluster.failures

    World(1).run(main)


def numbered(value: str) -> bytearray:
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=0)


def test_a_produce_whose_response_is_lost_is_stored_and_its_retry_is_not_duplicated() -> None:
    async def test(plane: Plane, policy: ReplyPolicy) -> None:
        await plane.create_topic("t")
        policy.add(rule_from({"api": "Produce", "action": "close", "after": True, "times": 1}))
        with pytest.raises(ConnectionError):
            await plane.produce("t", numbered("a"))
        assert plane.partition("t").log.log_end_offset == 1
        again = await plane.produce("t", numbered("a"))
        assert (again.error_code, again.base_offset) == (0, 0)
        assert plane.partition("t").log.log_end_offset == 1

    run(test)


def test_a_produce_rejected_by_a_fault_rule_is_not_in_the_log() -> None:
    async def test(plane: Plane, policy: ReplyPolicy) -> None:
        await plane.create_topic("t")
        await plane.create_topic("other")
        rule = {"api": "Produce", "topic": "t", "action": "error", "error": "NOT_ENOUGH_REPLICAS", "times": 1}
        policy.add(rule_from(rule))
        assert error(await plane.produce("other", batch("a"))).name == "NONE"
        assert error(await plane.produce("t", batch("a"))).name == "NOT_ENOUGH_REPLICAS"
        assert plane.partition("t").is_unwritten
        assert error(await plane.produce("t", batch("a"))).name == "NONE"

    run(test)


def test_a_fault_rule_for_a_topic_matches_fetches_by_name_by_id_and_by_session() -> None:
    async def test(plane: Plane, policy: ReplyPolicy) -> None:
        await plane.create_topic("t")
        policy.add(rule_from({"api": "Fetch", "topic": "t", "action": "error", "error": "CORRUPT_MESSAGE", "times": 2}))
        by_id = await plane.fetch_many([("t", 0, 0)], version=13)
        assert by_id.topics[0][2][0].error_code == 2
        by_name = await plane.fetch_many([("t", 0, 0)], version=12)
        assert by_name.topics[0][2][0].error_code == 2
        opened = await plane.fetch_many([("t", 0, 0)], version=12, session_epoch=0)
        policy.add(rule_from({"api": "Fetch", "topic": "t", "action": "error", "error": "CORRUPT_MESSAGE", "times": 1}))
        held = await plane.fetch_many([], version=12, session_id=opened.session_id, session_epoch=1)
        assert held.topics[0][2][0].error_code == 2

    run(test)


def test_a_delay_rule_delays_responses_by_its_time_in_virtual_time() -> None:
    async def test(plane: Plane, policy: ReplyPolicy) -> None:
        await plane.create_topic("t")
        policy.add(rule_from({"api": "Produce", "action": "delay", "delay_ms": 700, "after": True}))
        began_ns = plane.world.now_ns
        assert error(await plane.produce("t", batch("a"))).name == "NONE"
        assert plane.world.now_ns - began_ns >= 700_000_000

    run(test)


def test_a_controller_with_a_rule_that_drops_heartbeats_fences_the_broker_that_sends_them() -> None:
    async def test(plane: Plane, policy: ReplyPolicy) -> None:
        cluster = plane.cluster
        policy.add(rule_from({"api": "InternalHeartbeat", "client_id": "node-2", "action": "drop"}))
        node = cluster.node(1)
        await plane.until(lambda: not node.publisher.image.is_alive(2), 30_000)
        assert node.publisher.image.is_alive(1)
        policy.clear()

    run(test, faulty=101, controllers=1, brokers=2)
