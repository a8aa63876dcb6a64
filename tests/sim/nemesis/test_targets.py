"""Tests of crashes that name a role instead of a node: they affect the node that has the role at that time, and wait
until a node has it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import trio

from kraft.client import KafkaError, Producer
from kraft.client.admin import Admin, NewTopic
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.faults import Nemesis
from kraft.sim.nemesis.plan import TOPIC, Fault
from tests.stages.checked_cluster import kill_and_settle, play, state_of, wait_whole

SHRUNK = Fault(at_ms=0, kind=plan.KILL, role=plan.SHRUNK_LEADER, back_ms=100)
UNCOMMITTED = Fault(at_ms=0, kind=plan.KILL, role=plan.UNCOMMITTED_CONTROLLER, back_ms=100)


def test_a_crash_aimed_at_the_leader_of_a_shrunk_isr_hits_the_partition_whose_isr_shrank_last() -> None:
    hit: list[tuple[int, str]] = []

    async def story(cluster: SimCluster) -> None:
        for pick in range(3):
            leader = state_of(cluster).leader
            follower = next(broker for broker in state_of(cluster).isr if broker != leader)
            nemesis = Nemesis(cluster)
            assert not nemesis.targets.holders(plan.SHRUNK_LEADER)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(nemesis.crash_one, replace(SHRUNK, pick=pick))
                await cluster.world.sleep_ms(200)  # it waits, because no ISR has shrunk
                assert cluster.is_running(leader)
                await kill_and_settle(cluster, follower)
            assert nemesis.moments == {plan.SHRUNK_LEADER: 1}
            hit.append((leader, nemesis.history[-1]))
            cluster.start(follower)
            await wait_whole(cluster)

    assert not play(story)
    assert all(f"kill of node {leader}, the shrunk leader, back" in told for leader, told in hit), hit


async def shrink_two(cluster: SimCluster) -> tuple[int, int, int]:
    """Let two partitions lose an in-sync replica: first the topic's only partition, then a partition of another topic,
    which has a replica on the broker that has none of the first. Return the leader of each, and that broker."""
    leader = state_of(cluster).leader
    replicas = state_of(cluster).replicas
    (spare,) = {*cluster.shape.broker_ids} - {*replicas}
    first, other = (broker for broker in replicas if broker != leader)
    async with Admin(bootstrap_servers=cluster.shape.bootstrap_servers, seam=cluster.world.node("admin")) as admin:
        await admin.topics.create(NewTopic("soon", assignment={0: (other, spare)}))
    await wait_whole(cluster)
    for broker in (first, spare):
        await kill_and_settle(cluster, broker)
    return leader, other, spare


def aimed_at(cluster: SimCluster) -> list[int]:
    return Nemesis(cluster).targets.holders(plan.SHRUNK_LEADER)


def test_a_crash_aimed_at_the_leader_of_a_shrunk_isr_ignores_deleted_topics() -> None:
    async def story(cluster: SimCluster) -> None:
        leader, other, _ = await shrink_two(cluster)
        assert aimed_at(cluster) == [other]
        async with Admin(bootstrap_servers=cluster.shape.bootstrap_servers, seam=cluster.world.node("admin")) as admin:
            await admin.topics.delete("soon")
        assert await cluster.wait_until(lambda: "soon" not in cluster.image.topics.names, 5_000)
        assert aimed_at(cluster) == [leader]

    assert not play(story, brokers=4)


def test_a_crash_aimed_at_the_leader_of_a_shrunk_isr_ignores_an_isr_that_has_recovered() -> None:
    async def story(cluster: SimCluster) -> None:
        leader, other, spare = await shrink_two(cluster)
        assert aimed_at(cluster) == [other]
        cluster.start(spare)
        assert await cluster.wait_until(lambda: cluster.is_in_sync(spare), 10_000)
        assert aimed_at(cluster) == [leader]
        for broker in cluster.down:
            cluster.start(broker)
        await wait_whole(cluster)
        assert not aimed_at(cluster)

    assert not play(story, brokers=4)


def test_a_crash_aimed_at_a_controller_with_an_uncommitted_record_kills_it_before_the_commit() -> None:
    seen: list[tuple[int, int, str]] = []

    async def story(cluster: SimCluster) -> None:
        await cluster.world.sleep_ms(2_000)  # all is committed by then, and no heartbeat is due that could change it
        nemesis = Nemesis(cluster)
        active = cluster.watch.active_controller
        assert active is not None
        quorum = cluster.watch.nodes[active].node.quorum
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nemesis.crash_one, UNCOMMITTED)
            await cluster.world.sleep_ms(20)
            assert cluster.is_running(active)
            async with Admin(
                bootstrap_servers=cluster.shape.bootstrap_servers, seam=cluster.world.node("admin")
            ) as admin:
                with suppress(KafkaError):  # it may exist when it is requested again
                    await admin.topics.create(NewTopic("another", 1, 3))
        assert nemesis.moments == {plan.UNCOMMITTED_CONTROLLER: 1}
        seen.append((quorum.log_end_offset, quorum.high_watermark, nemesis.history[-1]))
        assert f"kill of node {active}, the uncommitted controller" in nemesis.history[-1]

    assert not play(story)
    ((end, committed, _),) = seen
    assert end > committed


def test_a_crash_aimed_at_a_leader_with_an_uncommitted_record_kills_it_before_the_commit() -> None:
    async def story(cluster: SimCluster) -> None:
        await cluster.world.sleep_ms(1_000)
        nemesis, leader = Nemesis(cluster), state_of(cluster).leader
        replica = cluster.watch.nodes[leader].node.broker.broker.replicas.find(TOPIC, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nemesis.crash_one, replace(UNCOMMITTED, role=plan.UNCOMMITTED_LEADER))
            await cluster.world.sleep_ms(20)
            assert cluster.is_running(leader)
            async with Producer(
                bootstrap_servers=cluster.shape.bootstrap_servers, seam=cluster.world.node("producer")
            ) as producer:
                for number in range(20):  # a moment may fall between two checks
                    await producer.send(TOPIC, b"%d" % number, partition=0)
        assert nemesis.moments == {plan.UNCOMMITTED_LEADER: 1}
        assert replica.log.log_end_offset > replica.high_watermark
        assert f"kill of node {leader}, the uncommitted leader" in nemesis.history[-1]

    assert not play(story)


def test_a_crash_that_waits_for_a_momentary_role_hits_any_node_after_a_timeout() -> None:
    async def story(cluster: SimCluster) -> None:
        nemesis = Nemesis(cluster)
        assert await nemesis.crash_one(SHRUNK)
        assert not nemesis.moments
        assert "kill of node" in nemesis.history[-1]

    assert not play(story)
